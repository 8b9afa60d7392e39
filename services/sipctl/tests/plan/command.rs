//! The program: exit codes, options, what goes to which stream.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::fixtures::{cluster, host};
use crate::forms::data;

pub(crate) fn sipctl(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sipctl"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn plan(directory: &Path, more: &[&str]) -> Output {
    let arguments: Vec<&str> = ["plan", "-f", directory.to_str().unwrap()]
        .iter()
        .chain(more)
        .copied()
        .collect();
    sipctl(&arguments)
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Names and texts.
pub(crate) type Files<'a> = &'a [(&'a str, &'a str)];

pub(crate) fn directory(files: Files<'_>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

#[test]
fn the_exit_code_says_whether_every_cluster_is_placed() {
    let host = host("a", "r1").to_string();
    let one = cluster("one", &[("Worker", 1)]).to_string();
    let two = cluster("two", &[("Worker", 2)]).to_string();
    let invalid = cluster("invalid", &[]).to_string().replace("{}", "7");
    let cases: [(&str, Files<'_>, i32); 7] = [
        ("placed", &[("host.json", &host), ("one.json", &one)], 0),
        ("nothing to decide", &[("host.json", &host)], 0),
        ("refused", &[("host.json", &host), ("two.json", &two)], 2),
        ("invalid", &[("invalid.json", &invalid)], 2),
        ("unreadable", &[("host.json", &host), ("bad.yaml", "a: [")], 1),
        ("twice", &[("host.json", &host), ("again.yaml", &host)], 1),
        ("an empty directory", &[], 0),
    ];
    for (name, files, code) in cases {
        let directory = directory(files);
        let output = plan(directory.path(), &["-n", "lab", "-o", "json"]);
        assert_eq!(output.status.code(), Some(code), "{name}: {output:?}");
        assert_eq!(output.stdout.is_empty(), code == 1, "{name}");
    }
    assert_eq!(
        plan(&data("site"), &["-n", "lab"]).status.code(),
        Some(2),
        "partial, refused and invalid"
    );
}

#[test]
fn what_cannot_be_read_ends_with_1_and_one_line_that_says_why() {
    let latin = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(latin.path(), b"kind: \xe9").unwrap();
    let bad_policy = directory(&[("policy.yaml", "hierachy: []")]);
    let policy = bad_policy.path().join("policy.yaml");
    let site = data("site");
    let site = site.to_str().unwrap();
    let cases: [(&[&str], &str); 5] = [
        (&["plan", "-f", "/nowhere"], "/nowhere cannot be read"),
        (&["plan", "-f", latin.path().to_str().unwrap()], "cannot be read"),
        (
            &["plan", "-f", site, "--policy", policy.to_str().unwrap()],
            "is not of the expected form",
        ),
        (
            &["plan", "-f", site, "--policy", "/nowhere"],
            "/nowhere cannot be read",
        ),
        (
            &["plan", "-f", site, "--cluster", "lab/nobody"],
            "SIPCluster lab/nobody is not in the input",
        ),
    ];
    for (arguments, message) in cases {
        let output = sipctl(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        let last = errors.lines().last().unwrap();
        assert!(last.starts_with("error: ") && last.contains(message), "{errors}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_wrong_command_line_ends_with_1_and_help_with_0() {
    for arguments in [
        &["plan"][..],
        &["plan", "-f", "x", "-n", "Not A Namespace"],
        &["plan", "-f", "x", "--cluster", "no-slash"],
        &["plan", "-f", "x", "-o", "xml"],
        &["dance"],
        &[],
    ] {
        assert_eq!(sipctl(arguments).status.code(), Some(1), "{arguments:?}");
    }
    let help = sipctl(&["plan", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(text(&help.stdout).contains("Exit code: 0 when every cluster is placed"));
}

#[test]
fn one_cluster_is_printed_though_all_are_decided() {
    let site = directory(&[
        ("a.json", &host("a", "r1").to_string()),
        ("first.json", &cluster("first", &[("Worker", 1)]).to_string()),
        ("second.json", &cluster("second", &[("Worker", 1)]).to_string()),
    ]);
    let first = plan(site.path(), &["--cluster", "lab/first", "-o", "json"]);
    assert_eq!(first.status.code(), Some(0));
    assert!(text(&first.stdout).contains("lab/first") && !text(&first.stdout).contains("lab/second"));
    let second = plan(site.path(), &["--cluster", "lab/second", "-o", "json"]);
    assert_eq!(
        second.status.code(),
        Some(2),
        "the first cluster has taken the host"
    );
}

#[test]
fn a_directory_means_its_own_yaml_and_json_files() {
    let host = |name: &str| host(name, name).to_string();
    let site = directory(&[
        ("a.yaml", &host("a")),
        ("b.yml", &host("b")),
        ("c.json", &host("c")),
        ("d.txt", &host("d")),
        ("cluster.json", &cluster("four", &[("Worker", 4)]).to_string()),
    ]);
    std::fs::create_dir(site.path().join("deeper.yaml")).unwrap();
    std::fs::write(site.path().join("deeper.yaml/e.yaml"), host("e")).unwrap();
    let output = plan(site.path(), &["-o", "json"]);
    assert!(text(&output.stdout).contains("\"matched\": 3"), "{output:?}");
    let file = site.path().join("d.txt");
    let also = plan(site.path(), &["-o", "json", "-f", file.to_str().unwrap()]);
    assert_eq!(
        also.status.code(),
        Some(0),
        "a file that is named is read, whatever its name: {also:?}"
    );
}

#[test]
fn standard_input_is_read_and_notes_go_to_standard_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sipctl"))
        .args(["plan", "-f", "-", "-o", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = "{kind: Pod, apiVersion: v1, metadata: {name: p}}";
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = self::text(&output.stderr);
    assert_eq!(self::text(&output.stdout), "{\n  \"clusters\": []\n}\n");
    assert_eq!(
        errors,
        "note: skipped 1 Pod (v1): p in -, document 1\nnote: no SIPCluster is in the input\n"
    );
}

#[test]
fn completions_are_there_for_each_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = sipctl(&["completions", shell]);
        assert!(
            output.status.success() && text(&output.stdout).contains("policy"),
            "{shell}"
        );
    }
}
