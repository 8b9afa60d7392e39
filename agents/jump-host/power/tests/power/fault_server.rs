//! A BMC that fails as it is told to. It speaks just enough HTTP to get to the fault.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;

/// Path of every session.
const SESSION: &str = "/redfish/v1/SessionService/Sessions/1";

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// It takes connections and says nothing.
    Silent,
    /// It says nothing once it has an action.
    SilentToActions,
    /// It closes the connection instead of an answer.
    Closes,
    /// It closes the connection once it has an action.
    ClosesOnActions,
    /// It writes half an answer, and then nothing.
    Half,
    /// It writes half an answer, and closes.
    HalfAndCloses,
    /// It answers with a page for people.
    Html,
    /// It answers without end.
    Huge,
    /// It writes one byte a second.
    Slow,
    /// It answers actions with this status.
    ActionStatus(u16),
    /// It refers to another server.
    Redirects,
    /// It answers that no such user may log in.
    Unauthorized,
    /// It makes sessions, and says nothing about systems.
    SilentToReads,
    /// It refers to another path, where the system has this name.
    MovedTo(&'static str, &'static str),
    /// It ends the sessions that there are with an action.
    EndsSessions,
    /// It never shows the effect of an action.
    NoEffect,
    /// It names sessions by a host name of its own.
    NamesItself,
    /// It names sessions in the body of its answer only.
    NamesInBody,
    /// It makes sessions without token.
    NoToken,
    /// Each of its references leads to the resource that has it.
    RefersToItself,
    /// It redirects from each system to the same one.
    RedirectsToItself,
    /// It makes a session at once, and answers a second later.
    SlowLogin,
    /// It takes a second for each action, and never shows the effect.
    SlowActions,
    /// It offers as many reset types as are kept, each as long as is kept, and none that does anything.
    OffersTooMuch,
}

#[derive(Debug, Default)]
struct Seen {
    actions: Vec<String>,
    power: Option<&'static str>,
    sessions: usize,
    /// Sessions that were ever made.
    made: usize,
    /// Those of them that ended by an action.
    ended: usize,
    /// Slow actions that it is carrying out, and how many there were at most.
    acting: usize,
    acting_at_once: usize,
}

impl Seen {
    /// It has received an action.
    fn act(&mut self, fault: Fault, body: &str) {
        self.actions.push(body.to_owned());
        if fault == Fault::SlowActions {
            self.acting += 1;
            self.acting_at_once = self.acting_at_once.max(self.acting);
        } else if fault != Fault::NoEffect {
            // Off until the next read.
            self.power = Some(if body.contains("Restart") {
                "Restarting"
            } else {
                "Off"
            });
        }
    }
}

/// A running server.
pub(crate) struct FaultServer {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    fault: Arc<Mutex<Fault>>,
    _serving: AbortOnDropHandle<()>,
}

impl FaultServer {
    pub(crate) async fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let fault = Arc::new(Mutex::new(fault));
        let state = (Arc::clone(&fault), Arc::clone(&seen));
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (fault, seen) = (Arc::clone(&state.0), Arc::clone(&state.1));
                connections.spawn(async move {
                    // A client that goes away is no concern of the server's.
                    let _ = serve(stream, fault, seen).await;
                });
            }
        });
        Self {
            address,
            seen,
            fault,
            _serving: AbortOnDropHandle::new(serving),
        }
    }

    pub(crate) fn bmc_address(&self) -> String {
        format!("redfish+http://{}/redfish/v1/Systems/1", self.address)
    }

    pub(crate) fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    /// The bodies of the actions that it received.
    pub(crate) fn actions(&self) -> Vec<String> {
        self.seen.lock().unwrap().actions.clone()
    }

    /// Slow actions that it carried out at the same time, at most.
    pub(crate) fn acting_at_once(&self) -> usize {
        self.seen.lock().unwrap().acting_at_once
    }

    /// Sessions that were ever made.
    pub(crate) fn made(&self) -> usize {
        self.seen.lock().unwrap().made
    }

    /// Sessions that were made and not ended.
    pub(crate) fn sessions(&self) -> usize {
        self.seen.lock().unwrap().sessions
    }
}

