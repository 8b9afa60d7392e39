//! Dependencies point one way: pure crates know nobody, programs know everybody, and nobody knows a program.

use std::{collections::BTreeSet, process::Command};

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use crate::repository::{assert_none, root, text};

/// Crates that do I/O, run tasks, tell the time or talk to somebody. A pure crate must not reach them, however
/// indirectly.
const IMPURE: [&str; 24] = [
    "async-io",
    "async-std",
    "chrono",
    "futures",
    "getrandom",
    "h2",
    "hyper",
    "kube-client",
    "kube-runtime",
    "log",
    "mio",
    "openssl",
    "prost",
    "rand",
    "redb",
    "reqwest",
    "ring",
    "rustls",
    "socket2",
    "tokio",
    "tonic",
    "tower",
    "tracing",
    "uuid",
];

/// Our crates, by what they may know.
const PURE: [&str; 5] = [
    "agents/api",
    "agents/render",
    "proto",
    "proto/vocabulary",
    "services/placement",
];

/// A crate of ours, and those of ours that it is built with.
#[derive(Debug, PartialEq, Eq)]
struct Member {
    /// Its folder, from the root of the project.
    folder: String,
    /// Whether it has programs that people or sites run.
    runs: bool,
    /// The folders of its dependencies, those of its tests left out.
    knows: BTreeSet<String>,
}

#[test]
fn our_crates_know_each_other_in_one_direction_only() {
    let members = members();
    assert!(
        PURE.iter()
            .all(|pure| members.iter().any(|member| member.folder == *pure)),
        "{members:?}"
    );

    assert_none(
        &members
            .iter()
            .flat_map(|member| wrong_ways(member, &members))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn every_crate_is_in_the_readme() {
    let readme = text("README.md").unwrap_or_default();

    let unnamed = members()
        .into_iter()
        .map(|member| format!("| `{}/` |", member.folder))
        .filter(|row| !readme.contains(row))
        .map(|row| format!("README.md has no row {row}"));

    assert_none(&unnamed.collect::<Vec<_>>());
}

#[test]
fn pure_crates_reach_no_network_no_clock_and_no_tasks() {
    for package in ["sip-api", "sip-placement", "sip-render", "sip-vocabulary"] {
        assert_none(&impure(package, &tree(package)));
    }
}

fn members() -> Vec<Member> {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo describes the workspace");
    metadata.packages.iter().map(member).collect()
}

fn member(package: &Package) -> Member {
    let folder = |path: &cargo_metadata::camino::Utf8Path| {
        let path = path.as_std_path();
        path.strip_prefix(root()).unwrap_or(path).display().to_string()
    };
    let built_with = package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind != DependencyKind::Development);
    Member {
        folder: package.manifest_path.parent().map(folder).unwrap_or_default(),
        runs: package
            .targets
            .iter()
            .any(|target| target.is_bin() && target.name.starts_with("sip-")),
        knows: built_with
            .filter_map(|dependency| dependency.path.as_deref().map(folder))
            .collect(),
    }
}

/// What a crate knows and must not know.
fn wrong_ways(member: &Member, all: &[Member]) -> Vec<String> {
    let Member {
        folder,
        runs: _,
        knows,
    } = member;
    let layer = |folder: &str| folder.split('/').next().unwrap_or_default().to_owned();
    let is_program = |folder: &str| all.iter().any(|member| member.folder == folder && member.runs);
    let mut findings = Vec::new();
    if !["proto", "services", "agents", "deploy", "tests"].contains(&&*layer(folder)) {
        findings.push(format!(
            "{folder}: a crate is in proto, services, agents, deploy or tests"
        ));
    }
    for known in knows {
        let rule = match (&**folder, &*layer(folder), &**known, &*layer(known)) {
            // The vocabulary has the words of the contract that both sides parse alike; generated messages need none.
            ("agents/render", _, "agents/api", _)
            | ("agents/api" | "agents/render" | "services/placement", _, "proto/vocabulary", _) => None,
            (pure, _, _, _) if PURE.contains(&pure) => {
                Some("a pure crate knows none of ours but the vocabulary (render knows api)")
            }
            ("services/runtime", _, _, _) => Some("what every process needs knows none of them"),
            (_, "tests", _, _) => None,
            (_, _, _, "tests") => Some("only tests know tests"),
            (_, "deploy", _, _) => Some("what packs programs knows them as files only"),
            (_, _, _, "deploy") => Some("no program knows how it is packed"),
            // It plans from manifests in files, which the agents' definitions read; nobody is built with it.
            ("services/sipctl", _, "agents/api", _) => None,
            (_, "services", _, "agents") => Some("services never depend on agents"),
            (_, "agents", "services/scheduler" | "services/placement", _) => {
                Some("agents ask the scheduler by gRPC and decide nothing")
            }
            (_, "services", "services/sipctl", _) => Some("nobody is built with a program for people"),
            (_, "agents", known, _) if is_program(known) => Some("nobody is built with an agent's program"),
            _ => None,
        };
        findings.extend(rule.map(|rule| format!("{folder} -> {known}: {rule}")));
    }
    findings
}

/// The crates that one package alone is built with: the workspace's other packages turn on more features.
fn tree(package: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--quiet",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
        ])
        .args(["--format", "{p}", "--package", package])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo tree: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout).expect("names are UTF-8");
    lines
        .lines()
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

