//! The parts of `make release` that build nothing: what it refuses, and what it writes once there are images.

mod tree;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output},
};

use regex::Regex;
use sandbox::tools;
use serde_json::{Value, json};

use crate::{
    markdown,
    repository::{files, root, text},
};
use tree::{IMAGES, LISTED, NOTES, SIPCTL, Tree, VERSION, printed, tar};

/// Fails unless the script has refused, in one line on standard error that begins so.
#[track_caller]
fn assert_refused(output: &Output, begin: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.starts_with(&format!("release: {begin}")), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_tree_with_changes_is_not_released() {
    let refused = "the tree has changes that are not committed: ";
    let tree = Tree::small();
    assert!(tree.script(&["check", VERSION]).status.success());

    tree.write("notes.txt", "not tracked\n");
    assert_refused(&tree.script(&["check", VERSION]), refused);
    tree.commit();
    assert!(tree.script(&["check", VERSION]).status.success());

    tree.write("notes.txt", "changed\n");
    assert_refused(&tree.script(&["check", VERSION]), refused);
    tree.git(&["add", "--all"]);
    assert_refused(&tree.script(&["check", VERSION]), refused);
}

#[test]
fn a_version_without_a_text_in_the_changelog_is_refused() {
    let tree = Tree::small();

    // Without a section, with an empty one, and with the beginning of the number of another one.
    for version in ["1.2.4", "1.2.2", "1.2"] {
        let begin = format!("CHANGELOG.md has no section \"## {version}\" with a text: ");
        assert_refused(&tree.script(&["check", version]), &begin);
    }
}

#[test]
fn a_tag_on_another_commit_is_refused() {
    let tree = Tree::small();
    let tagged = tree.head();
    // The commit of an annotated tag counts, not the tag object.
    tree.git(&["tag", "--annotate", "--message", "Three", "v1.2.3"]);
    assert!(tree.script(&["check", VERSION]).status.success());

    tree.commit();

    let begin = format!(
        "the tag v1.2.3 is on commit {tagged}, but {} is checked out: ",
        tree.head()
    );
    assert_refused(&tree.script(&["check", VERSION]), &begin);
}

#[test]
fn images_of_another_build_are_refused() {
    let tree = Tree::small();
    let write = || tree.script(&["write", VERSION, IMAGES[0]]);

    assert_refused(
        &write(),
        "target/images has no sip-scheduler.tar with sip-scheduler.cdx.json: ",
    );
    tree.make_image(IMAGES[0], "1.2.2", &tree.head());
    assert_refused(
        &write(),
        "target/images/sip-scheduler.tar is localhost/sip-scheduler:1.2.2, not version 1.2.3: ",
    );
    let dirty = format!("{}-dirty", tree.head());
    tree.make_image(IMAGES[0], VERSION, &dirty);
    let begin = format!("target/images/sip-scheduler.tar is of commit {dirty}, but ");
    assert_refused(&write(), &begin);
}

/// The files below a folder, by their paths from there.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn clones_of_a_commit_make_the_same_release() {
    let tree = Tree::whole();
    tree.make_images();
    let clone = tree.cloned();

    tree.release();
    clone.release();
    let first = contents(&tree.distribution());
    // What an earlier one has left is not part of a release.
    fs::write(clone.distribution().join("left"), "").unwrap();
    clone.release();
    let second = contents(&clone.distribution());

    let names: Vec<&str> = first.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "RELEASE-NOTES.md",
            "SHA256SUMS",
            "crd/airship.airshipit.org_sipclusters.yaml",
            "images/sip-cluster-agent.cdx.json",
            "images/sip-cluster-agent.tar",
            "images/sip-scheduler.cdx.json",
            "images/sip-scheduler.tar",
            "provenance.json",
            "sip-manifests-1.2.3.tar.gz",
            "sipctl-1.2.3-linux-amd64.tar.gz",
        ]
    );
    for (name, bytes) in &first {
        assert!(second.get(name) == Some(bytes), "{name} differs");
    }
    assert_eq!(first.len(), second.len());
    assert_eq!(first["RELEASE-NOTES.md"], NOTES.as_bytes());
}

