//! Node ports: nodes have each of them once, and who comes later is told whose they are.

use k8s_openapi::api::core::v1::{Event, ResourceQuota, Service};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use sandbox::wait;
use serde_json::{Value, json};

use super::{objects, workers};
use crate::fixtures::{Cluster, PATIENCE, Role, Stage, cluster, on_shared_site};

fn on_ports(scenario: &str, name: &str, start: u16, end: u16) -> Cluster {
    cluster(scenario, name).role(Role::Worker, 0).with(
        "/services/loadBalancerWorker",
        json!([workers(start, end, &json!({}))]),
    )
}

/// Nothing was ever written under this name.
fn nothing_was_written(stage: &Stage, scenario: &str, name: &str) {
    for entry in stage.asked_by_agents() {
        let object = entry.object_ref.clone().unwrap_or_default();
        let written = entry.verb != "get" && object.namespace == scenario && object.name == name;
        assert!(!written, "{entry:#?}");
    }
}

#[test]
fn a_conflict_beside_a_good_balancer_is_an_event_too() {
    on_shared_site("port-beside", async |stage| {
        let first = on_ports("port-beside", "a-first", 31_106, 31_106);
        stage.create(&first).await;
        stage.ready(&first).await;

        let entries = [31_107, 31_106].map(|port| workers(port, port, &json!({})));
        let second = cluster("port-beside", "b-second")
            .role(Role::Worker, 0)
            .with("/services/loadBalancerWorker", json!(entries));
        stage.create(&second).await;
        stage
            .condition_is(&second, "LoadBalancerReady", "False", "PortConflict")
            .await;
        let owner = "31106 by Service port-beside/loadbalancer-worker-a-first";
        stage.event(&second, "PortConflict", owner).await;
    });
}

#[test]
fn an_overlapping_port_range_is_refused_before_any_write() {
    on_shared_site("port-ranges", async |stage| {
        let first = on_ports("port-ranges", "a-first", 31_110, 31_114);
        let second = on_ports("port-ranges", "b-second", 31_112, 31_118);
        let third = on_ports("port-ranges", "c-third", 31_117, 31_119);
        stage.create(&first).await;
        stage.ready(&first).await;

        stage.create(&second).await;
        let why = stage
            .condition_is(&second, "LoadBalancerReady", "False", "PortConflict")
            .await;
        let owner = "31112-31114 by Service port-ranges/loadbalancer-worker-a-first of SIPCluster port-ranges/a-first";
        assert!(why.contains(owner), "{why}");
        stage.event(&second, "PortConflict", owner).await;
        nothing_was_written(stage, "port-ranges", "loadbalancer-worker-b-second");

        // The second has none of its ports yet, and it came before.
        stage.create(&third).await;
        let why = stage
            .condition_is(&third, "LoadBalancerReady", "False", "PortConflict")
            .await;
        assert!(
            why.contains("31117-31118 by SIPCluster port-ranges/b-second, which is older"),
            "{why}"
        );
        nothing_was_written(stage, "port-ranges", "loadbalancer-worker-c-third");

        stage.delete(&first).await;
        stage.gone(&first).await;
        stage.ready(&second).await;
        stage
            .condition_mentions(
                &third,
                "LoadBalancerReady",
                "False",
                "PortConflict",
                "Service port-ranges/loadbalancer-worker-b-second",
            )
            .await;
        stage.delete(&second).await;
        stage.ready(&third).await;
    });
}

#[test]
fn a_conflict_names_nothing_of_another_namespace() {
    on_shared_site("theirs-ports", async |stage| {
        stage.site.create_tenant_namespace("secret-tenant").await.unwrap();
        let theirs = on_ports("secret-tenant", "secret-project", 31_250, 31_254);
        stage.create(&theirs).await;
        stage.ready(&theirs).await;
        // It is older and waits for the same ports, but has none of them.
        let waits = on_ports("secret-tenant", "secret-plan", 31_254, 31_256);
        stage.create(&waits).await;
        stage
            .condition_mentions(
                &waits,
                "LoadBalancerReady",
                "False",
                "PortConflict",
                "secret-project",
            )
            .await;

        let ours = on_ports("theirs-ports", "shop", 31_252, 31_256);
        stage.create(&ours).await;
        let why = stage
            .condition_is(&ours, "LoadBalancerReady", "False", "PortConflict")
            .await;
        assert!(why.contains("31252-31254 by another namespace"), "{why}");
        let events: Api<Event> = Api::namespaced(stage.site.client(), "theirs-ports");
        let notes = events.list(&ListParams::default()).await.unwrap();
        let status = serde_json::to_string(
            &stage
                .clusters(&ours.namespace)
                .get(&ours.name)
                .await
                .unwrap()
                .data["status"],
        )
        .unwrap();
        let notes = notes.into_iter().filter_map(|event| event.message);
        for text in notes.chain([status]) {
            assert!(!text.contains("secret"), "{text}");
        }
    });
}

