//! The image of jump hosts, made of this machine's Debian packages: it has what people need, and nothing that runs with more rights than
//! theirs or installs programs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use images::{Image, bill, catalogue::JUMP_HOST};
use serde_json::Value;

/// What compiles, installs or gives rights.
const ABSENT: [&str; 18] = [
    "apk", "apt", "apt-get", "as", "c++", "cc", "chsh", "dpkg", "g++", "gcc", "ld", "make", "mount",
    "passwd", "pip", "python3", "su", "sudo",
];

/// A file of a layer.
struct Entry {
    mode: u32,
    owner: u64,
    content: Vec<u8>,
}

fn made() -> (Image, bill::Contents) {
    let none =
        |name: &str| -> Result<PathBuf, String> { Err(format!("{name} is no program of the distribution")) };
    JUMP_HOST.image("localhost/sip-jump-host:1", none).unwrap()
}

/// The files of all layers, the upper ones last, and the image's configuration.
fn opened(archive: &Path) -> (BTreeMap<String, Entry>, Value) {
    let read = |bytes: &[u8]| -> BTreeMap<String, Entry> {
        let mut archive = tar::Archive::new(bytes);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            let header = entry.header();
            let entry_of = Entry {
                mode: header.mode().unwrap(),
                owner: header.uid().unwrap(),
                content,
            };
            (entry.path().unwrap().display().to_string(), entry_of)
        });
        entries.collect()
    };
    let layout = read(&fs::read(archive).unwrap());
    let blob = |digest: &Value| {
        let digest = digest["digest"].as_str().unwrap().replace(':', "/");
        &*layout[&format!("blobs/{digest}")].content
    };
    let document = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap() };
    let index = document(&layout["index.json"].content);
    let manifest = document(blob(&index["manifests"][0]));
    let mut files = BTreeMap::new();
    for layer in manifest["layers"].as_array().unwrap() {
        files.extend(read(blob(layer)));
    }
    (files, document(blob(&manifest["config"])))
}

#[test]
fn the_image_has_sshd_and_nothing_setuid() {
    let directory = tempfile::tempdir().unwrap();
    let archives = ["first", "second"].map(|name| directory.path().join(name));

    let written = archives
        .each_ref()
        .map(|archive| made().0.write(archive).unwrap());

    assert_eq!(written[0], written[1], "the same files make the same digest");
    let unpacked = written[0].unpacked;
    println!("{unpacked} bytes, not compressed");
    assert!(unpacked < 40_000_000, "{unpacked}");
    let (files, config) = opened(&archives[0]);
    assert_eq!(config["config"]["User"], "1000:1000");
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/sbin/sshd");
    for present in [
        "usr/sbin/sshd",
        "usr/bin/ssh",
        "bin/sh",
        "bin/bash",
        "usr/bin/ls",
        "lib/terminfo/x/xterm-256color",
        "usr/share/doc/openssh-server/copyright",
    ] {
        assert!(files.contains_key(present), "{present}");
    }
    let text = |path: &str| String::from_utf8(files[path].content.clone()).unwrap();
    assert!(text("etc/passwd").ends_with("ubuntu:x:1000:1000:ubuntu:/home/ubuntu:/bin/bash\n"));
    assert!(text("etc/passwd").starts_with("root:x:0:0:root:/root:/sbin/nologin\n"));
    assert!(text("etc/group").ends_with("tty:x:5:\nubuntu:x:1000:\n"));
    for (
        path,
        Entry {
            mode,
            owner,
            content: _,
        },
    ) in &files
    {
        let shared = path == "tmp/";
        assert_eq!(mode & 0o6000, 0, "{path} runs with the rights of its owner");
        assert!(mode & 0o022 == 0 || shared, "{path}: {mode:o}");
        assert_eq!(*owner, 0, "{path}");
        let name = path.trim_end_matches('/').rsplit('/').next().unwrap();
        let program = mode & 0o111 != 0 && !path.ends_with('/');
        assert!(!(program && ABSENT.contains(&name)), "{path}");
    }
    assert!(
        !files
            .keys()
            .any(|path| path.starts_with("var/lib/dpkg") || path.starts_with("etc/ssh/"))
    );
}

#[test]
fn the_bill_of_materials_names_all_packages() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");

    let text = bill::bill("sip-jump-host", "0.1.0", &workspace, &made().1).unwrap();

    for package in [
        "openssh-server",
        "openssh-client",
        "bash",
        "coreutils",
        "libc6",
        "libssl3",
        "ncurses-base",
    ] {
        assert!(
            text.contains(&format!("pkg:deb/debian/{package}@")),
            "{package}: {text}"
        );
    }
    assert!(
        !text.contains("pkg:cargo/"),
        "no program of this project is in it"
    );
}
