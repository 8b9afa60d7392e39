//! The image that jump hosts get programs from has these, and nothing else that runs: its containers hold a token for the API server.

use std::{collections::BTreeSet, fs, io::Read as _, path::Path, process::Command};

use images::catalogue::JUMP_HOST_TOOLS;
use sandbox::{programs, repository, tools};
use serde_json::Value;

/// Makes the image, and returns its archive and its bill of materials.
fn made(directory: &Path) -> (Vec<u8>, String) {
    let built = programs::path("sip-jump-host-sidecar").unwrap();
    let output = Command::new(programs::path("sip-images").unwrap())
        .args(["--uncompressed", "--workspace"])
        .arg(repository::root())
        .arg("--programs")
        .arg(built.parent().unwrap())
        .arg("--programs")
        .arg(tools::path("kubectl").unwrap().parent().unwrap())
        .arg("--output")
        .arg(directory)
        .arg(JUMP_HOST_TOOLS.name)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let file = |ending: &str| directory.join(format!("{}.{ending}", JUMP_HOST_TOOLS.name));
    (
        fs::read(file("tar")).unwrap(),
        fs::read_to_string(file("cdx.json")).unwrap(),
    )
}

/// Paths of files with their modes and contents.
fn entries(archive: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let path = entry.path().unwrap().display().to_string();
        (path, entry.header().mode().unwrap(), content)
    });
    entries.collect()
}

#[test]
fn the_tools_of_jump_hosts_are_three_programs_and_no_shell() {
    let directory = tempfile::tempdir().unwrap();

    let (archive, bill) = made(directory.path());

    let mut programs = BTreeSet::new();
    for (blob, _, content) in entries(&archive) {
        // Layers are the blobs that are no documents.
        if !blob.starts_with("blobs/") || serde_json::from_slice::<Value>(&content).is_ok() {
            continue;
        }
        for (path, mode, _) in entries(&content) {
            assert_eq!(mode & 0o6000, 0, "{path} runs with the rights of its owner");
            if mode & 0o111 != 0 && !path.ends_with('/') && !path.contains(".so") {
                programs.insert(path);
            }
        }
    }
    let expected = ["host", "kubectl", "sip-jump-host-sidecar"].map(|name| format!("usr/local/bin/{name}"));
    assert_eq!(programs, BTreeSet::from(expected));
    for part in [
        "pkg:golang/std@",
        "pkg:golang/k8s.io/kubectl@v",
        "pkg:cargo/tonic@",
        "pkg:cargo/sip-host@",
    ] {
        assert!(bill.contains(part), "{part}");
    }
    assert_eq!(
        made(directory.path()),
        (archive, bill),
        "the same programs make the same image"
    );
}
