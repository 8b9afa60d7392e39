//! Replays the fuzzer's seeds, and everything that it once found, and tries random changes of them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

use std::path::Path;

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

#[expect(unreachable_pub, reason = "the fuzzer's binaries are its other users")]
#[path = "../fuzz/targets.rs"]
mod targets;

/// Texts that mean something to JSON, YAML, a shell, or a configuration of ours.
const PIECES: [&str; 20] = [
    "\"",
    "\\n",
    "\\u0000",
    "${X}",
    "$(id)",
    "\u{202e}",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "-1",
    "1e400",
    "null",
    "&a",
    "*a",
    "\n",
    "::1",
    "127.0.0.1",
];

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/seeds")
        .join(target);
    let seeds = std::fs::read_dir(seeds).unwrap();
    let seeds: Vec<_> = seeds
        .map(|seed| std::fs::read(seed.unwrap().path()).unwrap())
        .collect();
    assert!(seeds.len() > 3, "{target} has seeds");
    seeds
}

/// The seeds as they are, then with random pieces in place of some of their bytes.
fn break_nothing(target: &str, run: fn(&[u8])) {
    let seeds = seeds(target);
    for seed in &seeds {
        run(seed);
    }
    let change = (
        any::<prop::sample::Index>(),
        0..24_usize,
        prop::sample::select(&PIECES[..]),
    );
    let changed = (prop::sample::select(seeds), prop::collection::vec(change, 1..6));
    let run = TestRunner::new(Config::with_cases(2_000)).run(&changed, |(mut text, changes)| {
        for (at, removed, piece) in changes {
            let at = at.index(text.len() + 1);
            let end = text.len().min(at + removed);
            text.splice(at..end, piece.bytes());
        }
        run(&text);
        Ok(())
    });
    run.unwrap();
}

#[test]
fn no_sipcluster_breaks_the_parser() {
    break_nothing("sip_cluster", targets::sip_cluster);
}

#[test]
fn no_network_data_breaks_the_parser() {
    break_nothing("network_data", targets::network_data);
}
