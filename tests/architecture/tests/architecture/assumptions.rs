//! The table of assumptions about other components has for each a source with a version, and tests that exist.

use std::collections::BTreeSet;

use regex::Regex;

use crate::repository::{assert_none, functions, text};

const TABLE: &str = "docs/assumptions.md";

#[test]
fn every_assumption_has_a_source_and_tests_that_exist() {
    assert_none(&faults(&text(TABLE).unwrap(), &functions(|_| true)));
}

fn faults(table: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let row = Regex::new(r"^\| (.+) \| (.+) \| (.+) \| (.+) \|$").unwrap();
    let version = Regex::new(r"\d+\.\d+|commit [0-9a-f]{7}").unwrap();
    let test = Regex::new(r"`([a-z0-9]+(?:_[a-z0-9]+)+)`").unwrap();
    let (mut findings, mut rows, mut has_version) = (Vec::new(), 0, false);
    for (line, content) in (1..).zip(table.lines()) {
        let Some((_, [component, _, source, held])) = row.captures(content).map(|found| found.extract())
        else {
            continue;
        };
        if component == "Component" {
            continue;
        }
        rows += 1;
        let refers = has_version && source.contains("the same");
        has_version = version.is_match(source) || refers;
        if !has_version {
            findings.push(format!("{TABLE}:{line}: the source has no version"));
        }
        let names: Vec<&str> = test
            .captures_iter(held)
            .map(|found| found.extract::<1>().1[0])
            .collect();
        if names.is_empty() {
            findings.push(format!("{TABLE}:{line}: no test"));
        }
        let missing = names.into_iter().filter(|name| !tests.contains(*name));
        findings.extend(missing.map(|name| format!("{TABLE}:{line}: there is no test {name}")));
    }
    if rows == 0 {
        findings.push(format!("{TABLE}: no rows"));
    }
    findings
}

#[test]
fn what_is_wrong_with_the_assumptions_is_found() {
    let good = "| Component | Assumption | Source | Test |\n\
                |---|---|---|---|\n\
                | CAPM3 | It waits. | `wait`, v1.13.2 | `it_waits` |\n\
                | CAPM3 | It claims. | in the same file | `it_claims`, never twice |";
    let tests = BTreeSet::from(["it_waits".to_owned(), "it_claims".to_owned()]);
    assert_eq!(faults(good, &tests), [""; 0]);
    for (from, to, line, expected) in [
        ("`wait`, v1.13.2", "seen", 3, "the source has no version"),
        (
            "in the same file",
            "its documentation",
            4,
            "the source has no version",
        ),
        ("`it_claims`", "`it_takes`", 4, "there is no test it_takes"),
        ("`it_claims`, never twice", "none", 4, "no test"),
    ] {
        let found = faults(&good.replace(from, to), &tests);
        let expected = format!("{TABLE}:{line}: {expected}");
        assert!(found.contains(&expected), "{from} as {to}: {found:?}");
    }
    assert_eq!(faults("", &tests), ["docs/assumptions.md: no rows"]);
}
