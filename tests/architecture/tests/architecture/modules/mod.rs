//! The files of a crate take names from each other in one direction: no long cycles, and few arrows against the order of the layers.

mod graph;
mod source;

use std::{collections::BTreeSet, fs, path::Path};

use cargo_metadata::{MetadataCommand, TargetKind};

use crate::repository::{assert_none, root};
use graph::Arrow;
use source::Crate;

/// Most files of a cycle. Two files that are parts of one thing may know each other.
const CYCLE: usize = 2;

/// Folders without any cycle: what is in them is read as steps, one after the other.
const STRAIGHT: [&str; 4] = [
    "agents/cluster/src/reconcile/",
    "agents/kit/src/service/",
    "services/placement/src/decide/",
    "services/scheduler/src/site/",
];

/// Most arrows of a crate against the order of its layers.
const AGAINST: usize = 3;

/// The layers of crates with many files, the lowest first: files and folders in `src`. A file of a layer takes names from its own and
/// from lower ones. `lib.rs` and `main.rs` join the others, and `fixtures.rs` is for tests.
const LAYERS: [(&str, &[&[&str]]); 6] = [
    (
        "agents/cluster/src/",
        &[
            &["answered", "triggers", "host_events"],
            &["inventory"],
            &["late_claims", "tenant_nodes", "namespace_checks"],
            &["reconcile"],
            &["run"],
        ],
    ),
    (
        "agents/load-balancer/src/",
        &[
            &[
                "identity",
                "preference",
                "balancers",
                "configurations",
                "sip_deployments",
                "handover",
                "texts",
                "release_wait_times",
                "template_store",
                "known_templates",
            ],
            &["template_check", "pod_config", "pod_routing", "reachability"],
            &["templates", "routing_evidence"],
            &["rendering"],
            &["service"],
            &["run"],
        ],
    ),
    (
        "services/scheduler/src/",
        &[
            &["violation", "spec", "policy", "record", "call_rules", "metrics"],
            &["observed", "convert", "ledger"],
            &["error", "load", "admission"],
            &["site"],
            &["region"],
            &["term"],
            &["api", "backup"],
            &["server"],
        ],
    ),
    (
        "services/placement/src/",
        &[
            &["request_bounds", "life", "host", "policy"],
            &["request"],
            &["ineligible", "decision", "kinds", "sentences"],
            &["site"],
            &["decide"],
            &["whatif"],
        ],
    ),
    (
        "services/sipctl/src/",
        &[
            &["line", "output", "ending"],
            &["input"],
            &["files"],
            &["plan", "report", "table", "lose"],
            &["region"],
            &["cli"],
            &["command"],
        ],
    ),
    (
        "services/runtime/src/",
        &[
            &[
                "connection_slots",
                "error_chain",
                "exit",
                "identity",
                "metrics",
                "quiet",
                "readiness",
                "resolver",
                "shutdown",
                "tasks",
            ],
            &["tls"],
            &["telemetry", "health", "serving"],
            &["process", "sidecar"],
        ],
    ),
];

/// What is in no layer.
const JOINING: [&str; 3] = ["lib", "main", "fixtures"];

#[test]
fn files_take_names_in_one_direction() {
    let mut findings = Vec::new();
    for (name, arrows) in targets() {
        let found: Vec<String> = cycles(&arrows).into_iter().chain(layers(&arrows)).collect();
        println!("{name}: {} arrows, {} findings", arrows.len(), found.len());
        for finding in found {
            println!("  {finding}");
            findings.push(format!("{name}: {finding}"));
        }
    }

    assert_none(&findings);
}

