//! Who logged in is in the log and in the metrics.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    keys::Key,
    rig::{Desired, PATIENCE, Pod, possible},
};

/// A way to sshd that passes nothing on until it is opened.
struct Relay {
    port: u16,
    connected: mpsc::Receiver<()>,
    open: mpsc::Sender<()>,
}

impl Relay {
    fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (has_connected, connected) = mpsc::channel();
        let (open, opened) = mpsc::channel();
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut server = TcpStream::connect(target).unwrap();
            // Once it greets, a process of sshd has this login.
            let mut greeting = [0];
            server.read_exact(&mut greeting).unwrap();
            has_connected.send(()).unwrap();
            opened.recv().unwrap();
            client.write_all(&greeting).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            // Whichever of both ends, ssh does.
            let _ = std::io::copy(&mut server, &mut client);
            let _ = client.shutdown(std::net::Shutdown::Both);
        });
        Self {
            port,
            connected,
            open,
        }
    }
}

/// A session in which a command runs that ends with its input.
fn session(pod: &Pod, key: &Key) -> Child {
    let mut session = pod
        .ssh(key, &[])
        .arg("echo in; cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(session.stdout.as_mut().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "in\n");
    session
}

/// Waits until sshd takes no new connection.
fn takes_nobody(pod: &Pod) {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(pod.listens_at()).is_ok() {
        assert!(Instant::now() < deadline, "new connections are still taken");
        thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test]
async fn sessions_are_logged_with_key_or_certificate_and_counted() {
    if !possible() {
        return;
    }
    let (ana, authority, stranger) = (Key::new("ana"), Key::new("authority"), Key::new("stranger"));
    let desired = Desired {
        authorities: vec![authority.public()],
        ..Desired::with_key(&ana)
    };
    let pod = Pod::start(&desired).await;
    pod.lets_in(&ana).unwrap();
    pod.lets_in(&authority.issues("ben of shop", "orders", &[]))
        .unwrap();
    assert!(pod.lets_in(&stranger).is_err());
    pod.logs("login refused");
    // Both have ended: the second line of each.
    for text in [
        ana.fingerprint(),
        "ben of shop".to_owned(),
        authority.fingerprint(),
    ] {
        pod.logs(&text);
    }
    let closed = || pod.log().matches("session closed").count();
    let deadline = std::time::Instant::now() + crate::rig::PATIENCE;
    while closed() < 2 {
        assert!(std::time::Instant::now() < deadline, "{}", pod.log());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(
        pod.metric("sip_jump_host_open_sessions"),
        "sip_jump_host_open_sessions 0"
    );
    assert_eq!(
        pod.metric("sip_jump_host_sessions_total{method=\"key\"}"),
        "sip_jump_host_sessions_total{method=\"key\"} 1"
    );
    assert_eq!(
        pod.metric("sip_jump_host_refused_logins_total"),
        "sip_jump_host_refused_logins_total 1"
    );
    let log = pod.log();
    let opened = log.lines().find(|line| line.contains("session opened")).unwrap();
    let opened: serde_json::Value = serde_json::from_str(opened).unwrap();
    let fields = opened.to_string();
    assert!(
        fields.contains(&ana.fingerprint()) && fields.contains("127."),
        "{fields}"
    );
}

#[tokio::test]
async fn a_closed_session_is_logged_with_its_duration() {
    if !possible() {
        return;
    }
    let ana = Key::new("ana");
    let pod = Pod::start(&Desired::with_key(&ana)).await;
    let began = Instant::now();
    let mut open = session(&pod, &ana);
    pod.logs("session opened");
    let least = Instant::now();
    thread::sleep(Duration::from_millis(2_100));
    let least = least.elapsed().as_secs();
    drop(open.stdin.take());
    assert!(open.wait().unwrap().success());
    pod.logs("session closed");
    let most = began.elapsed().as_secs();
    let log = pod.log();
    let closed = log.lines().find(|line| line.contains("session closed")).unwrap();
    let closed: serde_json::Value = serde_json::from_str(closed).unwrap();
    let seconds = closed["seconds"].as_u64();
    assert!(
        seconds.is_some_and(|seconds| (least..=most).contains(&seconds)),
        "{closed}"
    );
    assert_eq!(closed["key"], ana.fingerprint());
}

#[tokio::test]
async fn sessions_last_while_their_pod_terminates() {
    if !possible() {
        return;
    }
    let ana = Key::new("ana");
    let mut pod = Pod::start(&Desired::with_key(&ana)).await;
    let mut session = pod
        .ssh(&ana, &[])
        .arg("read line; echo $line")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    pod.logs("session opened");
    pod.terminate();
    let deadline = std::time::Instant::now() + crate::rig::PATIENCE;
    while pod.lets_in(&ana).is_ok() {
        assert!(
            std::time::Instant::now() < deadline,
            "new sessions are still opened"
        );
    }
    session.stdin.as_mut().unwrap().write_all(b"done\n").unwrap();
    assert_eq!(session.wait_with_output().unwrap().stdout, b"done\n");
    pod.ended_well();
}

#[tokio::test]
async fn a_login_under_way_when_the_pod_ends_is_let_in() {
    if !possible() {
        return;
    }
    let ana = Key::new("ana");
    let mut pod = Pod::start(&Desired::with_key(&ana)).await;
    let relay = Relay::start(pod.listens_at());
    let alias = format!("HostKeyAlias=[{}]:2222", pod.address);
    let port = relay.port.to_string();
    let session = pod
        .ssh(&ana, &["-p", &port, "-o", "HostName=127.0.0.1", "-o", &alias])
        .arg("echo in")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    relay.connected.recv_timeout(PATIENCE).unwrap();
    pod.terminate();
    takes_nobody(&pod);
    relay.open.send(()).unwrap();
    let output = session.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"in\n", "{output:?}");
    pod.ended_well();
    assert_eq!(pod.log().matches("session opened").count(), 1, "{}", pod.log());
    assert_eq!(pod.log().matches("session closed").count(), 1, "{}", pod.log());
}

#[tokio::test]
async fn session_whose_sshd_is_killed_is_reported_as_closed() {
    if !possible() {
        return;
    }
    let ana = Key::new("ana");
    let pod = Pod::start(&Desired::with_key(&ana)).await;
    // Every process of sshd but the one that listens.
    let kill = "for process in /proc/[0-9]*; do
        grep -qa '^sshd[^/]*: ubuntu' $process/cmdline && kill -KILL ${process#/proc/}
    done";
    let killed = pod.ssh(&ana, &[]).arg(kill).output().unwrap();
    assert!(!killed.status.success(), "{killed:?}");
    pod.logs("session closed");
    assert_eq!(pod.log().matches("session opened").count(), 1, "{}", pod.log());
    assert_eq!(pod.log().matches("session closed").count(), 1, "{}", pod.log());
    let metric = "sip_jump_host_open_sessions";
    assert_eq!(pod.metric(metric), format!("{metric} 0"));
}

#[tokio::test]
async fn every_session_that_opened_is_reported_as_closed() {
    if !possible() {
        return;
    }
    let ana = Key::new("ana");
    let mut pod = Pod::prepared(&["ubuntu:x:1000:1000::/home/ubuntu:/bin/sh"]);
    pod.drain_seconds = 1;
    pod.write(&Desired::with_key(&ana)).await;
    pod.run();
    pod.is_ready();
    let mut cut = [session(&pod, &ana), session(&pod, &ana)];
    pod.terminate();
    pod.ended_well();
    assert_eq!(pod.log().matches("session opened").count(), 2, "{}", pod.log());
    assert_eq!(pod.log().matches("session closed").count(), 2, "{}", pod.log());
    for session in &mut cut {
        session.wait().unwrap();
    }

    // Its users can end sshd: they run as it does. Which thread of the sidecar started it is not known.
    let mut pod = Pod::start(&Desired::with_key(&ana)).await;
    let mut cut = session(&pod, &ana);
    let _ = pod
        .ssh(&ana, &[])
        .arg("kill -KILL $(cat /proc/1/task/*/children)")
        .status();
    let log = pod.ended();
    cut.wait().unwrap();
    let (opened, closed) = ["opened", "closed"]
        .map(|what| log.matches(&format!("session {what}")).count())
        .into();
    assert!(opened >= 1, "{log}");
    assert_eq!(opened, closed, "{log}");
}