/// What `SHA256SUMS` lists: digests by name.
fn digests(folder: &Path) -> BTreeMap<String, String> {
    let listed = fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
    let lines = listed.lines().map(|line| line.split_once("  ").unwrap());
    lines
        .map(|(digest, name)| (name.to_owned(), digest.to_owned()))
        .collect()
}

#[test]
fn checksums_and_provenance_cover_every_file() {
    let tree = Tree::whole();
    tree.make_images();
    tree.release();
    let folder = tree.distribution();
    let mut sums = Command::new("sha256sum");
    printed(
        sums.args(["--check", "--strict", "--quiet", "SHA256SUMS"])
            .current_dir(&folder),
    );
    let mut expected = digests(&folder);
    let mut names: Vec<String> = contents(&folder).into_keys().collect();
    names.retain(|name| name != "SHA256SUMS");
    assert_eq!(expected.keys().cloned().collect::<Vec<_>>(), names);

    let provenance = fs::read_to_string(folder.join("provenance.json")).unwrap();
    let statement: Value = serde_json::from_str(&provenance).unwrap();
    assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
    assert_eq!(statement["predicateType"], "https://slsa.dev/provenance/v1");
    expected.remove("provenance.json");
    let subjects: Vec<Value> = expected
        .iter()
        .map(|(name, digest)| json!({"name": name, "digest": {"sha256": digest}}))
        .collect();
    assert_eq!(statement["subject"], Value::Array(subjects));
    let build = &statement["predicate"]["buildDefinition"];
    assert_eq!(build["externalParameters"]["version"], VERSION);
    let source = json!([
        {"name": "source", "uri": "git+https://git.example/sip", "digest": {"gitCommit": tree.head()}}
    ]);
    assert_eq!(build["resolvedDependencies"], source);
    let run = &statement["predicate"]["runDetails"];
    for part in ["rustc", "target"] {
        let stated = run["builder"]["version"][part].as_str();
        assert!(stated.is_some_and(|stated| !stated.is_empty()), "{part}: {run}");
    }
    let by_reference = |name: &&str| {
        json!({
            "name": format!("localhost/{name}:{VERSION}"),
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": {"sha256": "a".repeat(64)},
        })
    };
    let images: Vec<Value> = IMAGES.iter().map(by_reference).collect();
    assert_eq!(run["byproducts"], Value::Array(images));
}

#[test]
fn released_archives_are_as_old_as_the_commit() {
    let tree = Tree::whole();
    tree.make_images();
    tree.release();
    let folder = tree.distribution();

    for archive in ["sip-manifests-1.2.3.tar.gz", "sipctl-1.2.3-linux-amd64.tar.gz"] {
        let listing = [
            "--list",
            "--verbose",
            "--numeric-owner",
            "--full-time",
            "--file",
            archive,
        ];
        let listed = tar(&folder, &listing);
        assert!(listed.lines().count() > 2, "{listed}");
        for line in listed.lines() {
            assert!(
                line.contains(" 0/0 ") && line.contains(LISTED),
                "{archive}: {line}"
            );
        }
    }
    let programs = "sipctl-1.2.3-linux-amd64";
    let archive = format!("{programs}.tar.gz");
    let listed = tar(&folder, &["--list", "--file", &archive]);
    let expected = format!("{programs}/\n{programs}/LICENSE\n{programs}/sipctl\n");
    assert_eq!(listed, expected);
    let program = format!("{programs}/sipctl");
    let extracted = tar(
        &folder,
        &["--extract", "--to-stdout", "--file", &archive, &program],
    );
    assert_eq!(extracted, SIPCTL);
}

