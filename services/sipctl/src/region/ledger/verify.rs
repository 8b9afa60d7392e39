//! Reads an export to its end, and says what is wrong with it.

use std::fs::File;
use std::io::BufReader;

use comfy_table::presets::UTF8_FULL;
use comfy_table::{ContentArrangement, Table};
use scheduler::ledger::check::{Checker, Report};
use scheduler::ledger::export::{Counts, FileError, Reader};

/// Reads a file entry by entry, and keeps none of them.
///
/// # Errors
/// When it is no whole export of a version that is known.
pub(super) fn verify(file: &File) -> Result<Report, FileError> {
    let mut checker = Checker::default();
    for entry in Reader::new(BufReader::new(file))? {
        checker.add(&entry?);
    }
    Ok(checker.finish())
}

/// What was found, for people.
pub(super) fn table(report: &Report) -> String {
    let Report {
        last,
        counts:
            Counts {
                histories: _,
                records,
                removals: _,
                fences,
                decisions,
            },
        sites,
        members,
        findings,
        found,
    } = report;
    let mut table = Table::new();
    table
        .load_style(UTF8_FULL)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(["what", "number"]);
    table.add_row(["last commit", &last.to_string()]);
    for (what, number) in [
        ("sites", sites),
        ("clusters", records),
        ("hosts held", members),
        ("fences", fences),
        ("decisions", decisions),
        ("findings", found),
    ] {
        table.add_row([what, &number.to_string()]);
    }
    let mut text = format!("{table}\n");
    for finding in findings {
        text.push_str("- ");
        text.push_str(&crate::one_line(finding, 1000));
        text.push('\n');
    }
    text
}
