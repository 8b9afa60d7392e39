//! `sip-sandbox bench`: what it refuses before it brings anything up.

use std::process::Command;

#[test]
fn a_site_too_small_for_its_clusters_is_refused_first() {
    for (options, words) in [
        (
            &[
                "--hosts",
                "100",
                "--clusters",
                "9",
                "--burst",
                "0",
                "--standing",
                "0",
            ][..],
            "--hosts 100: its clusters want 54 hosts of flavor control-plane, and 26 are",
        ),
        (
            &["--hosts", "100,10000", "--clusters", "9"],
            "--hosts 100: its clusters want 27 hosts of flavor control-plane, and 26 are",
        ),
        (
            &[
                "--hosts",
                "1000",
                "--clusters",
                "10",
                "--burst",
                "9",
                "--standing",
                "95",
            ],
            "--hosts 1000: its clusters want 315 hosts of flavor control-plane, and 260 are",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_sip-sandbox"))
            .arg("bench")
            .args(options)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{options:?}: {said}");
        assert!(said.contains(words), "{options:?}: {said}");
    }
}
