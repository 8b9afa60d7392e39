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

/// Knows the option or not, and notes how it was started.
const NOTES: &str = r#"#!/bin/sh
case "$*" in *PerSourcePenalties*) KNOWS || { echo "Bad configuration option: PerSourcePenalties" >&2; exit 255; } ;; esac
[ "$1" = -t ] && exit 0
echo "$1 $2 $3 FILE $5 $6" > "$4.new" && mv "$4.new" "$4.started"
while :; do sleep 0.1; done
"#;

#[tokio::test]
async fn penalties_are_off_where_sshd_has_them() {
    for (knows, expected) in [
        ("true", "-D -e -f FILE -o PerSourcePenalties=no"),
        ("false", "-D -e -f FILE"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let server = server(directory.path(), &NOTES.replace("KNOWS", knows));
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
        shutdown.cancel();
        running.await.unwrap().unwrap();
    }
}

/// A program that plays sshd, with a configuration in the file `config`.
fn server(directory: &Path, program: &str) -> Server {
    let (path, config) = (directory.join("sshd"), directory.join("config"));
    fs::write(&path, program).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&config, "first").unwrap();
    Server {
        program: path,
        config,
        metrics: Metrics::default(),
        report: watch::channel(Report::default()).0,
        drain: Duration::ZERO,
    }
}

#[tokio::test]
async fn a_change_at_start_is_read_once_sshd_handles_signals() {
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
