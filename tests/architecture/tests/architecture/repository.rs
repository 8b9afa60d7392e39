//! The files of the project: those that git knows.

use std::{collections::BTreeSet, fs, process::Command};

use regex::Regex;

pub(crate) use sandbox::repository::root;

/// Paths of all files, relative to the root and with `/`, in order.
pub(crate) fn files() -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output()
        .expect("git lists the files");
    assert!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut files: Vec<String> = output
        .stdout
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty())
        .map(|path| String::from_utf8(path.to_vec()).expect("paths are UTF-8"))
        // git still lists what was deleted and not committed yet.
        .filter(|path| root().join(path).is_file())
        .collect();
    files.sort();
    files
}

/// The paths of files whose name ends so.
pub(crate) fn files_ending(end: &str) -> Vec<String> {
    files().into_iter().filter(|path| path.ends_with(end)).collect()
}

/// The names of all functions in Rust files whose path is selected.
pub(crate) fn functions(is_selected: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let named = Regex::new(r"(?m)^\s*(?:async )?fn (\w+)\(").expect("the pattern is valid");
    let paths = files_ending(".rs").into_iter().filter(|path| is_selected(path));
    paths
        .filter_map(|path| text(&path))
        .flat_map(|source| {
            let names = named.captures_iter(&source);
            names
                .map(|found| found.extract::<1>().1[0].to_owned())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The content of a file that is text.
pub(crate) fn text(path: &str) -> Option<String> {
    let bytes = fs::read(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    String::from_utf8(bytes).ok()
}

/// Fails with all findings, one a line.
#[track_caller]
pub(crate) fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}
