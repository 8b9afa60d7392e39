//! Commands that a document shows work, and print what the document shows.
//!
//! Every fenced block of language `console` is read. A line that begins with `$ ` is a command; the lines after it are
//! what it prints, shortened where a line is `...`, and with `…` for text that differs from run to run.
//!
//! | command | how it is held |
//! |---|---|
//! | `make demo` | its program is run, and the output compared |
//! | `make plan` | it is run, and the output compared |
//! | `make`, `cargo` | targets, packages and programs exist |
//! | `kubectl`, `grpcurl`, `sipctl` | run in a site like the demonstration's, in the order of the document; must succeed; output compared |
//!
//! Any other command is a finding: say here how it is held.

mod console;
mod names;
mod output;
mod site;

use std::process::{Command, Stdio};

use sandbox::programs;

use crate::{
    markdown,
    repository::{assert_none, root},
};
use console::{Kind, Transcript};

fn all() -> Vec<Transcript> {
    let mut shown = Vec::new();
    for document in markdown::documents() {
        shown.extend(console::read(&document).unwrap_or_else(|fault| panic!("{fault}")));
    }
    shown
}

#[test]
fn every_target_package_and_program_in_a_document_exists() {
    let known = names::Known::load();

    let findings: Vec<String> = all()
        .iter()
        .filter_map(|shown| {
            let fault = match console::kind(&shown.command)? {
                Kind::Demo => names::make(&["demo".to_owned()]),
                Kind::Plan => names::make(&["plan".to_owned()]),
                Kind::Make(targets) => names::make(&targets),
                Kind::Cargo(arguments) => known.cargo(&arguments),
                Kind::Site => None,
                Kind::Unknown(program) => Some(format!("nothing says how a command of {program:?} is held")),
            }?;
            Some(format!("{}: {}: {fault}", shown.place, shown.command))
        })
        .collect();

    assert_none(&findings);
}

/// The commands of a kind that documents show with their output: at least one.
fn shown_with_output(kind: &Kind) -> Vec<Transcript> {
    let mut shown = all();
    shown.retain(|shown| console::kind(&shown.command).as_ref() == Some(kind) && !shown.output.is_empty());
    assert!(
        !shown.is_empty(),
        "no document shows what a command of {kind:?} prints"
    );
    shown
}

#[test]
fn a_plan_from_files_prints_what_documents_show() {
    let run = Command::new("make")
        .arg("plan")
        // This test may run under make, whose flags are not for this one.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        // Nor is the linter in the place of the compiler.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .stdin(Stdio::null())
        .current_dir(root())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{printed}\n{errors}");
    assert!(!errors.contains("warning:"), "{errors}");

    let shown = shown_with_output(&Kind::Plan);
    let findings: Vec<String> = shown
        .iter()
        .filter_map(|shown| output::difference(shown, &printed))
        .collect();

    assert_none(&findings);
}

#[test]
fn the_demonstration_prints_what_documents_show_of_it() {
    let demonstrations = shown_with_output(&Kind::Demo);
    let run = Command::new(programs::path("sip-sandbox").unwrap())
        .arg("demo")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    // Progress is on standard error, and done before the report begins.
    let printed = format!(
        "{}{}",
        String::from_utf8_lossy(&run.stderr),
        String::from_utf8_lossy(&run.stdout)
    );
    assert!(run.status.success(), "{printed}");

    let findings: Vec<String> = demonstrations
        .iter()
        .filter_map(|shown| output::difference(shown, &printed))
        .collect();

    assert_none(&findings);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_works_in_a_real_site_and_prints_what_documents_show() {
    let tour: Vec<Transcript> = all()
        .into_iter()
        .filter(|shown| console::kind(&shown.command) == Some(Kind::Site))
        .collect();
    for program in ["kubectl", "grpcurl", "sipctl"] {
        assert!(
            tour.iter().any(|shown| shown.command.starts_with(program)),
            "no document shows {program}"
        );
    }
    let site = site::Stage::set().await;

    let mut findings = Vec::new();
    for shown in &tour {
        findings.extend(match site.run(&shown.command).await {
            Ok(printed) => output::difference(shown, &printed),
            Err(fault) => Some(format!("{}: {}\n{fault}", shown.place, shown.command)),
        });
    }

    assert_none(&findings);
}
