//! What people see who only have kubectl, and what haproxy sees.

use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

use sandbox::sip_clusters::{CLUSTER_NAME, NODE_TYPE};

use crate::fixtures::{Role, addresses, cluster, fleet, in_role, on_shared_site};

/// The row of a table of kubectl's that begins with some cells, split at white space.
fn row<'a>(table: &'a str, begin: &[&str]) -> Vec<&'a str> {
    let found = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|cells| cells.starts_with(begin));
    found.unwrap_or_else(|| panic!("no row for {begin:?} in\n{table}"))
}

#[test]
fn kubectl_shows_readiness_and_hosts() {
    on_shared_site("tables", async |stage| {
        stage.load(&fleet("tables", 3, 1, 1)).await;
        let shop = cluster("tables", "shop")
            .role(Role::ControlPlane, 2)
            .role(Role::Worker, 3)
            .balanced(30_200);
        let too_big = cluster("tables", "too-big").role(Role::ControlPlane, 9);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        stage.create(&too_big).await;
        stage
            .condition_is(&too_big, "Ready", "False", "Unschedulable")
            .await;

        let clusters = stage.kubectl(&["get", "sipcluster", "-A"]).await;
        let header: Vec<&str> = clusters.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(
            header,
            [
                "NAMESPACE",
                "NAME",
                "READY",
                "REASON",
                "CONTROL-PLANE",
                "WORKERS",
                "AGE"
            ]
        );
        let ready = row(&clusters, &["tables", "shop"]);
        assert_eq!(
            ready[..6],
            ["tables", "shop", "True", "ReconciliationSucceeded", "2/2", "3/3"]
        );
        assert!(ready[6].ends_with(['s', 'm']), "no age: {ready:?}");
        let refused = row(&clusters, &["tables", "too-big"]);
        assert_eq!(
            refused[..5],
            ["tables", "too-big", "False", "Unschedulable", "0/9"]
        );

        let labels = format!("{CLUSTER_NAME},{NODE_TYPE}");
        let hosts = stage.kubectl(&["get", "bmh", "-n", "metal", "-L", &labels]).await;
        let held = stage.labelled("tables", &shop).await;
        assert_eq!(held.len(), 5);
        for (name, role) in &held {
            let cells = row(&hosts, &[name]);
            assert_eq!(cells[cells.len() - 2..], ["shop", role]);
        }
    });
}

/// What `haproxy -c` says of a configuration; warnings count as errors.
fn check(config: &str) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("haproxy.cfg");
    std::fs::write(&file, config).unwrap();
    let output = Command::new("haproxy")
        .args(["-c", "-dW", "-f"])
        .arg(&file)
        .stdin(Stdio::null())
        .output()
        .expect("these tests need haproxy in PATH (`make setup` installs it)");
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The addresses of all `server` lines, without their ports.
fn servers(config: &str) -> BTreeSet<&str> {
    let words = config
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    words
        .filter(|words| words.first() == Some(&"server"))
        .map(|words| words[2].rsplit_once(':').unwrap().0)
        .collect()
}

#[test]
fn haproxy_accepts_the_configuration_of_exactly_the_members() {
    on_shared_site("haproxy", async |stage| {
        let fleet = fleet("haproxy", 3, 2, 2);
        stage.load(&fleet).await;
        let shop = cluster("haproxy", "shop")
            .role(Role::ControlPlane, 3)
            .role(Role::Worker, 4)
            .balanced(30_210);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let (held, addresses) = (stage.labelled("haproxy", &shop).await, addresses(&fleet));

        for (kind, role, count) in [("controlplane", "ControlPlane", 3), ("worker", "Worker", 4)] {
            let config = stage.haproxy_config(&shop, kind).await;
            assert_eq!(check(&config), Ok(()), "{config}");
            let members = in_role(&held, role);
            assert_eq!(members.len(), count);
            let expected: BTreeSet<String> =
                members.iter().map(|name| addresses[*name].to_string()).collect();
            let named: BTreeSet<String> = servers(&config).into_iter().map(str::to_owned).collect();
            assert_eq!(named, expected, "{config}");
        }
    });
}
