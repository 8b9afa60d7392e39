//! Hostile texts in every field of an identity provider: what Dex reads is what was meant.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

#[expect(unreachable_pub, reason = "the fuzzer's binary is its other user")]
#[path = "../fuzz/targets.rs"]
mod targets;

#[path = "hostile/texts.rs"]
mod texts;

use std::{cell::Cell, env, fs, path::Path};

use proptest::{
    prelude::*,
    test_runner::{Config as Runs, TestRunner},
};
use targets::{Texts, check_entry, dex_config};
use texts::hostile;

/// A character that ends a line or is none, and which text gets it where.
fn control() -> impl Strategy<Value = (char, usize, usize)> {
    let characters = prop::sample::select(vec![
        '\n', '\r', '\t', '\0', '\u{b}', '\u{1b}', '\u{7f}', '\u{85}',
    ]);
    (characters, 0..11_usize, 1..200_usize)
}

/// The same with such a character within one of the texts.
fn with_control(texts: &Texts, (character, which, place): (char, usize, usize)) -> Texts {
    let mut texts = texts.clone();
    let Texts {
        name,
        base,
        filter,
        account,
        client,
        password,
        prompt,
        hostname,
        host,
        attribute,
        issuer,
    } = &mut texts;
    let all = [
        name, base, filter, account, client, password, prompt, hostname, host, attribute, issuer,
    ];
    let Some(text) = all.into_iter().nth(which) else {
        return texts;
    };
    let mut characters: Vec<char> = text.chars().collect();
    // Not at an end: a line break at the end of a password is no part of it.
    let place = place.min(characters.len().saturating_sub(1));
    characters.insert(place, character);
    *text = characters.into_iter().collect();
    texts
}

#[test]
fn dex_reads_hostile_texts_unchanged() {
    let cases = env::var("SOAK_HOSTILE").ok().and_then(|cases| cases.parse().ok());
    let mut runner = TestRunner::new(Runs::with_cases(cases.unwrap_or(256)));
    let texts = (hostile(), control());
    let accepted = Cell::new(0_u32);
    // A failure prints its seed and its smallest case.
    runner
        .run(&texts, |(texts, control)| {
            accepted.set(accepted.get() + u32::from(check_entry(&texts)));
            // The rest is refused for these five: without them everything else is accepted.
            let texts = Texts {
                filter: "(uid=*)".to_owned(),
                hostname: "sso.example.org".to_owned(),
                host: "ldap.example.org".to_owned(),
                attribute: "uid".to_owned(),
                issuer: String::new(),
                ..texts
            };
            prop_assert!(check_entry(&texts));
            let texts = Texts {
                issuer: "https://login.example.org/shop".to_owned(),
                ..texts
            };
            prop_assert!(!check_entry(&with_control(&texts, control)));
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let cases = runner.config().cases;
    println!(
        "{cases} random providers, as many with other hosts and filters, of which {} are accepted, and as many with a \
         control character, of which none is",
        accepted.get()
    );
    assert!(accepted.get() > 0 && accepted.get() < cases);
}

#[test]
fn the_seeds_of_dex_config_break_nothing() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/dex_config");
    let mut replayed = 0;
    for seed in fs::read_dir(seeds).unwrap() {
        dex_config(&fs::read(seed.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed > 3);
}