#[test]
fn a_refused_cluster_holds_no_ports_of_other_namespaces() {
    on_shared_site("wished-ports", async |stage| {
        stage
            .site
            .create_tenant_namespace("wishing-tenant")
            .await
            .unwrap();
        let quotas: Api<ResourceQuota> = Api::namespaced(stage.site.client(), "wishing-tenant");
        let none = json!({"metadata": {"name": "none"}, "spec": {"hard": {"services.nodeports": "0"}}});
        quotas
            .create(&PostParams::default(), &serde_json::from_value(none).unwrap())
            .await
            .unwrap();
        wait::until(
            quotas,
            "none",
            "the quota to be in force",
            PATIENCE,
            |quota: &ResourceQuota| quota.status.as_ref().is_some_and(|status| status.used.is_some()),
        )
        .await
        .unwrap();
        let wishes = on_ports("wishing-tenant", "a-wish", 31_270, 31_279);
        stage.create(&wishes).await;
        stage
            .condition_is(&wishes, "LoadBalancerReady", "False", "Refused")
            .await;

        let shop = on_ports("wished-ports", "shop", 31_270, 31_271);
        stage.create(&shop).await;
        stage.ready(&shop).await;
    });
}

#[test]
fn a_cluster_that_is_not_placed_reserves_no_node_ports() {
    on_shared_site("reserved-ports", async |stage| {
        let holder = on_ports("reserved-ports", "z-holder", 31_260, 31_260);
        stage.create(&holder).await;
        stage.ready(&holder).await;
        let entries = json!([workers(31_260, 31_264, &json!({}))]);
        let greedy = cluster("reserved-ports", "a-greedy")
            .role(Role::Worker, 1_000)
            .with("/services/loadBalancerWorker", entries);
        stage.create(&greedy).await;
        stage
            .condition_is(&greedy, "Scheduled", "False", "Unschedulable")
            .await;
        stage
            .condition_is(&greedy, "LoadBalancerReady", "False", "PortConflict")
            .await;
        let shop = on_ports("reserved-ports", "b-shop", 31_261, 31_264);
        stage.create(&shop).await;
        stage.ready(&shop).await;
    });
}

#[test]
fn several_entries_of_a_kind_are_as_many_load_balancers() {
    on_shared_site("several", async |stage| {
        let of = objects(stage, "several");
        let entries = json!([
            workers(31_120, 31_121, &json!({})),
            workers(31_122, 31_123, &json!({}))
        ]);
        let shop = cluster("several", "shop")
            .role(Role::Worker, 0)
            .with("/services/loadBalancerWorker", entries);
        stage.create(&shop).await;
        let ready = stage.ready(&shop).await;
        let endpoints: Vec<Value> = ready.data["status"]["endpoints"].as_array().unwrap().clone();
        let ports: Vec<_> = endpoints
            .iter()
            .map(|endpoint| {
                (
                    endpoint["name"].as_str().unwrap(),
                    endpoint["port"].as_u64().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            ports,
            [
                ("loadbalancer-worker-shop:31120", 31_120),
                ("loadbalancer-worker-shop:31121", 31_121),
                ("loadbalancer-worker-shop-1:31122", 31_122),
                ("loadbalancer-worker-shop-1:31123", 31_123),
            ]
        );
        let one = json!([workers(31_120, 31_121, &json!({}))]);
        stage
            .edit(&shop, json!({"services": {"loadBalancerWorker": one}}))
            .await;
        stage.ready(&shop).await;
        let left = of.services.list(&kube::api::ListParams::default()).await.unwrap();
        let left: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
        assert_eq!(left, ["loadbalancer-worker-shop"]);
    });
}

#[test]
fn objects_refused_by_a_quota_are_reported_and_retried() {
    on_shared_site("quota", async |stage| {
        let quotas: Api<ResourceQuota> = Api::namespaced(stage.site.client(), "quota");
        let none = json!({"metadata": {"name": "few"}, "spec": {"hard": {"services.nodeports": "0"}}});
        quotas
            .create(&PostParams::default(), &serde_json::from_value(none).unwrap())
            .await
            .unwrap();
        wait::until(
            quotas.clone(),
            "few",
            "the quota to be in force",
            PATIENCE,
            |quota: &ResourceQuota| quota.status.as_ref().is_some_and(|status| status.used.is_some()),
        )
        .await
        .unwrap();
        let shop = on_ports("quota", "shop", 31_165, 31_165);
        stage.create(&shop).await;
        stage
            .condition_mentions(
                &shop,
                "LoadBalancerReady",
                "False",
                "Refused",
                "exceeded quota: few",
            )
            .await;

        quotas.delete("few", &DeleteParams::default()).await.unwrap();
        stage.ready(&shop).await;
    });
}

#[test]
fn a_health_check_node_port_counts_as_taken() {
    on_shared_site("health-port", async |stage| {
        let theirs: Service = serde_json::from_value(json!({
            "metadata": {"name": "theirs", "namespace": "health-port"},
            "spec": {
                "type": "LoadBalancer", "externalTrafficPolicy": "Local", "allocateLoadBalancerNodePorts": false,
                "healthCheckNodePort": 31_181, "ports": [{"port": 80}],
            },
        }))
        .unwrap();
        let services = objects(stage, "health-port").services;
        services.create(&PostParams::default(), &theirs).await.unwrap();
        let shop = on_ports("health-port", "shop", 31_180, 31_182);
        stage.create(&shop).await;
        stage
            .condition_mentions(
                &shop,
                "LoadBalancerReady",
                "False",
                "PortConflict",
                "31181 by Service health-port/theirs",
            )
            .await;
        nothing_was_written(stage, "health-port", "loadbalancer-worker-shop");
        services.delete("theirs", &DeleteParams::default()).await.unwrap();
        stage.ready(&shop).await;
    });
}
