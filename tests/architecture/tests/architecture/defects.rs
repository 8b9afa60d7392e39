//! The table of SIP's defects names every number, and for each a test that exists or why there is none.

use std::collections::BTreeSet;

use regex::Regex;

use crate::repository::{assert_none, functions, text};

const TABLE: &str = "docs/sip-defects.md";
const DEFECTS: u32 = 32;

#[test]
fn every_defect_of_sip_is_held_by_a_test_or_says_why_not() {
    let tests = functions(|path| path.starts_with("tests/site/") || path.starts_with("agents/"));
    assert_none(&faults(&text(TABLE).unwrap(), &tests));
}

fn faults(table: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let row = Regex::new(r"^\| (\d+) \| (.+) \| (.+) \|$").unwrap();
    let code = Regex::new(r"`(\w+)`").unwrap();
    let (mut findings, mut numbers, mut used) = (Vec::new(), Vec::new(), BTreeSet::new());
    for line in table.lines() {
        let Some((_, [number, _, held])) = row.captures(line).map(|found| found.extract()) else {
            continue;
        };
        numbers.push(number.parse::<u32>().unwrap());
        let names: Vec<&str> = code
            .captures_iter(held)
            .map(|found| found.extract::<1>().1[0])
            .collect();
        if names.is_empty() && !held.starts_with("Not about ") {
            findings.push(format!("{number}: no test, and no reason"));
        }
        for name in names {
            if !tests.contains(name) {
                findings.push(format!("{number}: there is no test {name}"));
            }
            let own = format!("defect_{:02}_", number.parse::<u32>().unwrap());
            if name.starts_with("defect_") && !name.starts_with(&own) {
                findings.push(format!("{number}: {name} is about another one"));
            }
            used.insert(name.to_owned());
        }
    }
    let expected: Vec<u32> = (1..=DEFECTS).collect();
    if numbers != expected {
        findings.push(format!("the numbers are {numbers:?}"));
    }
    let written = tests.iter().filter(|name| name.starts_with("defect_"));
    let unnamed = written.filter(|name| !used.contains(*name));
    findings.extend(unnamed.map(|name| format!("{name} is not in the table")));
    findings
}

#[test]
fn what_is_wrong_with_the_table_is_found() {
    let row = |number| format!("| {number} | It failed. | `defect_{number:02}_is_not_ours` |");
    let good = (1..=DEFECTS).map(row).collect::<Vec<_>>().join("\n");
    let tests: BTreeSet<String> = (1..=DEFECTS)
        .map(|number| format!("defect_{number:02}_is_not_ours"))
        .collect();
    let find = |table: &str| faults(table, &tests);
    assert_eq!(find(&good), [""; 0]);
    for (from, to, expected) in [
        ("| 7 |", "| 8 |", "the numbers are [1, 2, 3, 4, 5, 6, 8, 8, 9,"),
        (
            "`defect_07_is_not_ours`",
            "`defect_07_is`",
            "7: there is no test defect_07_is",
        ),
        (
            "`defect_07_is_not_ours`",
            "`defect_08_is_not_ours`",
            "7: defect_08_is_not_ours is about another one",
        ),
        ("`defect_07_is_not_ours`", "Later.", "7: no test, and no reason"),
        (
            "`defect_07_is_not_ours`",
            "Not about hosts.",
            "defect_07_is_not_ours is not in the table",
        ),
    ] {
        let found = find(&good.replace(from, to));
        assert!(
            found.iter().any(|fault| fault.starts_with(expected)),
            "{from} as {to}: {found:?}"
        );
    }
}