/// Maintainers who sign their commits may have git print who signed one wherever it prints a commit.
#[test]
fn a_signature_that_git_prints_does_not_stop_a_release() {
    let tree = Tree::whole();
    let keys = tempfile::tempdir().unwrap();
    let key = keys.path().join("key").display().to_string();
    let arguments = ["-q", "-t", "ed25519", "-N", "", "-f", &key];
    printed(Command::new("ssh-keygen").args(arguments));
    for (name, value) in [
        ("gpg.format", "ssh"),
        ("user.signingKey", &*key),
        ("commit.gpgSign", "true"),
        ("log.showSignature", "true"),
    ] {
        tree.git(&["config", name, value]);
    }
    tree.commit();
    tree.make_images();

    tree.release();
}

#[test]
fn released_manifests_are_those_of_the_commit_and_render() {
    let tree = Tree::whole();
    tree.make_images();
    // Settings that a user's git may have.
    tree.git(&["config", "core.autocrlf", "true"]);
    tree.git(&["config", "tar.umask", "0077"]);
    tree.release();
    let unpacked = tempfile::tempdir().unwrap();
    let archive = tree.distribution().join("sip-manifests-1.2.3.tar.gz");
    let archive = archive.display().to_string();
    tar(unpacked.path(), &["--extract", "--file", &archive]);
    let release = unpacked.path().join("sip-1.2.3");

    let manifests: BTreeMap<String, Vec<u8>> = files()
        .into_iter()
        .filter_map(|path| {
            let name = path.strip_prefix("deploy/")?.to_owned();
            Some((name, fs::read(root().join(path)).unwrap()))
        })
        .collect();
    let released = contents(&release.join("deploy"));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&released), names(&manifests));
    for (name, bytes) in &manifests {
        assert!(released[name] == *bytes, "{name} differs");
    }
    assert!(release.join("docs/install.md").is_file());
    for example in ["crd", "examples/one-site", "examples/tenant"] {
        let mut kubectl = Command::new(tools::path("kubectl").unwrap());
        let rendered = printed(kubectl.arg("kustomize").arg(release.join("deploy").join(example)));
        assert!(rendered.contains("kind: "), "{example}: {rendered}");
    }
}

#[test]
fn the_changelog_has_a_dated_section_of_each_version() {
    let changelog = markdown::parse("CHANGELOG.md", &text("CHANGELOG.md").unwrap());
    let sections = changelog.headings.iter().filter(|(level, _)| *level == 2);
    let sections: Vec<&str> = sections.map(|(_, title)| &**title).collect();
    let (first, versions) = sections.split_first().unwrap();
    assert_eq!(*first, "Unreleased");
    let dated = Regex::new(r"^\d+\.\d+\.\d+\S* - \d{4}-\d{2}-\d{2}$").unwrap();
    for version in versions {
        assert!(dated.is_match(version), "{version}");
    }
    // The version of the workspace changes in the commit that makes the section.
    let newest = versions.first().and_then(|version| version.split(' ').next());
    assert_eq!(newest, Some(env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_support_matrix_has_the_versions_that_tests_run() {
    let page = text("docs/release.md").unwrap();
    for (component, folder, module) in [
        ("Kubernetes", "kubernetes", "k8s.io/kubernetes"),
        ("etcd of the ledger", "etcd", "go.etcd.io/etcd/server/v3"),
    ] {
        let modules = text(&format!("tests/sandbox/tools/{folder}/go.mod")).unwrap();
        let pinned = Regex::new(&format!(r"(?m)^\s{} v(\d+\.\d+)\.", regex::escape(module))).unwrap();
        let minor = pinned.captures(&modules).unwrap()[1].to_owned();
        let begin = format!("| {component} |");
        let row = page.lines().find(|line| line.starts_with(&begin)).unwrap();
        assert!(row.contains(&format!("| {minor} |")), "{minor}: {row}");
    }
}
