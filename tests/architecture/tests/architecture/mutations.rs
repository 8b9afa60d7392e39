//! The patches by which `make mutants` leaves rules out of the decision apply to the present sources.

use std::{fs, path::Path, process::Command};

use crate::repository::{assert_none, files_ending, root};

/// Where they are, each with the rule that it leaves out as its first line.
const FOLDER: &str = "services/placement/mutations/";

#[test]
fn every_mutation_of_the_decision_applies() {
    let patches = files_ending(".patch");
    let patches: Vec<&String> = patches.iter().filter(|path| path.starts_with(FOLDER)).collect();
    assert!(patches.len() >= 10, "{patches:?}");

    let faults = patches.iter().filter_map(|path| fault(&root().join(path)));
    assert_none(&faults.collect::<Vec<_>>());
}

fn fault(patch: &Path) -> Option<String> {
    let text = fs::read_to_string(patch).unwrap();
    let named = text.lines().next().is_some_and(|rule| rule.ends_with('.'));
    let checked = Command::new("git")
        .args(["apply", "--check"])
        .arg(patch)
        .env("LC_ALL", "C")
        .current_dir(root())
        .output()
        .expect("git runs");
    let applies = checked.status.success();
    if applies && named {
        return None;
    }
    let fault = if applies {
        "its first line does not state the rule".to_owned()
    } else {
        String::from_utf8_lossy(&checked.stderr).into_owned()
    };
    Some(format!("{}: {fault}", patch.display()))
}

#[test]
fn a_mutation_of_other_sources_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let patch = folder.path().join("rule.patch");
    let change = "--- a/rustfmt.toml\n+++ b/rustfmt.toml\n@@ -1,2 +1,2 @@\n-max_width = 110\n+max_width = 100\n \
                  use_field_init_shorthand = true\n";
    let other = change.replace("-max_width = 110", "-max_width = 109");
    for (text, expected) in [
        (format!("Lines have a width.\n{change}"), None),
        (change.to_owned(), Some("its first line does not state the rule")),
        (
            format!("Lines have a width.\n{other}"),
            Some("patch does not apply"),
        ),
    ] {
        fs::write(&patch, text).unwrap();
        let found = fault(&patch);
        let is_expected = match (&found, expected) {
            (Some(found), Some(expected)) => found.contains(expected),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        assert!(is_expected, "{found:?}, expected {expected:?}");
    }
}
