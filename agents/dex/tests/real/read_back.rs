//! What Go's YAML and the types of Dex make of configurations with hostile texts, and not only a reader of our own.

use std::{
    env, fs,
    process::{Command, Stdio},
};

use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::TestRunner,
};
use render::dex::DOLLAR_VARIABLE;
use sandbox::{process::Group, tools};
use serde_json::Value;

use crate::{
    targets::{Texts, assert_dex_reads, render_config},
    texts::hostile,
};

/// Fields that 2.13 does not know.
const UNKNOWN: [&str; 2] = ["userMatchers/0/userAttr", "userMatchers/0/groupAttr"];

/// Texts that are accepted, and the configuration that is made of them.
fn configurations(count: usize) -> Vec<(Texts, String)> {
    let mut runner = TestRunner::default();
    let strategy = hostile();
    let mut found = Vec::new();
    while found.len() < count {
        let texts = strategy.new_tree(&mut runner).unwrap().current();
        // These are refused for something else than what is read.
        let texts = Texts {
            filter: r"(&(cn=a: b # c)(!(uid=\28$HOME\29*)))".to_owned(),
            hostname: "sso.example.org".to_owned(),
            host: "ldap.example.org:1636".to_owned(),
            attribute: "uid".to_owned(),
            issuer: String::new(),
            ..texts
        };
        let text = render_config(&texts).unwrap();
        found.push((texts, text));
    }
    found
}

#[test]
fn go_reads_hostile_texts_unchanged() {
    let count = env::var("SOAK_HOSTILE").ok().and_then(|count| count.parse().ok());
    let configurations = configurations(count.unwrap_or(2_000));
    let group = Group::new("read-back").unwrap();
    let input = group.directory().join("configurations");
    let lines: Vec<&str> = configurations.iter().map(|(_, text)| text.as_str()).collect();
    fs::write(&input, lines.join("\n")).unwrap();
    let read = Command::new(tools::path("dex-reads").unwrap())
        .env_clear()
        .envs([(DOLLAR_VARIABLE, "$"), ("HOME", "EXPANDED")])
        .stdin(Stdio::from(fs::File::open(&input).unwrap()))
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let read = String::from_utf8(read.stdout).unwrap();
    assert_eq!(read.lines().count(), configurations.len());
    for (line, (texts, _)) in read.lines().zip(&configurations) {
        let read: Value = serde_json::from_str(line).unwrap();
        assert_dex_reads(texts, &read["first"], &UNKNOWN);
        assert_dex_reads(texts, &read["later"], &[]);
    }
    println!(
        "{} configurations are read by Go as they were meant",
        configurations.len()
    );
}
