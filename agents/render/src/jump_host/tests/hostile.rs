//! Hostile keys and names never make one more line, and never another meaning: real sshd and ssh read the files back.
//!
//! `SOAK_HOSTILE` is the number of texts.

use std::io::Write as _;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::fixtures::{KEY, Scene, ssh_reads, sshd_reads, value};
use crate::jump_host::authorized_keys::{Authority, AuthorizedKey};
use crate::jump_host::files::{SSH_CONFIG, SSHD_CONFIG};
use crate::jump_host::nodes::Node;

fn cases() -> u32 {
    let cases = std::env::var("SOAK_HOSTILE").ok();
    cases.and_then(|cases| cases.parse().ok()).unwrap_or(400)
}

fn config(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    }
}

/// Bits of lines that mean something to OpenSSH, and whatever else there is.
fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(KEY.to_owned()),
        Just("ssh-ed25519 ".to_owned()),
        Just("AAAAC3NzaC1lZDI1NTE5AAAAIHkYbTUdYkDv2VvVb4rB1V9s9yq8VxC0xZ7Tq9m2QyZq".to_owned()),
        Just("\n".to_owned()),
        Just("\r".to_owned()),
        Just("\0".to_owned()),
        Just("\u{2028}".to_owned()),
        Just("\u{85}".to_owned()),
        Just("\"".to_owned()),
        Just("\\".to_owned()),
        Just(" ".to_owned()),
        Just(",".to_owned()),
        Just("#".to_owned()),
        Just("Host *\n  ProxyCommand sh".to_owned()),
        Just("PermitRootLogin yes".to_owned()),
        Just("command=\"sh\"".to_owned()),
        Just("environment=\"LD_PRELOAD=/x\"".to_owned()),
        Just("cert-authority".to_owned()),
        Just("restrict".to_owned()),
        Just("from=\"10.0.0.0/8\"".to_owned()),
        Just("permitopen=\"a:1\"".to_owned()),
        Just("expiry-time=\"20270101\"".to_owned()),
        any::<String>(),
        "[a-z0-9.-]{1,12}",
    ]
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(fragment(), 0..6).prop_map(|parts| parts.concat())
}

/// Whether ssh-keygen reads exactly one key from each line: it reads lines of `authorized_keys` as sshd does.
fn keys_that_ssh_keygen_finds(lines: &str) -> usize {
    let mut command = Command::new("ssh-keygen");
    command.args(["-l", "-f", "-"]).stdin(Stdio::piped());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().count()
}

proptest! {
    #![proptest_config(config(cases()))]

    #[test]
    fn a_key_is_one_line_with_one_key(text in text()) {
        if let Ok(key) = AuthorizedKey::parse(&text) {
            let line = key.to_string();
            prop_assert!(!line.contains(char::is_control), "{line:?}");
            for forbidden in ["command=", "environment=", "cert-authority"] {
                let options = line.split("ssh-ed25519 ").next().unwrap_or_default();
                prop_assert!(!options.contains(forbidden), "{line:?}");
            }
            // It is read again as what it is.
            let again = AuthorizedKey::parse(&line).unwrap();
            prop_assert_eq!(again.to_string(), line);
        }
        if let Ok(authority) = Authority::parse(&text) {
            prop_assert!(authority.to_string().starts_with("ssh-ed25519 AAAA"));
        }
    }
}

proptest! {
    // A process is started for each hundred.
    #![proptest_config(config(cases() / 100))]

    #[test]
    fn ssh_keygen_finds_as_many_keys_as_were_accepted(texts in proptest::collection::vec(text(), 1..200)) {
        let keys: Vec<AuthorizedKey> = texts.iter().filter_map(|text| AuthorizedKey::parse(text).ok()).collect();
        let mut scene = Scene::new();
        scene.keys.extend(keys);
        let files = scene.plan().files();
        let lines = &files[crate::jump_host::files::AUTHORIZED_KEYS];
        prop_assert_eq!(lines.lines().count(), scene.keys.len());
        prop_assert_eq!(keys_that_ssh_keygen_finds(lines), scene.keys.len(), "{}", lines);
    }

    #[test]
    fn hostile_names_change_no_other_line(names in proptest::collection::vec((text(), text()), 1..200)) {
        let mut scene = Scene::new();
        let plain = scene.plan().files();
        let accepted: Vec<Node> = names
            .iter()
            .filter_map(|(namespace, name)| Node::new(namespace, name, [192, 0, 2, 99].into(), false))
            .collect();
        scene.nodes.extend(accepted);
        let files = scene.plan().files();
        let read = sshd_reads(&files[SSHD_CONFIG]);
        let mut before = sshd_reads(&plain[SSHD_CONFIG]);
        // The addresses alone may differ, and where the test has its host keys.
        let differs = |key: &str| ["permitopen", "hostkey"].contains(&key);
        before.retain(|(key, _)| !differs(key));
        let after: Vec<_> = read.into_iter().filter(|(key, _)| !differs(key)).collect();
        prop_assert_eq!(before, after);
        let elsewhere = ssh_reads(&files[SSH_CONFIG], "elsewhere.example");
        prop_assert_eq!(elsewhere, ssh_reads(&plain[SSH_CONFIG], "elsewhere.example"));
        let known = ssh_reads(&files[SSH_CONFIG], "spare/node-3");
        prop_assert_eq!(value(&known, "proxycommand"), "");
    }
}
