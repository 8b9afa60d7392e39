//! The long runs of the Makefile run tests that exist: cargo takes a filter that matches nothing for a success.

mod makefile;
mod tests;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{LazyLock, OnceLock},
};

use cargo_metadata::{MetadataCommand, Package};

use crate::repository::{assert_none, files_ending, root, text};
use makefile::Proof;
use tests::Tests;

/// A package with its targets that have tests.
#[derive(Debug)]
struct Tested {
    package: String,
    targets: Vec<Target>,
}

/// A target with its tests.
#[derive(Debug)]
struct Target {
    kind: Kind,
    root: PathBuf,
    tests: OnceLock<Tests>,
}

impl Target {
    fn tests(&self) -> &Tests {
        self.tests.get_or_init(|| Tests::read(&self.root))
    }
}

/// Parsed once for all tests of this module: sources of the whole workspace.
static PACKAGES: LazyLock<Vec<Tested>> = LazyLock::new(packages);

/// A target, as the command line selects it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Library,
    Test(String),
    /// Selected by no option that a proof has.
    Other,
}

#[test]
fn every_test_filter_of_the_makefile_matches_a_test() {
    let proofs = makefile::proofs(&text("Makefile").unwrap());
    let filtered = proofs.iter().filter(|proof| !proof.filters.is_empty());
    assert!(filtered.count() > 5, "the proofs are not found: {proofs:#?}");

    assert_none(&faults(&proofs, &PACKAGES));
}

/// The Makefile lets few of them run at once, by the names of their modules.
#[test]
fn makefile_names_the_modules_with_a_real_node() {
    let makefile = text("Makefile").unwrap();
    let line = makefile
        .lines()
        .find_map(|line| line.strip_prefix("REAL_NODE := "));
    let named: BTreeSet<&str> = line.unwrap().split(' ').collect();
    let sources = "tests/site/tests/site/";
    let files = files_ending(".rs");
    let of_site = files.iter().filter_map(|path| path.strip_prefix(sources));
    let with_node = of_site.filter(|path| text(&format!("{sources}{path}")).unwrap().contains("Nodes::Real"));
    let modules: BTreeSet<String> = with_node
        .map(|path| {
            let module = path.split_once('/').map_or(path, |(module, _)| module);
            format!("{}::", module.trim_end_matches(".rs"))
        })
        .collect();
    assert_eq!(
        modules.iter().map(|module| &**module).collect::<BTreeSet<_>>(),
        named
    );
}

fn packages() -> Vec<Tested> {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo describes the workspace");
    let target = |target: cargo_metadata::Target| {
        let kind = if target.is_test() {
            Kind::Test(target.name)
        } else if target.is_lib() {
            Kind::Library
        } else {
            Kind::Other
        };
        target.test.then(|| Target {
            kind,
            root: target.src_path.into(),
            tests: OnceLock::new(),
        })
    };
    let tested = |package: Package| Tested {
        package: package.name.to_string(),
        targets: package.targets.into_iter().filter_map(target).collect(),
    };
    metadata.packages.into_iter().map(tested).collect()
}

/// What proofs name that does not exist.
fn faults(proofs: &[Proof], packages: &[Tested]) -> Vec<String> {
    let mut findings = Vec::new();
    for proof in proofs {
        let place = format!("Makefile:{}", proof.line);
        let mut tests: Vec<&Tests> = Vec::new();
        for name in &proof.packages {
            let Some(tested) = packages.iter().find(|tested| tested.package == *name) else {
                findings.push(format!("{place}: there is no package {name}"));
                continue;
            };
            let selected = |target: &&Target| match (&proof.test, proof.library) {
                (Some(test), _) => target.kind == Kind::Test(test.clone()),
                (None, true) => target.kind == Kind::Library,
                (None, false) => true,
            };
            let targets: Vec<&Target> = tested.targets.iter().filter(selected).collect();
            if targets.is_empty() {
                findings.push(format!("{place}: {name} has no such target: {:?}", proof.test));
            }
            tests.extend(targets.into_iter().map(Target::tests));
        }
        if proof.packages.is_empty() {
            findings.push(format!("{place}: no package is named"));
        } else if tests.iter().all(|tests| tests.names.is_empty()) {
            findings.push(format!("{place}: there are no tests"));
        }
        let unmatched = proof.filters.iter();
        let unmatched = unmatched.filter(|filter| !tests.iter().any(|tests| tests.is_matched(filter)));
        findings.extend(unmatched.map(|filter| format!("{place}: {filter} matches no test")));
        let unread = proof.variables.iter();
        let unread = unread.filter(|name| !tests.iter().any(|tests| tests.reads(name)));
        findings.extend(unread.map(|name| format!("{place}: no test reads {name}")));
    }
    findings
}

#[test]
fn a_filter_or_variable_that_no_test_has_is_found() {
    let find = |text: &str| faults(&makefile::proofs(text), &PACKAGES);
    let good = "soak:\n\t$(call step,two sites,SOAK_TWO_SITES=$${SOAK_TWO_SITES:-200} \\\n\
                \t    $(PROOF) --package sip-site-tests --test site two_sites -- --nocapture)\n\
                \t$(call step,keys,$(PROOF) --package sip-render --lib jump_host::tests::hostile -- --nocapture)\n\
                \t$(call step,decisions,SOAK=$${SOAK:-10} $(CARGO) test --package sip-placement --package sip-optimum-tests)\n";
    assert_eq!(find(good), [""; 0]);

    let cases = [
        (
            "site two_sites",
            "site three_sites",
            "three_sites matches no test",
        ),
        ("site two_sites", "site sites_two", "sites_two matches no test"),
        (
            "jump_host::tests",
            "jump_host::test",
            "jump_host::test::hostile matches no test",
        ),
        (
            "-- --nocapture)\n\t$(call step,keys",
            "-- --test-threads 1 such_a_test)\n\t$(call step,keys",
            "such_a_test matches no test",
        ),
        (
            "--test site",
            "--test sites",
            "sip-site-tests has no such target: Some(\"sites\")",
        ),
        ("sip-site-tests", "sip-sites", "there is no package sip-sites"),
        (
            "SOAK_TWO_SITES=",
            "SOAK_THREE_SITES=",
            "no test reads SOAK_THREE_SITES",
        ),
    ];
    for (from, to, expected) in cases {
        let found = find(&good.replacen(from, to, 1));
        let expected = format!("Makefile:2: {expected}");
        let expected = expected.replace("2: jump", "4: jump");
        assert!(found.contains(&expected), "{from} as {to}: {found:?}");
    }
}
