//! The three forms of one plan, and the schema of the contract.

use std::path::{Path, PathBuf};

use placement::Namespace;
use sipctl::cli::Output;
use sipctl::command::print;
use sipctl::input::Input;
use sipctl::{Plan, files, plan};

pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// Four clusters on six hosts: one is placed, one partial, one refused, one invalid.
fn sample() -> Plan {
    let documents = files::documents(&[data("site")]).unwrap();
    let policy = files::policy(&data("policy.yaml")).unwrap();
    plan(&Input::new(documents, &Namespace::new("lab").unwrap(), policy).unwrap())
}

#[test]
fn the_table_shows_racks_as_columns_and_says_why_not() {
    insta::assert_snapshot!("table", print(&sample(), Output::Table).unwrap());
}

#[test]
fn the_json_is_the_contract() {
    insta::assert_snapshot!("json", print(&sample(), Output::Json).unwrap());
}

#[test]
fn the_yaml_says_the_same_as_the_json() {
    let plan = sample();
    let yaml = print(&plan, Output::Yaml).unwrap();
    let read: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(read, serde_json::to_value(plan.report()).unwrap());
    insta::assert_snapshot!("yaml", yaml);
}

#[test]
fn a_wide_site_is_printed_in_several_tables() {
    use crate::fixtures::{cluster, host, planned};
    let mut objects: Vec<_> = (0..8).map(|n| host(&format!("h{n}"), &format!("r{n}"))).collect();
    objects.push(cluster("wide", &[("Worker", 8)]));
    insta::assert_snapshot!("wide_table", print(&planned(&objects), Output::Table).unwrap());
}

#[test]
fn only_a_few_of_many_free_racks_are_printed() {
    use crate::fixtures::{cluster, host, planned};
    let mut objects: Vec<_> = (0..40)
        .map(|n| host(&format!("h{n}"), &format!("r{n}")))
        .collect();
    objects.push(cluster("huge", &[("Worker", 41)]));
    let table = print(&planned(&objects), Output::Table).unwrap();
    assert_eq!(table.matches("(1 free)").count(), 6, "{table}");
    assert!(table.contains("and 34 more domains with free hosts"), "{table}");
}

#[test]
fn the_schema_in_docs_is_that_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sipctl-plan.schema.json");
    let schema = serde_json::to_string_pretty(&sipctl::report::schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(
        written == schema,
        "docs/sipctl-plan.schema.json is not that of the types; UPDATE_SCHEMA=1 writes it again"
    );
}

#[test]
fn the_policy_page_lists_every_key_in_a_valid_example() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/site-policy.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, example) = page.split_once("```yaml\n").unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), example.split_once("```").unwrap().0).unwrap();
    let example = serde_json::to_value(files::policy(file.path()).unwrap()).unwrap();
    let none = serde_json::to_value(placement::Policy::default()).unwrap();
    for (key, none) in none.as_object().unwrap() {
        assert!(page.contains(&format!("\n| `{key}` |")), "{key} has no row");
        assert_ne!(example[key], *none, "the example has no {key}");
    }
}