fn impure(package: &str, reached: &[String]) -> Vec<String> {
    assert_eq!(reached.first().map(|name| &**name), Some(package), "{reached:?}");
    let reached: BTreeSet<&str> = reached.iter().map(|name| &**name).collect();
    IMPURE
        .iter()
        .filter(|name| reached.contains(**name))
        .map(|name| format!("{package} is pure, and is built with {name}"))
        .collect()
}

#[test]
fn a_dependency_in_the_wrong_direction_is_found() {
    let member = |folder: &str, knows: &str| Member {
        folder: folder.to_owned(),
        runs: folder == "agents/cluster",
        knows: [knows.to_owned()].into(),
    };
    let programs = [member("agents/cluster", "agents/kit")];
    let cases = [
        ("agents/render", "agents/api", true),
        ("agents/render", "proto", false),
        ("agents/api", "agents/kit", false),
        ("agents/api", "proto/vocabulary", true),
        ("agents/api", "services/placement", false),
        ("services/placement", "proto/vocabulary", true),
        ("services/placement", "agents/api", false),
        ("services/scheduler", "proto/vocabulary", true),
        ("services/runtime", "proto/vocabulary", false),
        ("proto", "proto/vocabulary", false),
        ("proto/vocabulary", "proto", false),
        ("proto/vocabulary", "services/placement", false),
        ("services/placement", "proto", false),
        ("services/runtime", "proto", false),
        ("proto", "agents/api", false),
        ("services/scheduler", "services/placement", true),
        ("services/scheduler", "agents/api", false),
        ("services/sipctl", "agents/api", true),
        ("services/sipctl", "agents/kit", false),
        ("services/scheduler", "tests/sandbox", false),
        ("agents/kit", "services/runtime", true),
        ("agents/kit", "services/placement", false),
        ("agents/dex", "services/scheduler", false),
        ("agents/dex", "agents/cluster", false),
        ("services/scheduler", "services/sipctl", false),
        ("tests/site", "agents/cluster", true),
        ("tests/sandbox", "deploy/images", true),
        ("deploy/images", "services/runtime", false),
        ("services/scheduler", "deploy/images", false),
        ("tools", "proto", false),
    ];

    for (folder, knows, allowed) in cases {
        let found = wrong_ways(&member(folder, knows), &programs);
        assert_eq!(found.is_empty(), allowed, "{folder} -> {knows}: {found:?}");
    }
}

#[test]
fn what_the_scheduler_reaches_would_be_found_in_a_pure_crate() {
    let found = impure("sip-scheduler", &tree("sip-scheduler"));

    for name in ["redb", "tokio", "tonic"] {
        let expected = format!("sip-scheduler is pure, and is built with {name}");
        assert!(found.contains(&expected), "{found:?}");
    }
}
