//! The reference of metrics lists exactly those of the code, and their names follow Prometheus's conventions.

use std::collections::BTreeSet;

use regex::Regex;

use crate::repository::{assert_none, files_ending, text};

/// Sections of the reference, by the prefix of their metrics.
const PREFIXES: [&str; 8] = [
    "sip_scheduler_",
    "sip_agent_",
    "sip_cluster_agent_",
    "sip_dex_agent_",
    "sip_haproxy_sidecar_",
    "sip_jump_host_",
    "sip_power_",
    "sip_tls_",
];

/// A row of the reference.
struct Row {
    name: String,
    labels: String,
    kind: String,
    help: String,
}

fn rows() -> Vec<Row> {
    let row = Regex::new(r"(?m)^\| `([^`{]+)(\{[^`]*\})?` \| (\w+) \| (.+) \|$").unwrap();
    let document = text("docs/metrics.md").unwrap();
    let rows = row.captures_iter(&document).map(|found| Row {
        name: found[1].to_owned(),
        labels: found.get(2).map_or("", |labels| labels.as_str()).to_owned(),
        kind: found[3].to_owned(),
        help: found[4].to_owned(),
    });
    rows.collect()
}

#[test]
fn the_reference_lists_every_metric_and_no_other() {
    let definition = Regex::new(r#"Definition =\s*(?:Definition \{\s*name: |gauge\(\s*)"([^"]+)""#).unwrap();
    let defined: BTreeSet<String> = files_ending(".rs")
        .iter()
        .filter_map(|file| text(file))
        .flat_map(|source| {
            let names = definition.captures_iter(&source).map(|found| found[1].to_owned());
            names.collect::<Vec<_>>()
        })
        .collect();
    let documented: BTreeSet<String> = rows().into_iter().map(|row| row.name).collect();
    assert!(defined.len() > 30, "{defined:?}");
    assert_eq!(defined, documented);
}

#[test]
fn names_of_metrics_follow_the_conventions() {
    let plain = Regex::new(r"^[a-z_]+$").unwrap();
    let labels = Regex::new(r"^(\{[a-z_,]+\})?$").unwrap();
    let mut findings = Vec::new();
    for Row {
        name,
        labels: its,
        kind,
        help,
    } in rows()
    {
        let known = PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            || name == "sip_build_info"
            || name.starts_with("process_");
        let time = help.contains("seconds since 1970");
        let timestamp = name.ends_with("_timestamp_seconds") || name == "process_start_time_seconds";
        for (holds, rule) in [
            (known, "has a known prefix"),
            (plain.is_match(&name), "is in lower case"),
            (labels.is_match(&its), "has labels in lower case"),
            (
                name.ends_with("_total") == (kind == "counter"),
                "ends in _total as a counter",
            ),
            (
                name.ends_with("_info") == (kind == "info"),
                "ends in _info as an info",
            ),
            (time == timestamp, "ends in _timestamp_seconds as a time"),
            (!help.ends_with('.'), "is explained without a full stop"),
        ] {
            if !holds {
                findings.push(format!("{name}: not so: it {rule}"));
            }
        }
    }
    assert_none(&findings);
}

/// The sections are those of all programs, so this is what promtool finds in any of their scrapes.
#[test]
fn promtool_has_nothing_against_any_metric() {
    let label = Regex::new(r"[a-z_]+").unwrap();
    let scrape: Vec<String> = rows()
        .iter()
        .map(
            |Row {
                 name,
                 labels,
                 kind,
                 help,
             }| {
                let labels: Vec<_> = label
                    .find_iter(labels)
                    .map(|label| format!("{}=\"x\"", label.as_str()))
                    .collect();
                let head = |kind: &str| format!("# HELP {name} {help}.\n# TYPE {name} {kind}\n");
                if kind == "histogram" {
                    let plain = format!("{{{}}}", labels.join(","));
                    let bucket = [&labels[..], &["le=\"+Inf\"".to_owned()]].concat().join(",");
                    return format!(
                        "{}{name}_bucket{{{bucket}}} 1\n{name}_sum{plain} 1\n{name}_count{plain} 1\n",
                        head(kind)
                    );
                }
                let kind = if kind == "info" { "gauge" } else { kind };
                format!("{}{name}{{{}}} 1\n", head(kind), labels.join(","))
            },
        )
        .collect();
    sandbox::promtool::check_metrics(&scrape.concat()).unwrap();
}
