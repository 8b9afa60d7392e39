//! The written account of a member's life and the code say the same.

use placement::life::{Counts, Stage, TRANSITIONS, Transition};

const PAGE: &str = include_str!("../../../docs/replacement.md");

fn row(stage: Stage) -> String {
    let Counts {
        place,
        quota,
        under_way,
        domain,
        release_order,
    } = stage.counts();
    let yes = |is: bool| if is { "yes" } else { "no" };
    let order = release_order.map_or_else(|| "never".to_owned(), |order| order.to_string());
    format!(
        "| {stage} | {} | {quota} | {} | {domain} | {order} |",
        yes(place),
        yes(under_way)
    )
}

#[test]
fn the_table_of_stages_is_that_of_the_code() {
    let expected: Vec<String> = Stage::ALL.into_iter().map(row).collect();
    assert_eq!(table("| Stage | Counts as wanted |"), expected);
}

#[test]
fn the_table_of_transitions_is_that_of_the_code() {
    let written: Vec<[String; 3]> = table("| From | To | When | Who |")
        .into_iter()
        .map(columns)
        .collect();
    let expected: Vec<[String; 3]> = TRANSITIONS.iter().map(Transition::columns).collect();
    assert_eq!(written, expected);
}

/// Without the column that says when.
fn columns(row: &str) -> [String; 3] {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    assert_eq!(cells.len(), 4, "{row}");
    [cells[0], cells[1], cells[3]].map(str::to_owned)
}

/// The rows below a heading.
fn table(heading: &str) -> Vec<&'static str> {
    let lines = PAGE.lines().skip_while(|line| !line.starts_with(heading)).skip(2);
    lines.take_while(|line| line.starts_with('|')).collect()
}
