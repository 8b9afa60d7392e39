//! Whether what a `make` or `cargo` command names exists. They are not run here: most of them run the tests.

use std::{collections::BTreeSet, process::Command};

use cargo_metadata::MetadataCommand;

use crate::repository::root;

/// What cargo can be asked for in this workspace.
#[derive(Debug, Default)]
pub(super) struct Known {
    packages: BTreeSet<String>,
    programs: BTreeSet<(String, String)>,
    tests: BTreeSet<(String, String)>,
    subcommands: BTreeSet<String>,
}

/// The fault of a `make` command. Make itself says which targets it has; only those that name no file count, since for a
/// file that exists any name would do.
pub(super) fn make(targets: &[String]) -> Option<String> {
    let output = Command::new("make")
        .args(["--dry-run", "--print-data-base"])
        // This test may run under make, whose flags are not for this one.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .current_dir(root())
        .output()
        .expect("make runs");
    let described = String::from_utf8_lossy(&output.stdout);
    let phony = described.lines().find_map(|line| line.strip_prefix(".PHONY:"));
    let phony: BTreeSet<&str> = phony.unwrap_or_default().split_whitespace().collect();
    // `NAME=value` is a variable.
    let mut wanted = targets.iter().filter(|target| !target.contains('='));
    let missing = wanted.find(|target| !phony.contains(&***target))?;
    Some(format!("make has no target {missing:?}"))
}

impl Known {
    pub(super) fn load() -> Self {
        let metadata = MetadataCommand::new()
            .manifest_path(root().join("Cargo.toml"))
            .no_deps()
            .other_options(["--offline".to_owned()])
            .exec()
            .expect("cargo describes the workspace");
        let listed = Command::new(env!("CARGO"))
            .arg("--list")
            .output()
            .expect("cargo runs");
        let mut known = Self {
            subcommands: String::from_utf8_lossy(&listed.stdout)
                .lines()
                .filter_map(|line| {
                    line.strip_prefix("    ")?
                        .split_whitespace()
                        .next()
                        .map(str::to_owned)
                })
                .collect(),
            ..Self::default()
        };
        for package in metadata.packages {
            let name = package.name.to_string();
            for target in package.targets {
                if target.is_bin() {
                    known.programs.insert((name.clone(), target.name));
                } else if target.is_test() {
                    known.tests.insert((name.clone(), target.name));
                }
            }
            known.packages.insert(name);
        }
        known
    }

    /// The fault of a `cargo` command.
    pub(super) fn cargo(&self, arguments: &[String]) -> Option<String> {
        let arguments: Vec<&str> = arguments
            .iter()
            .map(|word| &**word)
            .take_while(|word| *word != "--")
            .collect();
        let after = |names: &[&str]| {
            let given = arguments.windows(2).find(|pair| names.contains(&pair[0]));
            given.map(|pair| pair[1].to_owned())
        };
        let subcommand = arguments.first().copied().unwrap_or_default();
        if !self.subcommands.contains(subcommand) {
            return Some(format!("cargo has no {subcommand:?}"));
        }
        let package = after(&["-p", "--package"]);
        if let Some(package) = package
            .as_ref()
            .filter(|package| !self.packages.contains(*package))
        {
            return Some(format!("there is no package {package:?}"));
        }
        let missing = |names: &[&str], targets: &BTreeSet<(String, String)>| {
            after(names).filter(|wanted| {
                let of_package = |of: &String| package.as_ref().is_none_or(|package| package == of);
                !targets.iter().any(|(of, name)| of_package(of) && name == wanted)
            })
        };
        missing(&["--bin"], &self.programs)
            .map(|name| format!("there is no program {name:?}"))
            .or_else(|| missing(&["--test"], &self.tests).map(|name| format!("there are no tests {name:?}")))
    }
}

#[test]
fn what_does_not_exist_is_named() {
    let known = Known::load();
    let cases = [
        ("run -p sip-api --bin crds -- deploy/crd", None),
        ("test --workspace", None),
        ("test -p sip-sandbox --test sandbox", None),
        ("tset", Some("cargo has no \"tset\"")),
        ("run -p sip-apis", Some("there is no package \"sip-apis\"")),
        (
            "run --package sip-kit --bin crds",
            Some("there is no program \"crds\""),
        ),
        (
            "test -p sip-sandbox --test nothing",
            Some("there are no tests \"nothing\""),
        ),
    ];

    for (arguments, expected) in cases {
        let words: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        assert_eq!(known.cargo(&words).as_deref(), expected, "{arguments}");
    }
    assert_eq!(make(&["test".to_owned(), "NAME=value".to_owned()]), None);
    for missing in ["tset", "tests", "README.md"] {
        let fault = make(&["test".to_owned(), missing.to_owned()]);
        assert_eq!(fault, Some(format!("make has no target {missing:?}")));
    }
}
