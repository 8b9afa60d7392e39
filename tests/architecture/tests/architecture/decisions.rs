//! Records of decisions have the form of `docs/decisions/template.md`.

use regex::Regex;

use crate::{
    markdown::Document,
    repository::{assert_none, files_ending, text},
};

const FOLDER: &str = "docs/decisions/";
const TEMPLATE: &str = "docs/decisions/template.md";

#[test]
fn every_record_of_a_decision_is_well_formed() {
    let records: Vec<String> = files_ending(".md")
        .into_iter()
        .filter(|path| path.starts_with(FOLDER) && path != TEMPLATE)
        .collect();
    assert!(!records.is_empty(), "there is no record in {FOLDER}");
    let template = sections(&crate::markdown::parse(TEMPLATE, &text(TEMPLATE).unwrap()));

    let findings: Vec<String> = records
        .iter()
        .flat_map(|path| faults(path, &text(path).unwrap_or_default(), &template))
        .collect();

    assert_none(&findings);
}

fn sections(document: &Document) -> Vec<String> {
    let second = document.headings.iter().filter(|(level, _)| *level == 2);
    second.map(|(_, title)| title.clone()).collect()
}

/// What is wrong with a record: its name, title, date, status or sections.
fn faults(path: &str, content: &str, template: &[String]) -> Vec<String> {
    let document = crate::markdown::parse(path, content);
    let named = Regex::new(r"^(\d{4}-\d{2}-\d{2})-[a-z0-9]+(?:-[a-z0-9]+)*\.md$").unwrap();
    let status = Regex::new(r"(?m)^- Status: (?:proposed|accepted|superseded by \[.+\]\(.+\))$").unwrap();
    let name = path.strip_prefix(FOLDER).unwrap_or(path);
    let date = named.captures(name).map(|found| found[1].to_owned());
    let checks = [
        (
            date.as_ref()
                .is_some_and(|date| date.parse::<jiff::civil::Date>().is_ok()),
            "its name is not YYYY-MM-DD-some-words.md".to_owned(),
        ),
        (
            date.is_none_or(|date| content.lines().any(|line| line == format!("- Date: {date}"))),
            "it has no line `- Date:` with the date of its name".to_owned(),
        ),
        (
            status.is_match(content),
            "it has no line `- Status: proposed`, `accepted` or `superseded by [..](..)`".to_owned(),
        ),
        (
            document.headings.iter().filter(|(level, _)| *level == 1).count() == 1,
            "it has not one title".to_owned(),
        ),
        (
            sections(&document) == template,
            format!("its sections are not {}", template.join(", ")),
        ),
    ];
    checks
        .into_iter()
        .filter(|(holds, _)| !holds)
        .map(|(_, fault)| format!("{path}: {fault}"))
        .collect()
}

#[test]
fn each_fault_of_a_record_is_found() {
    let template = ["Context", "Decision"].map(str::to_owned);
    let good = "# Do it\n\n- Date: 2026-02-03\n- Status: accepted\n\n## Context\n\nx\n\n## Decision\n\ny\n";
    let path = "docs/decisions/2026-02-03-do-it.md";
    let cases = [
        (path, good.to_owned(), ""),
        (
            path,
            good.replace("accepted", "superseded by [other](2026-02-04-other.md)"),
            "",
        ),
        ("docs/decisions/0007-do-it.md", good.to_owned(), "its name is not"),
        (
            "docs/decisions/2026-13-03-do-it.md",
            good.to_owned(),
            "its name is not",
        ),
        (path, good.replace("02-03", "02-04"), "it has no line `- Date:`"),
        (
            path,
            good.replace("accepted", "fine"),
            "it has no line `- Status:",
        ),
        (path, good.replace("# Do it", "Do it"), "it has not one title"),
        (
            path,
            good.replace("## Decision", "## More"),
            "its sections are not Context, Decision",
        ),
    ];

    for (path, content, expected) in cases {
        let found = faults(path, &content, &template);
        match found.first() {
            None => assert_eq!(expected, "", "{content}"),
            Some(fault) => assert!(
                !expected.is_empty() && fault.contains(expected),
                "{found:?}, expected {expected:?}"
            ),
        }
    }
}
