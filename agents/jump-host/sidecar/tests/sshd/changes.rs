//! Keys come and go while people work.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    keys::Key,
    rig::{Desired, Pod, possible},
};

/// Sessions that are open.
const SESSIONS: usize = 50;
/// Keys that are added, and then removed.
const KEYS: usize = 200;
/// A change is effective within this time.
const WITHIN: Duration = Duration::from_secs(10);

struct Session(Child);

impl Session {
    fn open(pod: &Pod, key: &Key) -> Self {
        let mut command = pod.ssh(key, &[]);
        command.arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// Whether what is sent comes back.
    fn echoes(&mut self, text: &str) -> bool {
        let Self(child) = self;
        let sent = writeln!(child.stdin.as_mut().unwrap(), "{text}");
        let mut line = String::new();
        let read = BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line);
        sent.is_ok() && read.is_ok() && line.trim_end() == text
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, begin: Instant, is: impl Fn() -> bool) {
    while !is() {
        assert!(begin.elapsed() < WITHIN, "{what} takes more than {WITHIN:?}");
        sleep(Duration::from_millis(50));
    }
    println!("{what}: effective after {:?}", begin.elapsed());
}

#[tokio::test]
async fn two_hundred_keys_change_under_fifty_sessions() {
    if !possible() {
        return;
    }
    let (ana, last) = (Key::new("ana"), Key::new("last"));
    let mut desired = Desired::with_key(&ana);
    let pod = Pod::start(&desired).await;
    // sshd takes few connections at once that have not logged in yet.
    let mut sessions: Vec<Session> = Vec::new();
    while sessions.len() < SESSIONS {
        let mut opened: Vec<_> = (0..5).map(|_| Session::open(&pod, &ana)).collect();
        assert!(
            opened.iter_mut().all(|session| session.echoes("opened")),
            "{}",
            pod.log()
        );
        sessions.append(&mut opened);
    }
    let made: Vec<String> = (0..KEYS - 1)
        .map(|index| format!("{} {index}", Key::new("k").public()))
        .collect();
    for key in &made {
        desired.keys.push(key.clone());
        pod.write(&desired).await;
    }
    desired.keys.push(last.public());
    let added = Instant::now();
    pod.write(&desired).await;
    until("a new key", added, || pod.lets_in(&last).is_ok());

    while desired.keys.len() > 1 {
        desired.keys.pop();
        pod.write(&desired).await;
    }
    let removed = Instant::now();
    until("the end of a key", removed, || pod.lets_in(&last).is_err());
    pod.lets_in(&ana).unwrap();

    // Nor does anybody lose a session whose key goes.
    desired.keys.clear();
    pod.write(&desired).await;
    until("the end of the last key", Instant::now(), || {
        pod.lets_in(&ana).is_err()
    });
    let cut = sessions
        .iter_mut()
        .filter_map(|session| (!session.echoes("still here")).then_some(()))
        .count();
    println!("{cut} of {} sessions were cut", sessions.len());
    assert_eq!(cut, 0, "sessions were cut: {}", pod.log());
}