async fn serve(
    mut stream: TcpStream,
    fault: Arc<Mutex<Fault>>,
    seen: Arc<Mutex<Seen>>,
) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    while let Some((head, body)) = request(&mut stream, &mut buffer).await? {
        let fault = *fault.lock().unwrap();
        let action = head.starts_with("POST ") && head.contains("ComputerSystem.Reset");
        if action {
            seen.lock().unwrap().act(fault, &body);
        }
        let normal = answer(&head, fault, &seen);
        match (fault, action) {
            (Fault::Silent, _) | (Fault::SilentToActions, true) => std::future::pending::<()>().await,
            (Fault::Closes, _) | (Fault::ClosesOnActions, true) => return Ok(()),
            (Fault::SilentToReads, _) if head.contains("Systems") => std::future::pending::<()>().await,
            (Fault::SlowLogin, _) if is_login(&head) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                stream.write_all(&normal).await?;
            }
            (Fault::SlowActions, true) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                seen.lock().unwrap().acting -= 1;
                stream.write_all(&normal).await?;
            }
            (Fault::EndsSessions, true) => {
                {
                    let mut seen = seen.lock().unwrap();
                    seen.ended = seen.made;
                }
                stream.write_all(&normal).await?;
            }
            (Fault::EndsSessions, _) if head.contains("Systems") && is_ended(&head, &seen) => {
                // This read shows nothing: the next one shows the restart.
                seen.lock().unwrap().power = Some("Restarting");
                stream
                    .write_all(&response(401, "application/json", "", "{}"))
                    .await?;
            }
            (Fault::MovedTo(id, name), _) if head.starts_with("GET /redfish/v1/Systems/") => {
                let path = if id == "1" { "1/" } else { id };
                let location = format!("/redfish/v1/Systems/{path}");
                let answer = if head.starts_with(&format!("GET {location} ")) {
                    let system = serde_json::json!({
                        "@odata.id": location.trim_end_matches('/'), "PowerState": "On", "Name": name,
                    });
                    response(200, "application/json", "", &system.to_string())
                } else {
                    response(307, "text/html", &format!("Location: {location}\r\n"), "")
                };
                stream.write_all(&answer).await?;
            }
            (Fault::Half, false) => {
                stream.write_all(&normal[..normal.len() - 5]).await?;
                std::future::pending::<()>().await;
            }
            (Fault::HalfAndCloses, false) => {
                stream.write_all(&normal[..normal.len() - 5]).await?;
                return Ok(());
            }
            (Fault::Html, _) => {
                stream
                    .write_all(&response(200, "text/html", "", "<html>Please log in</html>"))
                    .await?;
            }
            (Fault::Huge, _) => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n").await?;
                let chunk = vec![b' '; 1 << 16];
                loop {
                    stream.write_all(&chunk).await?;
                }
            }
            (Fault::Slow, _) => {
                for byte in normal {
                    stream.write_all(&[byte]).await?;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            (Fault::ActionStatus(status), true) => {
                let message = r#"{"error":{"message":"not today","code":"x"}}"#;
                stream
                    .write_all(&response(status, "application/json", "", message))
                    .await?;
            }
            (Fault::Redirects, _) if head.contains("Systems") => {
                let elsewhere = "Location: https://evil.example/redfish/v1/Systems/1\r\n";
                stream
                    .write_all(&response(307, "text/html", elsewhere, ""))
                    .await?;
            }
            (Fault::Unauthorized, _) if !head.starts_with("GET /redfish/v1/ ") => {
                stream
                    .write_all(&response(401, "application/json", "", "{}"))
                    .await?;
            }
            _ => stream.write_all(&normal).await?,
        }
    }
    Ok(())
}

fn is_login(head: &str) -> bool {
    head.starts_with("POST ") && head.contains("/Sessions")
}

