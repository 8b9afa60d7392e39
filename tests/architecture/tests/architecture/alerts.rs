//! Alerts name metrics that the programs have, and fire when they should.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

use crate::repository::{assert_none, files_ending, text};

const RULES: &str = "deploy/monitoring/prometheusrule.yaml";
/// Unit tests of alerts, for promtool.
const TESTS: &str = "tests/architecture/alerts.yaml";

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

#[test]
fn alerts_fire_when_they_should_and_not_before() {
    let object: Value = serde_saphyr::from_str(&text(RULES).unwrap()).unwrap();
    let tests = text(TESTS).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let rules = serde_saphyr::to_string(&object["spec"]).unwrap();
    std::fs::write(directory.path().join("rules.yaml"), rules).unwrap();
    let file = directory.path().join("tests.yaml");
    std::fs::write(&file, &tests).unwrap();

    sandbox::promtool::test_rules(&file).unwrap();

    // One case in which it fires, and one in which it does not.
    let tests: Value = serde_saphyr::from_str(&tests).unwrap();
    let groups = object["spec"]["groups"].as_array().unwrap().iter();
    let alerts = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let cases: Vec<&Value> = tests["tests"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|test| test["alert_rule_test"].as_array().unwrap())
        .collect();
    for alert in alerts.map(|rule| &rule["alert"]) {
        let own = || cases.iter().filter(|case| case["alertname"] == *alert);
        let fires = |case: &&&Value| case.get("exp_alerts").is_some();
        assert!(own().any(|case| fires(&case)), "{TESTS}: {alert} never fires");
        assert!(!own().all(|case| fires(&case)), "{TESTS}: {alert} always fires");
    }
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
