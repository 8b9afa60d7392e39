//! The command `host`, as a user of a jump host runs it.

use std::{path::PathBuf, process::Stdio};

use sandbox::{programs, redfish_emulator::PASSWORD};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    fault_server::{Fault, FaultServer},
    stage::Stage,
};

/// What a command has printed, and its exit code.
#[derive(Debug)]
struct Printed {
    code: i32,
    out: String,
    err: String,
}

/// A shell in a jump host: files as a pod has them.
struct Shell {
    directory: TempDir,
    address: String,
}

impl Shell {
    fn new(stage: &Stage, token: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("token"), format!("{token}\n")).unwrap();
        std::fs::copy(&stage.authority, directory.path().join("ca.crt")).unwrap();
        Self {
            directory,
            address: stage.address.clone(),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    async fn host(&self, arguments: &[&str]) -> Printed {
        let run = Command::new(programs::path("host").unwrap())
            .args(arguments)
            .env_clear()
            .env("SIP_POWER_ADDRESS", &self.address)
            .env(
                "SIP_POWER_SERVER_NAME",
                "sip-jump-host-agent-power.sip-system.svc",
            )
            .env("SIP_POWER_CA", self.file("ca.crt"))
            .env("SIP_POWER_TOKEN_FILE", self.file("token"))
            .env("SSH_USER_AUTH", self.file("auth"))
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        Printed {
            code: run.status.code().unwrap_or(-1),
            out: String::from_utf8(run.stdout).unwrap(),
            err: String::from_utf8(run.stderr).unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn host_reboot_changes_exactly_its_system() {
    let log = crate::log::log();
    let mut stage = Stage::start("power-commands", &["a", "b", "c"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let billing = stage.cluster("bank", "billing").await;
    let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
    for (name, cluster) in [("a", &orders), ("b", &orders), ("c", &billing)] {
        let host = stage.host(name, &stage.emulator.bmc_address(name)).await;
        stage.ledger.hold(cluster, &host, false);
    }
    let shell = Shell::new(&stage, &stage.token(&jump_host).await);
    let key = "publickey ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHkYbTUdYkDv2VvVb4rB1V9s9yq8VxC0xZ7Tq9m2QyZq\n";
    std::fs::write(shell.file("auth"), key).unwrap();

    let listed = shell.host(&["list"]).await;
    let rows: Vec<Vec<&str>> = listed
        .out
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let header = [
        "NAME",
        "NAMESPACE",
        "ORDINAL",
        "ROLE",
        "POWER",
        "PROVISIONING",
        "BLOCKED",
    ];
    assert_eq!(rows[0], header, "{listed:?}");
    assert_eq!(
        rows[1],
        ["a", "metal", "worker-0", "Worker", "on", "provisioned"],
        "{listed:?}"
    );
    assert_eq!((rows.len(), listed.code), (3, 0), "{listed:?}");

    let rebooted = shell.host(&["reboot", "a"]).await;
    assert_eq!(
        rebooted.out, "metal/a: GracefulRestart is done, the host is on\n",
        "{rebooted:?}"
    );
    assert_eq!(rebooted.code, 0);
    for progress in [
        "metal/a is on; sending GracefulRestart",
        "has accepted the action",
        "it is off",
    ] {
        assert!(rebooted.err.contains(progress), "{rebooted:?}");
    }
    assert_eq!(stage.emulator.resets().unwrap(), ["a"]);

    let on = shell.host(&["on", "b", "-o", "json"]).await;
    let json: Value = serde_json::from_str(&on.out).unwrap();
    assert_eq!(
        (&json["changed"], &json["powerState"]),
        (&false.into(), &"on".into()),
        "{on:?}"
    );
    let status = shell.host(&["-o", "json", "status", "worker-1"]).await;
    let json: Value = serde_json::from_str(&status.out).unwrap();
    assert_eq!(
        (&json["name"], &json["powerState"]),
        (&"b".into(), &"on".into()),
        "{status:?}"
    );
    let console = shell.host(&["console", "a"]).await;
    assert_eq!(console.out, "metal/a: its BMC offers no console\n", "{console:?}");

    let refused = shell.host(&["reboot", "c"]).await;
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(
        refused.err.contains("shop/orders holds no host \"c\""),
        "{refused:?}"
    );
    assert_eq!(stage.emulator.resets().unwrap(), ["a"]);

    std::fs::write(shell.file("token"), "forged").unwrap();
    let refused = shell.host(&["list"]).await;
    assert_eq!(refused.code, 3, "{refused:?}");
    std::fs::remove_file(shell.file("token")).unwrap();
    let unread = shell.host(&["list"]).await;
    assert_eq!(unread.code, 1, "{unread:?}");

    stage.end().await;
    assert_eq!(
        log.audit(&["host=\"metal/a\"", "claimed_key=\"SHA256:", "outcome=\"OK\""])
            .len(),
        1,
        "{}",
        log.text()
    );
    for printed in [&listed, &rebooted, &on, &status, &console, &refused, &unread] {
        assert!(!format!("{printed:?}").contains(PASSWORD), "{printed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn host_finds_the_replica_that_serves() {
    let mut stage = Stage::start("power-replicas", &["a"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
    let host = stage.host("a", &stage.emulator.bmc_address("a")).await;
    stage.ledger.hold(&orders, &host, false);
    let mut shell = Shell::new(&stage, &stage.token(&jump_host).await);

    // A replica on standby, which begins to serve while the command is looking for one.
    let replica = stage.serve().await;
    shell.address.clone_from(&stage.address);
    let nobody = shell.host(&["list", "--wait", "1"]).await;
    assert_eq!(nobody.code, 4, "{nobody:?}");
    assert!(nobody.err.contains("on standby"), "{nobody:?}");
    let power = stage.power().await;
    let (listed, ()) = tokio::join!(shell.host(&["list"]), async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        replica.lead(power);
    });
    assert_eq!(listed.code, 0, "{listed:?}");

    let script = shell.host(&["completion", "bash"]).await;
    assert!(script.out.contains("reboot") && script.code == 0, "{script:?}");
    let nowhere = Shell {
        address: "127.0.0.1:1".to_owned(),
        ..shell
    };
    let refused = nowhere.host(&["list", "--wait", "1"]).await;
    assert_eq!(refused.code, 4, "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_offers_too_much_hides_no_reason() {
    let stage = Stage::start("power-oversized", &["a"]).await;
    let orders = stage.cluster("shop", "orders").await;
    let jump_host = stage.jump_host(&orders, "jumphost-orders").await;
    let server = FaultServer::start(Fault::OffersTooMuch).await;
    let host = stage.host("own", &server.bmc_address()).await;
    stage.ledger.hold(&orders, &host, false);
    let shell = Shell::new(&stage, &stage.token(&jump_host).await);
    let refused = shell.host(&["reboot", "own"]).await;
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("offers none of"), "{refused:?}");
    assert!(server.actions().is_empty());
}
