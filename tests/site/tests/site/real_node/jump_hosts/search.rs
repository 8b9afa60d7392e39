//! Searches for texts in what a pod holds: files, environments and command lines of all its processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Directories of files that the kernel makes up.
const MADE_UP: [&str; 3] = ["proc", "sys", "dev"];

/// Texts, in each form in which they could be written.
#[derive(Debug)]
pub(super) struct Needles(Vec<String>);

impl Needles {
    /// A user name and its password: as they are, as a Secret has them, and as HTTP sends them.
    pub(super) fn credentials(user: &str, password: &str) -> Self {
        let encoded = |text: &str| STANDARD.encode(text).trim_end_matches('=').to_owned();
        let forms = [
            user.to_owned(),
            password.to_owned(),
            encoded(user),
            encoded(password),
            encoded(&format!("{user}:{password}")),
        ];
        Self(forms.into())
    }

    pub(super) fn text(text: &str) -> Self {
        Self(vec![text.to_owned()])
    }

    pub(super) fn are_in(&self, bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        self.0.iter().any(|needle| text.contains(&**needle))
    }

    /// Files that have one of them, below directories.
    fn files_below(&self, directories: &[PathBuf]) -> Vec<String> {
        let mut grep = Command::new("grep");
        grep.args(["--recursive", "--text", "--files-with-matches", "--fixed-strings"])
            // A file may go while it is searched: keys are replaced as a whole.
            .arg("--no-messages");
        for needle in &self.0 {
            grep.arg("-e").arg(needle);
        }
        let output = grep.arg("--").args(directories).output().unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        listed.lines().map(str::to_owned).collect()
    }
}

/// The processes of a pod, as the machine of the test sees them.
#[derive(Debug)]
pub(super) struct Processes(Vec<PathBuf>);

impl Processes {
    /// Those in the control groups of a pod.
    pub(super) fn of_pod(uid: &str) -> Self {
        let group = format!("pod{uid}");
        let all = fs::read_dir("/proc").unwrap();
        let found = all.filter_map(|entry| Some(entry.ok()?.path()));
        let found = found.filter(|process| {
            fs::read_to_string(process.join("cgroup")).is_ok_and(|groups| groups.contains(&group))
        });
        Self(found.collect())
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// A file as a container of the pod sees it, in the first one that has it.
    pub(super) fn file(&self, path: &str) -> Option<Vec<u8>> {
        let mut processes = self.0.iter();
        processes.find_map(|process| fs::read(process.join("root").join(path.trim_start_matches('/'))).ok())
    }

    /// Whether a process runs with these words in its command line.
    pub(super) fn run(&self, words: &[&str]) -> bool {
        let mut lines = self
            .0
            .iter()
            .filter_map(|process| fs::read(process.join("cmdline")).ok());
        let words = words.join("\0");
        lines.any(|line| String::from_utf8_lossy(&line).contains(&words))
    }

    /// Where a text is: in an environment, a command line, or which file.
    pub(super) fn find(&self, needles: &Needles) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for process in &self.0 {
            for part in ["environ", "cmdline"] {
                if fs::read(process.join(part)).is_ok_and(|bytes| needles.are_in(&bytes)) {
                    found.insert(part.to_owned());
                }
            }
        }
        for root in self.roots() {
            let files = needles.files_below(&directories(&root));
            let below = format!("{}/", root.display());
            found.extend(
                files
                    .iter()
                    .map(|file| file.trim_start_matches(&*below).to_owned()),
            );
        }
        found
    }

    /// The root of each container, once.
    fn roots(&self) -> Vec<PathBuf> {
        let processes = self.0.iter();
        let roots: BTreeMap<PathBuf, PathBuf> = processes
            .filter_map(|process| Some((fs::read_link(process.join("ns/mnt")).ok()?, process.join("root"))))
            .collect();
        roots.into_values().collect()
    }
}

/// The directories of a root, but not those of the kernel.
fn directories(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let wanted = entries.filter(|entry| !MADE_UP.iter().any(|name| entry.file_name() == *name));
    wanted.map(|entry| entry.path()).collect()
}

#[test]
fn credentials_are_found_in_every_form() {
    let needles = Needles::credentials("root", "calvin");

    for (text, found) in [
        ("nothing", false),
        ("user=root", true),
        ("password: Y2Fsdmlu", true),
        ("Authorization: Basic cm9vdDpjYWx2aW4=", true),
    ] {
        assert_eq!(needles.are_in(text.as_bytes()), found, "{text}");
    }
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("with"), b"\0\xffcalvin\xff").unwrap();
    fs::write(directory.path().join("without"), "hobbes").unwrap();
    let files = needles.files_below(&[directory.path().to_owned()]);
    assert_eq!(files, [directory.path().join("with").display().to_string()]);
}
