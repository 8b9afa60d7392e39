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

use std::{cell::Cell, env, fs, path::Path};

use proptest::{
    prelude::*,
    test_runner::{Config as Runs, TestRunner},
};
use targets::{Texts, dex_config, is_read_as_meant};

/// A text without control characters, as the door lets it in, that means something to YAML, JSON, a shell, HTML or a directory.
fn line() -> impl Strategy<Value = String> {
    let nasty = prop::sample::select(vec![
        "$HOME",
        "${HOME}",
        "$$",
        "$",
        "${",
        "}",
        "$1",
        "${DEX_DOLLAR}",
        "$DEX_DOLLAR",
        "\\",
        "\"",
        "'",
        ": ",
        " #",
        "- ",
        "{",
        "}",
        "[",
        "]",
        "&a",
        "*a",
        "!x",
        "|",
        ">",
        "%",
        "@",
        "`",
        "<<",
        "~",
        "null",
        "true",
        "0x1",
        "\\u0024",
        "\u{2028}",
        "\u{feff}",
        "\u{fffe}",
        "\u{1f600}",
        "é",
        "*)(uid=*",
        "<script>",
        "{{ .x }}",
        "---",
    ]);
    let part = prop_oneof![
        3 => nasty.prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[ -~]{0,8}",
    ];
    prop::collection::vec(part, 1..6).prop_map(|parts| {
        let text: String = parts
            .concat()
            .chars()
            .filter(|character| !character.is_control())
            .collect();
        let text: String = text.trim().chars().take(200).collect();
        format!("x{text}x")
    })
}

/// One filter, which may have parts that mean something to directories.
fn filter() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "(uid=*)",
        "(&(a=b)(!(c=d)))",
        r"(cn=\28\29\2a\5c)",
        "(cn=$HOME)",
        "(cn=\"'${HOME}$$)",
        "(cn=é\u{1f600})",
        "(cn=a: b # c)",
        // Not one filter: refused.
        "(uid=*))(|(uid=*",
        "uid=*",
        r"(cn=\)",
    ]);
    part.prop_map(str::to_owned)
}

fn host() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "ldap.example.org",
        "ldap.example.org:1636",
        "192.0.2.1:636",
        "[2001:db8::1]:636",
        // Not a host: refused.
        "ldap.example.org/$HOME",
        "${HOME}:636",
        "ldap.example.org:636 #",
    ]);
    part.prop_map(str::to_owned)
}

fn attribute() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["uid", "2.5.4.3", "x-y", "DN", "uid=*)(x", "$HOME"]);
    part.prop_map(str::to_owned)
}

fn hostname() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "sso.example.org",
        "a",
        "a.b-c.d",
        "$HOME",
        "a/../b",
        "a:1",
        "A",
    ]);
    part.prop_map(str::to_owned)
}

fn issuer() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "",
        "",
        "https://login.example.org/shop",
        "https://[2001:db8::1]:8443/dex",
        // Refused, or read as it is.
        "https://login.example.org/$HOME",
        "https://login.example.org/${HOME}",
        "https://$HOME/dex",
        "https://login.example.org/a: b",
        "https://login.example.org/\"'",
        "https://login.example.org/#a",
        "http://login.example.org/dex",
    ]);
    part.prop_map(str::to_owned)
}

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
fn what_dex_reads_is_what_was_meant() {
    let cases = env::var("SOAK_HOSTILE").ok().and_then(|cases| cases.parse().ok());
    let mut runner = TestRunner::new(Runs::with_cases(cases.unwrap_or(256)));
    let client = line().prop_map(|text| text.chars().filter(char::is_ascii).collect::<String>());
    let texts = (
        prop::array::uniform5(line()),
        client,
        filter(),
        host(),
        attribute(),
        hostname(),
        issuer(),
        control(),
    );
    let accepted = Cell::new(0_u32);
    // A failure prints its seed and its smallest case.
    runner
        .run(
            &texts,
            |(
                [name, base, account, password, prompt],
                client,
                filter,
                host,
                attribute,
                hostname,
                issuer,
                control,
            )| {
                let texts = Texts {
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
                };
                accepted.set(accepted.get() + u32::from(is_read_as_meant(&texts)));
                // The rest is refused for these five: without them everything else is accepted.
                let texts = Texts {
                    filter: "(uid=*)".to_owned(),
                    hostname: "sso.example.org".to_owned(),
                    host: "ldap.example.org".to_owned(),
                    attribute: "uid".to_owned(),
                    issuer: String::new(),
                    ..texts
                };
                prop_assert!(is_read_as_meant(&texts));
                let texts = Texts {
                    issuer: "https://login.example.org/shop".to_owned(),
                    ..texts
                };
                prop_assert!(!is_read_as_meant(&with_control(&texts, control)));
                Ok(())
            },
        )
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
