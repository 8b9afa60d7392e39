//! What whoever scrapes the agents reads.

use std::collections::BTreeSet;

use sandbox::region::Agent;

use crate::fixtures::{AGENTS, Role, Stage, cluster, fleet};

/// The values of a metric: what its lines say beyond its name, with the number.
fn samples<'a>(metrics: &'a str, name: &str) -> Vec<(&'a str, f64)> {
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(name));
    let samples = lines.filter(|rest| rest.starts_with(['{', ' ']));
    samples
        .map(|sample| sample.rsplit_once(' ').unwrap())
        .map(|(labels, number)| (labels, number.parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn an_agent_counts_what_has_become_of_clusters_and_hosts_and_never_names_them() {
    let stage = Stage::start("site-a", &AGENTS).await;
    stage.load(&fleet("scraped", 2, 1, 1)).await;
    stage.site.create_tenant_namespace("scraped").await.unwrap();
    let shop = cluster("scraped", "shop")
        .role(Role::ControlPlane, 1)
        .role(Role::Worker, 2)
        .balanced(31_090);
    let large = cluster("scraped", "large").role(Role::Worker, 3);
    let invalid = cluster("scraped", "invalid")
        .role(Role::Worker, 1)
        .with("/nodes/Worker/count", serde_json::Value::Null);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    stage.create(&large).await;
    stage.says(&large, "Scheduled", "False", "Unschedulable").await;
    stage.create(&invalid).await;
    stage.says(&invalid, "Scheduled", "False", "InvalidSpec").await;

    let metrics = stage.metrics_of(Agent::Cluster).await;
    assert_eq!(
        samples(&metrics, "host_writes_total"),
        [("{outcome=\"Done\"}", 3.0)],
        "a host is written once\n{metrics}"
    );
    let answers = samples(&metrics, "placements_total");
    let outcomes: BTreeSet<&str> = answers.iter().map(|(outcome, _)| *outcome).collect();
    assert_eq!(
        outcomes,
        BTreeSet::from(["{outcome=\"Placed\"}", "{outcome=\"Refused\"}"]),
        "{metrics}"
    );
    for agent in AGENTS {
        let metrics = stage.metrics_of(agent).await;
        for name in ["scraped", "shop", "metal/"] {
            assert!(!metrics.contains(name), "{name}: labels must stay few\n{metrics}");
        }
    }
}
