//! Orders to HAProxy: how a step is said, and how a new worker takes the place of the current one.

use std::collections::BTreeSet;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable as _};

use crate::cli::{self, Master, Pid};
use crate::look::{Face, Process};
use crate::members::{Members, Server};
use crate::steps::{Entry, Step};
use crate::tables;

/// The master does not listen while it reads its configuration: ten thousand servers take it half a second. It has 30 s.
const RELOAD_POLL: Duration = Duration::from_millis(10);
const RELOAD_POLLS: usize = 3_000;
/// Characters of what HAProxy says that are passed on.
const WORDS: usize = 1_000;

/// Takes steps in a worker, all of them on one connection. What HAProxy answers besides that it has done so, for people: who
/// wants to know whether it has looks again.
///
/// # Errors
/// When the master does not answer.
pub async fn take(
    master: &Master,
    worker: Pid,
    steps: &[Step],
    members: &Members,
) -> Result<String, cli::Error> {
    let said = master
        .tell(worker, steps.iter().flat_map(|step| orders(step, members)))
        .await?;
    Ok(words(&said))
}

/// What to say for one step.
fn orders(step: &Step, members: &Members) -> Vec<String> {
    let keywords = members.keywords();
    match step {
        // `default-server` does not hold for servers that come later: hence the keywords.
        Step::Add(server, address, entry) => {
            let add = format!("add server {server} {address} {keywords}");
            let mut orders = vec![add];
            orders.extend(ready(server, members));
            match entry {
                // HAProxy takes a server for healthy until a check fails.
                Entry::Checked => orders.push(format!("set server {server} health down")),
                Entry::AtOnce => {}
            }
            orders
        }
        Step::Ready(server) => ready(server, members),
        Step::Trust(server) => vec![format!("set server {server} health up")],
        Step::Drain(server) => vec![format!("set server {server} state drain")],
        Step::Cut(server) => vec![format!("shutdown sessions server {server}")],
        Step::Delete(server) => vec![
            format!("set server {server} state maint"),
            format!("del server {server}"),
        ],
    }
}

fn ready(server: &Server, members: &Members) -> Vec<String> {
    let checks = members.are_checked().then(|| format!("enable health {server}"));
    checks
        .into_iter()
        .chain([format!("set server {server} state ready")])
        .collect()
}

/// What is not the usual, each line once.
fn words(said: &str) -> String {
    let unusual = said
        .lines()
        .map(str::trim)
        .filter(|line| !["", "New server registered.", "Server deleted."].contains(line));
    let mut lines: Vec<&str> = Vec::new();
    for line in unusual {
        if !lines.contains(&line) {
            lines.push(line);
        }
        if lines.len() > 5 {
            break;
        }
    }
    lines.join(" ").chars().take(WORDS).collect()
}

/// Ends the sessions that a worker, which takes no orders about its servers any more, has with these.
///
/// # Errors
/// When the master does not answer.
pub async fn cut(master: &Master, worker: Pid, servers: &BTreeSet<Server>) -> Result<(), cli::Error> {
    let sessions = master.tell(worker, ["show sess"]).await?;
    let over = tables::sessions_of(&sessions, |server| servers.contains(server));
    tracing::info!(
        worker,
        sessions = over.len(),
        "ending sessions with members that left, in an old worker"
    );
    let orders = over.iter().map(|number| format!("shutdown session {number}"));
    master.tell(worker, orders).await?;
    Ok(())
}

/// How a reload ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reloaded {
    /// How HAProxy looks since.
    pub face: Face,
    /// Why it goes on as before, for people; `None` when a new worker runs.
    pub refused: Option<String>,
}

/// Lets a new worker take the place of the current one, and waits until it has or until HAProxy has refused.
///
/// The master starts itself anew for it, and listens again when it knows: so its first answer tells.
///
/// # Errors
/// When the master does not answer.
pub async fn reload(master: &Master, before: &Face) -> Result<Reloaded, cli::Error> {
    let said = match master.ask("reload").await {
        Ok(said) => said,
        // It closes the connection by becoming another program.
        Err(cli::Error::Closed(_)) => String::new(),
        Err(error) => return Err(error),
    };
    let pauses = ConstantBuilder::new()
        .with_delay(RELOAD_POLL)
        .with_max_times(RELOAD_POLLS);
    let face = (|| Face::of(master)).retry(pauses).await?;
    let is_new = |process: &Process| {
        let known = before.processes.iter().any(|earlier| earlier.pid == process.pid);
        !process.old && !known
    };
    let refused = (!face.processes.iter().any(is_new)).then(|| reasons(&said));
    Ok(Reloaded { face, refused })
}

/// HAProxy says why since 2.7 only.
fn reasons(said: &str) -> String {
    let alerts: Vec<&str> = said.lines().filter(|line| line.contains("[ALERT]")).collect();
    if alerts.is_empty() {
        return "HAProxy refuses the configuration; the log of its container says why".to_owned();
    }
    let all = alerts.join(" ");
    format!(
        "HAProxy refuses the configuration: {}",
        all.chars().take(WORDS).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{members, server};

    #[test]
    fn steps_are_said_in_orders() {
        let members = members("check inter 2s", &["a"]);
        let a = server("api", "lab.a");
        let of = |step: Step| orders(&step, &members).join("; ");
        assert_eq!(
            of(Step::Add(
                a.clone(),
                "[2001:db8::1]:6443".parse().unwrap(),
                Entry::Checked
            )),
            "add server api/lab.a [2001:db8::1]:6443 check inter 2s; enable health api/lab.a; \
             set server api/lab.a state ready; set server api/lab.a health down"
        );
        assert_eq!(of(Step::Trust(a.clone())), "set server api/lab.a health up");
        assert_eq!(
            of(Step::Ready(a.clone())),
            "enable health api/lab.a; set server api/lab.a state ready"
        );
        assert_eq!(of(Step::Drain(a.clone())), "set server api/lab.a state drain");
        assert_eq!(of(Step::Cut(a.clone())), "shutdown sessions server api/lab.a");
        assert_eq!(
            of(Step::Delete(a)),
            "set server api/lab.a state maint; del server api/lab.a"
        );
    }

    #[test]
    fn nothing_is_said_of_checks_where_there_are_none() {
        let members = members("weight 10", &["a"]);
        let step = Step::Add(
            server("api", "a"),
            "192.0.2.1:6443".parse().unwrap(),
            Entry::AtOnce,
        );
        assert_eq!(
            orders(&step, &members),
            [
                "add server api/a 192.0.2.1:6443 weight 10",
                "set server api/a state ready"
            ]
        );
    }

    #[test]
    fn only_what_is_unusual_is_told_and_told_once() {
        let said = "New server registered.\n\n\n\nNo such server.\n\nNo such server.\n\nServer deleted.\n";
        assert_eq!(words(said), "No such server.");
        assert_eq!(words("\n\n\n"), "");
    }

    #[test]
    fn haproxys_own_reasons_are_passed_on_where_it_gives_them() {
        let said = "Success=0\n--\n[NOTICE]   (1) : Reloading\n[ALERT]    (1) : config : parsing [h.cfg:3]\n";
        assert_eq!(
            reasons(said),
            "HAProxy refuses the configuration: [ALERT]    (1) : config : parsing [h.cfg:3]"
        );
        assert!(reasons("").contains("the log of its container"));
    }
}
