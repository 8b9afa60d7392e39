//! Who logged in is in the log and in the metrics.

use std::{io::Write as _, process::Stdio};

use crate::{
    keys::Key,
    rig::{Desired, Pod, possible},
};

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
    assert_eq!(pod.metric("jump_host_sessions_open"), "jump_host_sessions_open 0");
    assert_eq!(
        pod.metric("jump_host_sessions_total{method=\"Key\"}"),
        "jump_host_sessions_total{method=\"Key\"} 1"
    );
    assert_eq!(
        pod.metric("jump_host_logins_refused_total"),
        "jump_host_logins_refused_total 1"
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
async fn sessions_go_on_while_their_pod_ends() {
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
