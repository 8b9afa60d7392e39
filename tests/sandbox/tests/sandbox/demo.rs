//! The demonstration tells the truth by its exit status, also when a program of the project does not run.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Output, Stdio},
};

use sandbox::{node, repository};

fn demo_with_scheduler(script: &str) -> Output {
    let programs = tempfile::tempdir().unwrap();
    let scheduler = programs.path().join("sip-scheduler");
    fs::write(&scheduler, script).unwrap();
    fs::set_permissions(&scheduler, fs::Permissions::from_mode(0o755)).unwrap();
    Command::new(env!("CARGO_BIN_EXE_sip-sandbox"))
        // There the scheduler is a process: with a real node, an image of it would come first.
        .args(["demo", "--fake-nodes"])
        .env("SIP_BIN_DIR", programs.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn a_scheduler_that_does_not_start_fails_the_demonstration() {
    let output = demo_with_scheduler("#!/bin/sh\necho 'the ledger is of a newer version'\nexit 3\n");

    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert!(
        errors.contains("sip-scheduler has ended: exit status: 3"),
        "{errors}"
    );
    assert!(errors.contains("the ledger is of a newer version"), "{errors}");
}

/// Whether a line has these parts, one after the other.
fn in_order<'a>(line: &str, mut parts: impl Iterator<Item = &'a str>) -> bool {
    parts
        .try_fold(line, |rest, part| rest.split_once(part).map(|(_, after)| after))
        .is_some()
}

#[test]
fn two_clusters_get_ready_and_a_third_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_sip-sandbox"))
        .arg("demo")
        .stdin(Stdio::null())
        .output()
        .unwrap();

    let (shown, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{shown}{errors}");
    let node = match node::obstacle() {
        None => "take connections at the node's ports (".to_owned(),
        Some(why) => format!("and run nothing: {why}."),
    };
    assert!(errors.contains(&node), "{errors}");
    let kind = match node::obstacle() {
        None => "pods of our own images",
        Some(_) => "processes",
    };
    let started = format!("ok     the scheduler and the agents as {kind}: own ServiceAccounts, ");
    assert!(errors.contains(&started), "{errors}");
    let pods = shown.contains("get pods -n sip-system -l app.kubernetes.io/part-of=sip\n");
    assert_eq!(pods, node::obstacle().is_none(), "{shown}");
    let login = shown.contains("  ssh -F none -i ") && shown.contains(" -p 30101 ubuntu@");
    assert_eq!(login, node::obstacle().is_none(), "{shown}");
    if node::obstacle().is_none() {
        let logged_in = "ok     ada of the group admins logs in to bank/payments (";
        assert!(errors.contains(logged_in), "{errors}");
        let readme = fs::read_to_string(repository::root().join("README.md")).unwrap();
        let (_, after) = readme.split_once("To log in to bank/payments\n").unwrap();
        for line in after.lines().take_while(|line| *line != "```") {
            let is_shown = |shown: &str| in_order(shown, line.split('…'));
            assert!(shown.lines().any(is_shown), "{line}: {shown}");
        }
    }
    for expected in [
        "\nNAME        NAMESPACE  ORDINAL ",
        "\nr004-h0002  metal      ",
        "Why lab/training does not fit\n  ControlPlane: 3 wanted",
        "get sipcluster -A",
        "/GetPlacement",
    ] {
        assert!(shown.contains(expected), "{shown}");
    }
}

#[test]
fn with_fake_nodes_no_served_ports_are_printed() {
    let output = Command::new(env!("CARGO_BIN_EXE_sip-sandbox"))
        .args(["demo", "--fake-nodes"])
        .stdin(Stdio::null())
        .output()
        .unwrap();

    let (shown, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{shown}{errors}");
    assert!(
        errors.contains("and run nothing: --fake-nodes asks for them."),
        "{errors}"
    );
    assert!(!errors.contains("take connections"), "{errors}");
    assert!(
        errors.contains("ok     the scheduler and the agents as processes: "),
        "{errors}"
    );
    assert!(
        shown.contains("# nothing listens at any node: they are fake"),
        "{shown}"
    );
}
