//! A haproxy that runs with what is rendered.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::{cluster, fixtures, member};
use crate::load_balancer::{control_plane, worker};

const INTERNAL_PORT: u16 = 8404;

/// Ends with the test, however that ends.
pub(super) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two loopback addresses of this process and test alone, so that the ports on them are free: a member's and our own.
pub(super) fn own_addresses(test: u8) -> [Ipv4Addr; 2] {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    [0, 1].map(|which| Ipv4Addr::from([127, (high & 0x0f) | (test << 5) | (which << 4), middle, low]))
}

fn request(address: SocketAddr, question: &[u8]) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(Duration::from_secs(5)))?;
    connection.write_all(question)?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Answers the first connection that asks; health checks only connect and leave.
fn serve(listener: TcpListener) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        loop {
            let (mut connection, _) = listener.accept().unwrap();
            let mut asked = [0; 5];
            if connection.read_exact(&mut asked).is_ok() {
                connection.write_all(b"hello from the member").unwrap();
                return;
            }
        }
    })
}

pub(super) fn start(config: &str, directory: &Path) -> (Running, ChildStdout) {
    let file = directory.join("haproxy.cfg");
    std::fs::write(&file, config).unwrap();
    let mut process = Command::new("haproxy")
        .args(["-db", "-f"])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("this test needs haproxy in PATH (Debian package haproxy): {error}"));
    let log = process.stdout.take().unwrap();
    (Running(process), log)
}

/// In a site, members are other machines; here a wildcard listener would clash with theirs, and with other tests.
pub(super) fn listening_on(front: Ipv4Addr, config: &str) -> String {
    config
        .replace("bind :::", &format!("bind {front}:"))
        .replace(" v4v6", "")
}

#[test]
fn haproxy_answers_probes_and_leads_to_the_member() {
    let [member_address, front] = own_addresses(1);
    let listener = TcpListener::bind((member_address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = serve(listener);

    let site = fixtures::SITE
        .replace("30002", &port.to_string())
        .replace("30003", &port.to_string());
    let cluster = cluster(&site);
    let members = [member("lab", "a", &member_address.to_string())];
    let config = worker(&cluster, &cluster.load_balancers_worker()[0], &members).config;
    let directory = tempfile::tempdir().unwrap();
    let (_running, _log) = start(&listening_on(front, &config), directory.path());

    let deadline = Instant::now() + Duration::from_secs(10);
    let health = loop {
        match request((front, INTERNAL_PORT).into(), b"GET /healthz HTTP/1.0\r\n\r\n") {
            Ok(answer) => break answer,
            Err(error) => assert!(Instant::now() < deadline, "haproxy does not listen: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
    let served = request((front, INTERNAL_PORT).into(), b"GET /members HTTP/1.0\r\n\r\n").unwrap();
    assert!(served.starts_with("HTTP/1.1 200"), "{served}");
    let metrics = request((front, INTERNAL_PORT).into(), b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    assert!(metrics.contains("haproxy_backend_active_servers{"), "{metrics}");
    let statistics = request((front, INTERNAL_PORT).into(), b"GET /stats;csv HTTP/1.0\r\n\r\n").unwrap();
    assert!(statistics.contains("lab.a"), "{statistics}");
    assert_eq!(
        request((front, port).into(), b"hello").unwrap(),
        "hello from the member"
    );
    serving.join().unwrap();
}

/// Asks until there is an answer of this kind, or says what there was.
fn answers(address: SocketAddr, question: &[u8], expected: &str) -> Result<String, String> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let answer = request(address, question);
        match answer {
            Ok(answer) if answer.starts_with(expected) => return Ok(answer),
            other if Instant::now() > deadline => return Err(format!("{other:?}")),
            Ok(_) | Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[test]
fn a_worker_gets_the_proxy_header_when_configured() {
    let [member_address, front] = own_addresses(4);
    let site = fixtures::otherwise();
    let cluster = cluster(&site);
    // A real receiver of the PROXY protocol, which answers with the address that it was told.
    let receiver = format!(
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 5s\n  timeout server 5s\nfrontend told\n  \
         bind {member_address}:30002 accept-proxy\n  bind {member_address}:30003 accept-proxy\n  \
         http-request return status 200 content-type text/plain lf-string \"%[src] spoke to %[dst]\"\n"
    );
    let (receivers, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_receiver, _its_log) = start(&receiver, receivers.path());
    let members = [member("lab", "a", &member_address.to_string())];
    let config = worker(&cluster, &cluster.load_balancers_worker()[0], &members).config;
    let (_running, _log) = start(&listening_on(front, &config), directory.path());

    let answer = answers((front, 30_002).into(), b"GET / HTTP/1.0\r\n\r\n", "HTTP/1.1 200");
    // All of loopback speaks as 127.0.0.1; to whom the client spoke, and not HAProxy, only the PROXY protocol can tell.
    assert!(
        answer
            .as_ref()
            .is_ok_and(|answer| answer.ends_with(&format!("127.0.0.1 spoke to {front}"))),
        "{answer:?}"
    );
    let served = answers(
        (front, INTERNAL_PORT).into(),
        b"GET /members HTTP/1.0\r\n\r\n",
        "HTTP/1.1 200",
    );
    assert!(served.is_ok(), "{served:?}");
}

/// The log says when a member leaves. Reading it ends with the process, at the latest when the test does.
fn leaves_within_ten_seconds(config: &str, front: Ipv4Addr) {
    let directory = tempfile::tempdir().unwrap();
    let (running, log) = start(&listening_on(front, config), directory.path());
    let started = Instant::now();
    let (said, log_lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            if said.send(line).is_err() {
                return;
            }
        }
    });
    let mut lines = Vec::new();
    let down = loop {
        let left = Duration::from_secs(10).saturating_sub(started.elapsed());
        match log_lines.recv_timeout(left) {
            Ok(line) if line.contains("/lab.dead is DOWN") => break true,
            Ok(line) => lines.push(line),
            Err(_) => break false,
        }
    };
    // The other ports' checks end when they end.
    let unserved = loop {
        let answer = request((front, INTERNAL_PORT).into(), b"GET /members HTTP/1.0\r\n\r\n").unwrap();
        if answer.starts_with("HTTP/1.1 503") || started.elapsed() > Duration::from_secs(10) {
            break answer;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    drop(running);
    drop(log_lines);
    reader.join().unwrap();
    assert!(down, "the dead member is still in after 10 s: {lines:#?}");
    assert!(unserved.starts_with("HTTP/1.1 503"), "{unserved}");
}

#[test]
fn a_dead_worker_leaves_within_ten_seconds() {
    let [dead, front] = own_addresses(2);
    let cluster = cluster(fixtures::SITE);
    let members = [member("lab", "dead", &dead.to_string())];
    leaves_within_ten_seconds(
        &worker(&cluster, &cluster.load_balancers_worker()[0], &members).config,
        front,
    );
}

#[test]
fn a_dead_api_server_leaves_within_ten_seconds() {
    let [dead, front] = own_addresses(3);
    let cluster = cluster(fixtures::SITE);
    let members = [member("lab", "dead", &dead.to_string())];
    let balancer = &cluster.load_balancers_control_plane()[0];
    leaves_within_ten_seconds(&control_plane(&cluster, balancer, &members).config, front);
}
