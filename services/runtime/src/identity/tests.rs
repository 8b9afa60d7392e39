//! What names somebody here and what does not.

use super::*;
use crate::error_chain::chain;
use crate::fixtures::{agent, name, realm};

#[test]
fn every_kind_of_caller_is_what_its_id_says() {
    let callers = [
        ("site/s1/agent/cluster", agent("cluster")),
        ("operator/ada", Caller::Operator { name: name("ada") }),
        (
            "reader/Grafana_2.x",
            Caller::Reader {
                name: name("Grafana_2.x"),
            },
        ),
        ("scheduler", Caller::Scheduler),
    ];
    for (path, caller) in callers {
        let uri = format!("spiffe://example.org/region/north/{path}");
        assert_eq!(realm().caller(&uri).unwrap(), caller);
        assert_eq!(realm().uri(&caller), uri);
        assert_eq!(caller.site().is_some(), path.starts_with("site/"));
    }
}

#[test]
fn a_foreign_id_is_refused_with_the_expected_form() {
    let long = format!("spiffe://example.org/region/north/operator/{}", "x".repeat(2048));
    let cases = [
        ("", "`` is not a SPIFFE id: cannot be empty"),
        (
            "https://example.org/region/north/scheduler",
            "scheme is missing or invalid",
        ),
        ("spiffe:///region/north/scheduler", "trust domain is missing"),
        (
            "spiffe://example.org/region/north/scheduler/",
            "cannot have a trailing slash",
        ),
        (
            "spiffe://example.org/region//scheduler",
            "cannot contain empty segments",
        ),
        (
            "spiffe://example.org/region/../region/north/scheduler",
            "cannot contain dot segments",
        ),
        (
            "spiffe://example.org/region/north/operator/a%20b",
            "path segment characters are limited",
        ),
        (
            "spiffe://example.org/region/north/scheduler?x=y",
            "path segment characters are limited",
        ),
        (
            "spiffe://example.com/region/north/scheduler",
            "belongs to trust domain `example.com`; expected `example.org`",
        ),
        (
            "spiffe://example.org/region/south/scheduler",
            "belongs to region `south`; expected `north`",
        ),
        (
            "spiffe://example.org/region/NORTH/scheduler",
            "belongs to region `NORTH`; expected `north`",
        ),
        ("spiffe://example.org", "has an unknown form"),
        ("spiffe://example.org/scheduler", "has an unknown form"),
        ("spiffe://example.org/region/north", "has an unknown form"),
        (
            "spiffe://example.org/region/north/Scheduler",
            "has an unknown form",
        ),
        (
            "spiffe://example.org/region/north/scheduler/1",
            "has an unknown form",
        ),
        (
            "spiffe://example.org/region/north/operator",
            "has an unknown form",
        ),
        (
            "spiffe://example.org/region/north/site/s1/operator/ada",
            "has an unknown form",
        ),
        (
            "spiffe://example.org/region/north/site/s1/agent/cluster/2",
            "has an unknown form",
        ),
        (long.as_str(), "at most 2048 bytes"),
    ];
    for (uri, reason) in cases {
        let text = chain(&realm().caller(uri).unwrap_err());
        assert!(text.contains(reason), "{uri}: {text}");
    }
}

#[test]
fn a_name_follows_the_rule_of_path_segments() {
    let longest = "x".repeat(253);
    for good in ["a", "A-1_b.c", "...", longest.as_str()] {
        assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
    }
    let too_long = "x".repeat(254);
    for bad in ["", ".", "..", "a/b", "a b", "\u{e4}", "a\n", too_long.as_str()] {
        let refusal = bad.parse::<Name>().unwrap_err().to_string();
        assert!(
            refusal.contains("must have 1 to 253 characters out of"),
            "{refusal}"
        );
    }
}

#[test]
fn bytes_that_are_no_certificate_are_refused() {
    for bytes in [&b""[..], b"\x30\x03\x02\x01\x00", b"-----BEGIN CERTIFICATE-----"] {
        let text = realm()
            .caller_of(&CertificateDer::from(bytes))
            .unwrap_err()
            .to_string();
        assert_eq!(text, "the certificate is not well-formed X.509");
    }
}
