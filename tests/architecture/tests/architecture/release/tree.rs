//! A repository that a test may commit to, tag and release, with images as a release reads them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::repository::{files, root};

/// The version of its changelog.
pub(super) const VERSION: &str = "1.2.3";
/// When its commits are made.
const COMMITTED: &str = "2026-01-02T03:04:05Z";
/// The same time as tar lists it.
pub(super) const LISTED: &str = "2026-01-02 03:04:05";
/// Its images. The first one contains sipctl.
pub(super) const IMAGES: [&str; 2] = ["sip-scheduler", "sip-cluster-agent"];
/// What sipctl is in it.
pub(super) const SIPCTL: &str = "sipctl of the image\n";
/// What a release reads of the checkout besides `deploy/`, `docs/` and the changelog.
const OTHERS: [&str; 5] = [
    "ARCHITECTURE.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "rust-toolchain.toml",
];

const SCRIPT: &str = "deploy/release/run";

const CHANGELOG: &str = "# Changelog\n\nThe form.\n\n## Unreleased\n\n- Later.\n\n## 1.2.3 - 2026-01-02\n\nThe third.\n\n\
                         ### Added\n\n- One [page](docs/install.md).\n\n## 1.2.2 - 2026-01-01\n\n## 1.2.30 - 2025-12-31\n\nOther.\n";
/// The section of [`VERSION`].
pub(super) const NOTES: &str = "The third.\n\n### Added\n\n- One [page](docs/install.md).\n";

pub(super) struct Tree(TempDir);

impl Tree {
    /// With what decides whether there may be a release.
    pub(super) fn small() -> Self {
        Self::committed(&[SCRIPT.to_owned()])
    }

    /// With all that is in a release: the manifests and documents are those of this checkout.
    pub(super) fn whole() -> Self {
        let mut paths = files();
        paths.retain(|path| {
            path.starts_with("deploy/") || path.starts_with("docs/") || OTHERS.contains(&&**path)
        });
        Self::committed(&paths)
    }

    fn committed(paths: &[String]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for path in paths {
            let copy = tree.path().join(path);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(root().join(path), copy).unwrap();
        }
        tree.write(".gitignore", "/target\n");
        tree.write("CHANGELOG.md", CHANGELOG);
        tree.git(&["init", "--quiet"]);
        tree.commit();
        tree
    }

    /// The same commit in another folder, with the same images.
    pub(super) fn cloned(&self) -> Self {
        let clone = Self(tempfile::tempdir().unwrap());
        let source = self.path().display().to_string();
        clone.git(&["clone", "--quiet", &source, "."]);
        fs::create_dir_all(clone.images()).unwrap();
        for file in fs::read_dir(self.images()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), clone.images().join(file.file_name())).unwrap();
        }
        clone
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    fn images(&self) -> PathBuf {
        self.path().join("target/images")
    }

    /// Where [`Tree::release`] writes to.
    pub(super) fn distribution(&self) -> PathBuf {
        self.path().join(format!("target/distribution/{VERSION}-amd64"))
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        fs::write(self.path().join(path), text).unwrap();
    }

    /// Commits everything, also if nothing has changed.
    pub(super) fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", "Change it"]);
    }

    pub(super) fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"]).trim().to_owned()
    }

    /// What git prints.
    pub(super) fn git(&self, arguments: &[&str]) -> String {
        printed(&mut self.command("git", arguments))
    }

    /// `deploy/release/run` with these arguments.
    pub(super) fn script(&self, arguments: &[&str]) -> Output {
        let script = self.path().join(SCRIPT).display().to_string();
        self.command(&script, arguments).output().unwrap()
    }

    /// Writes a release of all images.
    pub(super) fn release(&self) {
        let arguments: Vec<&str> = ["write", VERSION].into_iter().chain(IMAGES).collect();
        let output = self.script(&arguments);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.path())
            // Neither the settings of the user nor a git that runs this test concern this repository.
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env_remove("GIT_DIR")
            .env_remove("GIT_INDEX_FILE")
            .env_remove("GIT_WORK_TREE")
            .env_remove("EXTRA_CA_CERTIFICATES");
        for who in ["AUTHOR", "COMMITTER"] {
            command
                .env(format!("GIT_{who}_NAME"), "Ana")
                .env(format!("GIT_{who}_EMAIL"), "ana@example.org")
                .env(format!("GIT_{who}_DATE"), COMMITTED);
        }
        command
    }

    /// Writes all images as if `make images` had built them from the commit that is checked out.
    pub(super) fn make_images(&self) {
        for name in IMAGES {
            self.make_image(name, VERSION, &self.head());
        }
    }

    /// An image as far as a release reads it: an index, a manifest, and a layer with sipctl above another one.
    pub(super) fn make_image(&self, name: &str, version: &str, revision: &str) {
        let folder = tempfile::tempdir().unwrap();
        let layout = folder.path();
        let [manifest, own, shared] = ["a", "b", "c"].map(|digit| digit.repeat(64));
        let programs = layout.join("usr/local/bin");
        fs::create_dir_all(&programs).unwrap();
        fs::write(programs.join("sipctl"), SIPCTL).unwrap();
        let blobs = layout.join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        let layer = blobs.join(&own).display().to_string();
        tar(layout, &["--create", "--gzip", "--file", &layer, "usr"]);
        let document = json!({
            "layers": [{"digest": format!("sha256:{shared}")}, {"digest": format!("sha256:{own}")}],
            "annotations": {
                "org.opencontainers.image.revision": revision,
                "org.opencontainers.image.source": "https://git.example/sip",
            },
        });
        write_json(&blobs.join(&manifest), &document);
        let index = json!({"manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": format!("sha256:{manifest}"),
            "platform": {"architecture": "amd64", "os": "linux"},
            "annotations": {"org.opencontainers.image.ref.name": format!("localhost/{name}:{version}")},
        }]});
        write_json(&layout.join("index.json"), &index);
        fs::create_dir_all(self.images()).unwrap();
        let archive = self.images().join(format!("{name}.tar")).display().to_string();
        tar(layout, &["--create", "--file", &archive, "blobs", "index.json"]);
        write_json(&self.images().join(format!("{name}.cdx.json")), &json!({}));
    }
}

fn write_json(path: &Path, value: &Value) {
    fs::write(path, value.to_string()).unwrap();
}

/// What tar prints in a folder.
pub(super) fn tar(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("tar");
    printed(command.args(arguments).current_dir(folder).env("TZ", "UTC"))
}

/// What a command prints, which must succeed.
pub(super) fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}
