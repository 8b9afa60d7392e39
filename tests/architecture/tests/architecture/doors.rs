//! Protobuf ends at the door: what decides and remembers names none of its types.

use regex::Regex;

use crate::repository::{assert_none, files_ending, text};

/// Files and folders of the scheduler that know no encoding.
const INSIDE: [&str; 6] = [
    "services/scheduler/src/observed",
    "services/scheduler/src/record",
    "services/scheduler/src/region",
    "services/scheduler/src/site",
    "services/scheduler/src/spec",
    "services/scheduler/src/ledger/decision",
];

#[test]
fn the_scheduler_has_no_protobuf_inside() {
    let inside = |path: &String| {
        INSIDE.iter().any(|inside| {
            let rest = path.strip_prefix(inside);
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        })
    };
    let sources: Vec<(String, String)> = files_ending(".rs")
        .into_iter()
        .filter(inside)
        .map(|path| {
            let content = text(&path).unwrap_or_default();
            (path, content)
        })
        .collect();
    for inside in INSIDE {
        let exists = sources.iter().any(|(path, _)| path.starts_with(inside));
        assert!(exists, "there is no {inside}");
    }

    assert_none(&protobuf(sources));
}

/// Lines of code that name protobuf, or what converts it.
fn protobuf(sources: impl IntoIterator<Item = (String, String)>) -> Vec<String> {
    let named = Regex::new(r"\b(?:proto|sip_proto|prost|prost_types|convert)::|\bconvert\b\s*[,;}]").unwrap();
    let mut findings = Vec::new();
    for (path, content) in sources {
        let lines = content.lines().enumerate();
        let code = lines.filter(|(_, line)| !line.trim_start().starts_with("//"));
        let found = code.filter(|(_, line)| named.is_match(line));
        findings.extend(
            found.map(|(index, line)| {
                format!("{path}:{}: protobuf past the door: {}", index + 1, line.trim())
            }),
        );
    }
    findings
}

#[test]
fn protobuf_is_found_in_code_only() {
    let found = |line: &str| protobuf([("a.rs".to_owned(), line.to_owned())]).len();
    assert_eq!(found("use proto::inventory::v1 as wire;"), 1);
    assert_eq!(found("    let id = convert::host_id(host);"), 1);
    assert_eq!(found("    convert,"), 1);
    assert_eq!(found("/// Only [`crate::convert`] builds it.\n//! proto::x"), 0);
    assert_eq!(found("use crate::observed::Host;"), 0);
}