#[test]
fn every_file_of_a_layered_crate_is_in_one_layer() {
    let mut findings = Vec::new();
    for (folder, layers) in LAYERS {
        let names: Vec<&str> = layers.concat();
        let files: BTreeSet<String> = fs::read_dir(root().join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .map(|name| name.trim_end_matches(".rs").to_owned())
            .filter(|name| !JOINING.contains(&name.as_str()))
            .collect();
        for file in &files {
            let layers = names.iter().filter(|name| *name == file).count();
            if layers != 1 {
                findings.push(format!("{folder}{file} is in {layers} layers"));
            }
        }
        let stale = names.iter().filter(|name| !files.contains(**name));
        findings.extend(stale.map(|name| format!("{folder}{name} is in a layer and no file")));
    }

    assert_none(&findings);
}

/// Every library and program with its arrows, paths relative to the root of the project.
fn targets() -> Vec<(String, BTreeSet<Arrow>)> {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo describes the workspace");
    let targets = metadata.packages.iter().flat_map(|package| &package.targets);
    let built = targets.filter(|target| {
        let mut kinds = target.kind.iter();
        kinds.any(|kind| matches!(kind, TargetKind::Lib | TargetKind::Bin))
    });
    let relative = |path: &Path| path.strip_prefix(root()).unwrap_or(path).to_owned();
    let read = built.map(|target| {
        let arrows = graph::arrows(&Crate::read(target.src_path.as_std_path()));
        let arrows = arrows.iter().map(|(from, to)| (relative(from), relative(to)));
        (target.name.clone(), arrows.collect())
    });
    read.collect()
}

fn cycles(arrows: &BTreeSet<Arrow>) -> Vec<String> {
    let is_straight = |file: &&Path| STRAIGHT.iter().any(|folder| file.starts_with(folder));
    let wrong = graph::cycles(arrows)
        .into_iter()
        .filter(|files| files.len() > CYCLE || files.iter().filter(|file| is_straight(file)).count() > 1);
    let described = wrong.map(|files| {
        let within = |file: &Path| files.contains(&file);
        let inside = arrows
            .iter()
            .filter(|(from, to)| within(from) && within(to))
            .map(|(from, to)| format!("\n    {} -> {}", from.display(), to.display()));
        format!("a cycle of {} files:{}", files.len(), inside.collect::<String>())
    });
    described.collect()
}

fn layers(arrows: &BTreeSet<Arrow>) -> Option<String> {
    let known = |(folder, _): &&(&str, _)| arrows.iter().any(|(from, _)| from.starts_with(folder));
    let (folder, layers) = LAYERS.iter().find(known)?;
    let against = graph::against(arrows, |file| layer(file, folder, layers));
    println!("  {} arrows against the order of the layers", against.len());
    let all = against
        .iter()
        .map(|(from, to)| format!("\n    {} -> {}", from.display(), to.display()));
    (against.len() > AGAINST).then(|| {
        format!(
            "{} arrows against the order of the layers:{}",
            against.len(),
            all.collect::<String>()
        )
    })
}

/// The layer of a file, 0 for the lowest.
fn layer(file: &Path, folder: &str, layers: &[&[&str]]) -> Option<usize> {
    let part = file.strip_prefix(folder).ok()?.components().next()?;
    let part = part.as_os_str().to_str()?.trim_end_matches(".rs");
    layers.iter().position(|layer| layer.contains(&part))
}

#[test]
fn arrows_follow_names_to_the_file_that_has_them() {
    let all = Crate::from_texts(&[
        (
            "",
            "mod a; mod b; mod c; pub use a::Name; const HERE: u32 = a::f(); #[cfg(test)] mod tests;",
        ),
        (
            "a",
            "use crate::b; use super::HERE; pub struct Name; fn f() { b::g() }",
        ),
        (
            "b",
            "pub use crate::Name as Other; #[cfg(test)] use crate::c::Own; pub fn g() { println!(\"{}\", crate::c::h()) }",
        ),
        (
            "c",
            "use super::b::{self, Other}; use std::fmt; pub struct Own; fn h() {}",
        ),
    ]);

    let arrows = graph::arrows(&all);

    let arrows: Vec<String> = arrows
        .iter()
        .map(|(from, to)| format!("{} {}", from.display(), to.display()))
        .collect();
    assert_eq!(arrows, ["a ", "a b", "b a", "b c", "c a", "c b"]);
}

#[test]
fn cycles_and_arrows_against_the_layers_are_found() {
    let arrow = |from: &str, to: &str| (from.into(), to.into());
    let all: BTreeSet<Arrow> = [
        arrow("a", "b"),
        arrow("b", "c"),
        arrow("c", "a"),
        arrow("d", "a"),
        arrow("d", "e"),
        arrow("e", "d"),
    ]
    .into();
    let found = graph::cycles(&all);
    let sizes: Vec<usize> = found.iter().map(Vec::len).collect();
    assert_eq!(sizes, [3, 2]);
    let file = |name: &str| layer(Path::new(name), "x/src/", &[&["low"], &["high"]]);
    assert_eq!(file("x/src/low.rs"), Some(0));
    assert_eq!(file("x/src/high/mod.rs"), Some(1));
    assert_eq!(file("x/src/lib.rs"), None);
    let arrows: BTreeSet<Arrow> = [
        arrow("x/src/low.rs", "x/src/high/mod.rs"),
        arrow("x/src/high/mod.rs", "x/src/low.rs"),
        arrow("x/src/low.rs", "x/src/lib.rs"),
    ]
    .into();
    let against = graph::against(&arrows, |path| layer(path, "x/src/", &[&["low"], &["high"]]));
    assert_eq!(against, [&arrow("x/src/low.rs", "x/src/high/mod.rs")]);
}
