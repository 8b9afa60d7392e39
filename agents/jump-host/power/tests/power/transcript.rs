//! `docs/jump-host-power.md`: its commands work, and print what it shows.

use std::{fs, path::Path, process::Stdio};

use regex::Regex;
use sandbox::{repository, tools};
use tokio::process::Command;

use crate::stage::Stage;

const DOCUMENT: &str = "docs/jump-host-power.md";

/// Commands (`sh`) with what they print (`text`), in the order of the document.
fn blocks(text: &str) -> Vec<(String, String)> {
    let fence = Regex::new(r"(?ms)^```(sh|text)\n(.*?)^```$").unwrap();
    let found: Vec<(&str, &str)> = fence
        .captures_iter(text)
        .map(|found| {
            let (_, [language, text]) = found.extract();
            (language, text)
        })
        .collect();
    let pairs = found.chunks(2).map(|pair| {
        let [("sh", command), ("text", output)] = pair else {
            panic!("{DOCUMENT}: a command without output, or output without command: {pair:?}");
        };
        ((*command).to_owned(), (*output).to_owned())
    });
    pairs.collect()
}

/// Lines that are `...` stand for any lines, `…` for any text within a line.
fn pattern(shown: &str) -> Regex {
    let lines = shown.lines().map(|line| {
        if line == "..." {
            "(?:.*\n)*?".to_owned()
        } else {
            format!("{}\n", regex::escape(line).replace('…', ".*"))
        }
    });
    Regex::new(&format!("^{}$", lines.collect::<String>())).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_shows_what_grpcurl_prints() {
    let stage = Stage::start("power-transcript", &["r1-h1", "r1-h2"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
    for name in ["r1-h1", "r1-h2"] {
        let host = stage.host(name, &stage.emulator.bmc_address(name)).await;
        stage.ledger.hold(&orders, &host, false);
    }
    let directory = tempfile::tempdir().unwrap();
    fs::copy(&stage.authority, directory.path().join("ca.crt")).unwrap();
    fs::write(directory.path().join("token"), stage.token(&jump_host).await).unwrap();
    let grpcurl = tools::path("grpcurl").unwrap();
    let path = format!(
        "{}:/usr/local/bin:/usr/bin:/bin",
        grpcurl.parent().unwrap_or(Path::new("/")).display()
    );

    let text = fs::read_to_string(repository::root().join(DOCUMENT)).unwrap();
    let blocks = blocks(&text);
    assert_eq!(blocks.len(), 4);
    // Functions and variables of one block are there in the next.
    let mut before = String::new();
    for (command, shown) in blocks {
        let script = format!("set -euo pipefail\n{before}\necho ----\n{command}");
        let run = Command::new("bash")
            .args(["-c", &script])
            .current_dir(directory.path())
            .env_clear()
            .env("PATH", &path)
            .env("SIP_POWER_ADDRESS", &stage.address)
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        let printed = String::from_utf8(run.stdout).unwrap();
        let (_, printed) = printed.split_once("----\n").unwrap();
        let errors = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{command}\n{printed}\n{errors}");
        assert!(
            pattern(&shown).is_match(printed),
            "{command}\nprints\n{printed}\nand the document shows\n{shown}"
        );
        if before.is_empty() {
            let (functions, _) = command.split_once("}\n").unwrap();
            before = format!("{functions}}}\n");
        }
    }
    assert_eq!(stage.emulator.resets().unwrap(), ["r1-h1"]);
}
