use std::{fs, os::unix::fs::PermissionsExt as _};

use super::*;

/// Does not handle SIGHUP at first, misses the first one, and answers the second one as sshd does. A shell cannot handle a
/// signal that was ignored when it started, as under `nohup`; sshd can.
const LATE: &str = r#"#!/usr/bin/env -S --default-signal=HUP sh
[ "$1" = -t ] && exit 0
# sshd -D -e -f FILE
FILE=$4
touch "$FILE.started"
answer() { cp "$FILE" "$FILE.read"; echo 'Received SIGHUP; restarting.' >&2; }
sleep 2
trap 'trap answer HUP' HUP
while :; do sleep 0.1; done
"#;

/// Knows some options, and notes how it was started.
const NOTES: &str = r#"#!/bin/sh
case "$*" in UNKNOWN) echo "Bad configuration option" >&2; exit 255 ;; esac
[ "$1" = -t ] && exit 0
FILE=$4
shift 4
echo "$*" > "$FILE.new" && mv "$FILE.new" "$FILE.started"
while :; do sleep 0.1; done
"#;

#[tokio::test]
async fn sshd_is_told_what_its_version_knows() {
    let _turn = orphans::CHILD_LOCK.lock().await;
    let set = "SetEnv A=b";
    for (unknown, expected) in [
        (
            "none",
            format!("-o PerSourcePenalties no -o PermitListen none -o {set}"),
        ),
        ("*Penalties*", format!("-o PermitListen none -o {set}")),
        (
            "*Penalties*|*PermitListen*|*SetEnv*",
            "-o PermitUserEnvironment yes".to_owned(),
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let server = server(directory.path(), &NOTES.replace("UNKNOWN", unknown));
        let started = directory.path().join("config.started");
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(server.run(shutdown.clone()));
        let deadline = Instant::now() + Duration::from_mins(1);
        while !started.exists() {
            assert!(!running.is_finished(), "sshd has ended");
            assert!(Instant::now() < deadline, "sshd is not started");
            time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(fs::read_to_string(&started).unwrap().trim_end(), expected);
        let file = fs::read_to_string(directory.path().join(".ssh/environment"));
        assert_eq!(
            file.ok().as_deref(),
            unknown.contains("SetEnv").then_some("A=b\n")
        );
        shutdown.cancel();
        running.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn sshd_never_starts_without_an_option_it_could_not_check() {
    let _turn = orphans::CHILD_LOCK.lock().await;
    let directory = tempfile::tempdir().unwrap();
    let killed = "#!/bin/sh\ncase \"$*\" in *PermitListen*) kill -9 $$ ;; esac\n";
    let ended = server(directory.path(), killed)
        .run(CancellationToken::new())
        .await;
    assert_eq!(
        ended.unwrap_err().to_string(),
        "sshd has ended: signal: 9 (SIGKILL)"
    );
}

#[tokio::test]
async fn what_sshd_wrote_before_it_ended_is_observed() {
    const LOGINS: usize = 100;
    let _turn = orphans::CHILD_LOCK.lock().await;
    let directory = tempfile::tempdir().unwrap();
    let logins = format!(
        "#!/bin/sh\n[ \"$1\" = -t ] && exit 0\nfor port in $(seq {LOGINS}); do
            echo \"Accepted publickey for ubuntu from 192.0.2.1 port $port ssh2: ED25519 SHA256:a\" >&2
        done\n"
    );
    let server = server(directory.path(), &logins);
    let mut sessions = Sessions::new().unwrap();
    let ended = server.serve(&mut sessions, CancellationToken::new()).await;
    assert_eq!(ended.unwrap_err().to_string(), "sshd has ended: exit status: 0");
    assert_eq!(sessions.open(), LOGINS);
}

/// A program that plays sshd, with a configuration in the file `config`.
fn server(directory: &Path, program: &str) -> Server {
    let (path, config) = (directory.join("sshd"), directory.join("config"));
    fs::write(&path, program).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&config, "first").unwrap();
    fs::create_dir(directory.join(".ssh")).unwrap();
    Server {
        program: path,
        config,
        home: directory.to_owned(),
        environment: Environment::new([("A", "b".to_owned())].into_iter()),
        metrics: Metrics::default(),
        report: watch::channel(Report::default()).0,
        drain: Duration::ZERO,
    }
}

#[tokio::test]
async fn a_change_at_start_is_read_once_sshd_handles_signals() {
    let _turn = orphans::CHILD_LOCK.lock().await;
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), LATE);
    let config = server.config.clone();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(server.run(shutdown.clone()));
    let beside = |name: &str| fs::read_to_string(directory.path().join(name));
    let until = async |is: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_mins(1);
        while !is() {
            assert!(!running.is_finished(), "sshd has ended");
            assert!(Instant::now() < deadline, "the change is not read");
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    until(&|| beside("config.started").is_ok()).await;
    fs::write(&config, "second").unwrap();
    until(&|| beside("config.read").is_ok_and(|read| read == "second")).await;
    shutdown.cancel();
    running.await.unwrap().unwrap();
}
