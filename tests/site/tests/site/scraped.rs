//! What whoever scrapes the agents reads.

use std::collections::BTreeSet;

use sandbox::region::Agent;

use crate::fixtures::{AGENTS, Role, Stage, cluster, fleet};

/// The values of a metric: what its lines say beyond its name, with the number.
pub(crate) fn samples<'a>(metrics: &'a str, name: &str) -> Vec<(&'a str, f64)> {
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(name));
    let samples = lines.filter(|rest| rest.starts_with(['{', ' ']));
    samples
        .map(|sample| sample.rsplit_once(' ').unwrap())
        .map(|(labels, number)| (labels, number.parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn metrics_count_clusters_and_hosts_without_names() {
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
    stage
        .condition_is(&large, "Scheduled", "False", "Unschedulable")
        .await;
    stage.create(&invalid).await;
    stage
        .condition_is(&invalid, "Scheduled", "False", "InvalidSpec")
        .await;

    let metrics = stage.metrics_of(Agent::Cluster).await;
    assert_eq!(
        samples(&metrics, "sip_cluster_agent_host_writes_total"),
        [("{outcome=\"succeeded\"}", 3.0)],
        "a host is written once\n{metrics}"
    );
    let answers = samples(&metrics, "sip_cluster_agent_declarations_total");
    let outcomes: BTreeSet<&str> = answers.iter().map(|(outcome, _)| *outcome).collect();
    assert_eq!(
        outcomes,
        BTreeSet::from(["{outcome=\"placed\"}", "{outcome=\"refused\"}"]),
        "{metrics}"
    );
    for agent in AGENTS {
        let metrics = stage.metrics_of(agent).await;
        sandbox::promtool::check_metrics(&metrics).unwrap();
        assert_eq!(samples(&metrics, "sip_agent_is_leader"), [("", 1.0)], "{metrics}");
        for (name, counted) in [
            ("sip_agent_reconciles_total", "{outcome=\"succeeded\"}"),
            ("sip_agent_api_requests_total", "{method=\"get\",code=\"200\"}"),
        ] {
            let samples = samples(&metrics, name);
            let mut counts = samples.iter();
            assert!(
                counts.any(|(labels, times)| *labels == counted && *times > 0.0),
                "{name}: {metrics}"
            );
        }
        for name in ["scraped", "shop", "metal/"] {
            assert!(!metrics.contains(name), "{name}: labels must stay few\n{metrics}");
        }
    }
}
