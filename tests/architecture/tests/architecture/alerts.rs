//! Alerts name metrics that the programs have.

use std::collections::BTreeSet;

use regex::Regex;

use crate::repository::{assert_none, files_ending, text};

const RULES: &str = "deploy/monitoring/prometheusrule.yaml";

#[test]
fn every_metric_of_an_alert_is_registered_by_a_program() {
    let sources: Vec<String> = files_ending(".rs")
        .into_iter()
        .filter(|path| path.starts_with("services/") || path.starts_with("agents/"))
        .filter_map(|path| text(&path))
        .collect();
    let metrics = metrics(&text(RULES).unwrap_or_default());
    assert!(metrics.len() > 4, "{metrics:?}");

    let unknown = metrics.into_iter().filter(|metric| {
        // Tables of definitions have the whole name; a registry appends the suffix of counters.
        let registered = [metric.as_str(), metric.strip_suffix("_total").unwrap_or(metric)];
        let quoted = registered.map(|name| format!("\"{name}\""));
        !sources
            .iter()
            .any(|source| quoted.iter().any(|name| source.contains(name)))
    });

    assert_none(
        &unknown
            .map(|metric| format!("{RULES}: no program registers {metric}"))
            .collect::<Vec<_>>(),
    );
}

/// Names before a selector.
fn metrics(rules: &str) -> BTreeSet<String> {
    let metric = Regex::new(r"([a-z][a-z0-9_]*)\{[a-z]+!?=").unwrap();
    metric
        .captures_iter(rules)
        .map(|found| found[1].to_owned())
        .collect()
}

#[test]
fn a_metric_is_what_stands_before_a_selector() {
    let found = metrics(
        "expr: sum by (call) (rate(calls_total{code=\"OK\"}[1m])) > x{y!=\"z\"} # {{ $labels.call }}",
    );

    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["calls_total", "x"]);
}
