//! Labels are what Cluster API consumes: they come when every load balancer has the host, and never over somebody's use.

use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use sandbox::{
    audit::Entry,
    region::{Agent, HOSTS_NAMESPACE},
    sip_clusters::CLUSTER_NAME,
    wait,
};
use serde_json::{Value, json};

use crate::fixtures::{Role, Stage, cluster, fleet, held, members, sip_labels, user};

/// Writes of a cluster's name to hosts.
fn labellings(entries: &[Entry]) -> Vec<&Entry> {
    entries
        .iter()
        .filter(|entry| entry.verb == "patch" && entry.response_status.code == 200)
        .filter(|entry| is_about(entry, "baremetalhosts"))
        .filter(|entry| {
            let labels = entry.request_object.pointer("/metadata/labels");
            labels.is_some_and(|labels| labels[CLUSTER_NAME].is_string())
        })
        .collect()
}

fn is_about(entry: &Entry, resource: &str) -> bool {
    entry
        .object_ref
        .as_ref()
        .is_some_and(|object| object.resource == resource)
}

#[tokio::test]
async fn hosts_are_labelled_after_load_balancers_and_never_in_use() {
    let mut stage = Stage::start("site-a", &[Agent::Cluster]).await;
    stage.load(&fleet("last", 3, 1, 1)).await;
    stage.site.create_tenant_namespace("last").await.unwrap();
    let shop = cluster("last", "shop")
        .role(Role::ControlPlane, 3)
        .role(Role::Worker, 2)
        .balanced(30_400);
    stage.create(&shop).await;

    stage
        .condition_mentions(
            &shop,
            "HostsLabeled",
            "False",
            "Waiting",
            "not all load balancers have it in their configuration yet",
        )
        .await;
    let waiting = stage
        .until(&shop, "hold five hosts", |object| members(object).len() == 5)
        .await;
    let claimed = members(&waiting);
    assert!(
        claimed.iter().all(|member| member.state == "Claimed"),
        "{claimed:?}"
    );
    let progress = stage.condition_is(&shop, "Ready", "False", "Progressing").await;
    assert!(
        progress.contains("its agent has not set its condition yet"),
        "{progress}"
    );

    // Somebody uses one of them before it is handed over.
    let used = &claimed[0].name;
    let machine = json!({"apiVersion": "x/v1", "kind": "Machine", "namespace": "elsewhere", "name": "thief"});
    let consume = |consumer: Value| Patch::Merge(json!({"spec": {"consumerRef": consumer}}));
    stage
        .hosts()
        .patch(used, &PatchParams::default(), &consume(machine.clone()))
        .await
        .unwrap();
    let expected = format!("metal/{used}: it is used by Machine elsewhere/thief already");
    stage
        .condition_mentions(&shop, "HostsLabeled", "False", "Blocked", &expected)
        .await;
    for host in stage.hosts_of("last").await {
        assert!(sip_labels(&host).is_empty(), "{:?}", host.metadata.labels);
    }
    assert!(labellings(&stage.asked_by_agents()).is_empty());

    stage.start_agent(Agent::LoadBalancer, &[HOSTS_NAMESPACE]).await;
    let hosts = stage
        .until_hosts("last", "be labelled but for the one in use", |hosts| {
            hosts.iter().filter(|host| !sip_labels(host).is_empty()).count() == 4
        })
        .await;
    let thieves = hosts.iter().find(|host| host.name_any() == *used).unwrap();
    assert!(sip_labels(thieves).is_empty());
    assert_eq!(thieves.data["spec"]["consumerRef"], machine);
    stage
        .condition_mentions(&shop, "HostsLabeled", "False", "Blocked", &expected)
        .await;
    // There is no other host in a rack of its own: the claim stands until somebody lets go of the host.
    let why = "no host can replace 1 member";
    stage
        .condition_mentions(&shop, "Ready", "False", "Unschedulable", why)
        .await;

    stage
        .hosts()
        .patch(used, &PatchParams::default(), &consume(Value::Null))
        .await
        .unwrap();
    let ready = stage.ready(&shop).await;
    assert!(wait::is_true(&ready, "HostsLabeled"));
    assert_eq!(
        stage.labelled("last", &shop).await,
        held(&claimed),
        "the hosts that were claimed"
    );

    in_this_order(&stage);
    stage.nothing_was_forbidden();
}

/// Service and `ConfigMap` of both load balancers come before the first label, and each host is labelled once.
fn in_this_order(stage: &Stage) {
    let asked = stage.asked_by_agents();
    let labellings = labellings(&asked);
    assert_eq!(labellings.len(), 5, "{labellings:#?}");
    let first = labellings
        .iter()
        .map(|entry| &entry.request_received_timestamp)
        .min()
        .unwrap();
    for resource in ["services", "configmaps"] {
        let applied: Vec<&Entry> = asked
            .iter()
            .filter(|entry| entry.user.username == user(Agent::LoadBalancer))
            .filter(|entry| {
                entry.verb == "patch" && is_about(entry, resource) && entry.stage_timestamp < *first
            })
            .collect();
        assert!(
            applied.len() >= 2,
            "{resource} before the first label: {applied:#?}"
        );
    }
}
