//! The minors of Kubernetes that the installation page names are those that tests run.

use regex::Regex;

use crate::repository::text;

const PAGE: &str = "docs/install.md";

/// The minor that a module of `tests/sandbox/tools/` builds, such as `1.36`.
fn built(module: &str) -> String {
    let file = format!("tests/sandbox/tools/{module}/go.mod");
    let text = text(&file).unwrap_or_else(|| panic!("there is no {file}"));
    let version = Regex::new(r"(?m)^(?:require)?\s*k8s\.io/kubernetes v(\d+\.\d+)\.\d+").unwrap();
    let found = version
        .captures(&text)
        .unwrap_or_else(|| panic!("{file} names no version"));
    found[1].to_owned()
}

#[test]
fn the_page_names_the_minors_of_kubernetes_that_tests_run() {
    let page = text(PAGE).unwrap();
    let sentence = Regex::new(r"Kubernetes (\d+\.\d+) or later \(the tests run (\d+\.\d+)").unwrap();
    let (_, [oldest, newest]) = sentence.captures(&page).unwrap().extract();
    let makefile = text("Makefile").unwrap();
    let tested = makefile
        .lines()
        .find_map(|line| line.strip_prefix("OLDEST_KUBERNETES := "));

    assert_eq!(tested, Some(oldest), "`make test-oldest`");
    assert_eq!(built(&format!("kubernetes-{oldest}")), oldest);
    assert_eq!(built("kubernetes"), newest);
}