/// Whether a request is one of a session that an action has ended.
fn is_ended(head: &str, seen: &Mutex<Seen>) -> bool {
    let head = head.to_ascii_lowercase();
    let token = head
        .lines()
        .find_map(|line| line.strip_prefix("x-auth-token: t0ken-"));
    let number: usize = token.map_or(0, |number| number.parse().unwrap());
    number <= seen.lock().unwrap().ended
}

/// The next request: its head and body.
async fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Option<(String, String)>> {
    loop {
        let text = String::from_utf8_lossy(buffer).into_owned();
        if let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length: ")
                    .map(str::to_owned)
            });
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            if rest.len() >= length {
                let (body, left) = rest.split_at(length);
                let request = (head.to_owned(), body.to_owned());
                *buffer = left.as_bytes().to_vec();
                return Ok(Some(request));
            }
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

fn answer(head: &str, fault: Fault, seen: &Mutex<Seen>) -> Vec<u8> {
    let mut seen = seen.lock().unwrap();
    if is_login(head) {
        seen.sessions += 1;
        seen.made += 1;
        return match fault {
            Fault::NamesItself => session(Some(seen.made), "https://its-own-name"),
            Fault::NoToken => session(None, ""),
            Fault::NamesInBody => {
                let token = format!("X-Auth-Token: t0ken-{}\r\n", seen.made);
                let body = serde_json::json!({"@odata.id": SESSION, "UserName": "x"}).to_string();
                response(201, "application/json", &token, &body)
            }
            _ => session(Some(seen.made), ""),
        };
    }
    if head.starts_with(&format!("DELETE {SESSION} ")) {
        seen.sessions -= 1;
        return response(204, "application/json", "", "");
    }
    if head.starts_with("POST /redfish/v1/ ") {
        return response(405, "application/json", "", "{}");
    }
    if head.starts_with("POST ") {
        return response(204, "application/json", "", "");
    }
    if fault == Fault::RedirectsToItself && head.starts_with("GET /redfish/v1/Systems/1 ") {
        return response(307, "text/html", "Location: /redfish/v1/Systems/1\r\n", "");
    }
    if fault == Fault::RefersToItself {
        return refers_to_itself(head);
    }
    if head.starts_with("GET /redfish/v1/ ") {
        let root = r#"{"Links":{"Sessions":{"@odata.id":"/redfish/v1/SessionService/Sessions"}}}"#;
        return response(200, "application/json", "", root);
    }
    let power = match seen.power {
        Some("Restarting") => {
            seen.power = None;
            "Off"
        }
        Some(power) => power,
        None => "On",
    };
    let offered = if fault == Fault::OffersTooMuch {
        vec!["é".repeat(128); 32]
    } else {
        ["On", "GracefulRestart", "GracefulShutdown", "ForceRestart"]
            .map(ToOwned::to_owned)
            .to_vec()
    };
    let system = serde_json::json!({
        "@odata.id": "/redfish/v1/Systems/1",
        "PowerState": power,
        "Actions": {"#ComputerSystem.Reset": {
            "target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset",
            "ResetType@Redfish.AllowableValues": offered,
        }},
    });
    response(200, "application/json", "", &system.to_string())
}

/// A resource whose references all lead back to it.
fn refers_to_itself(head: &str) -> Vec<u8> {
    let path = head.split(' ').nth(1).unwrap();
    let own = serde_json::json!({"@odata.id": path});
    let resource = serde_json::json!({
        "@odata.id": path, "PowerState": "On", "Links": {"Sessions": own, "Chassis": [own]}, "Parameters": own,
        "Actions": {"#ComputerSystem.Reset": {"target": format!("{path}/Reset"), "@Redfish.ActionInfo": path}},
    });
    response(200, "application/json", "", &resource.to_string())
}

/// The answer to a login: the number in the session's token, if it has one, and the origin by which the session is named.
fn session(token: Option<usize>, origin: &str) -> Vec<u8> {
    let token = token.map_or_else(String::new, |number| format!("X-Auth-Token: t0ken-{number}\r\n"));
    let headers = format!("{token}Location: {origin}{SESSION}\r\n");
    response(201, "application/json", &headers, "{}")
}

fn response(status: u16, type_: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} X\r\nContent-Type: {type_}\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
