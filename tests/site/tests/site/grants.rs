//! Namespaces in which the load-balancer agent has rights, and those in which it has none.

use std::time::Instant;

use api::conditions::LOAD_BALANCER_READY;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use sandbox::{region::Agent, wait};
use serde_json::json;

use crate::{
    faults::{Call, Fault, Faulty},
    fixtures::{AGENTS, Cluster, PATIENCE, Role, Stage, cluster, fleet, given_back},
};

const NOT_GRANTED: &str = "NamespaceNotGranted";

/// Of the node port, so that several fit into a site.
fn shop(namespace: &str, port: u16) -> Cluster {
    cluster(namespace, "shop")
        .role(Role::ControlPlane, 1)
        .role(Role::Worker, 1)
        .balanced(port)
}

/// Waits until the agent reports that it has no rights. Returns the message.
async fn not_granted(stage: &Stage, cluster: &Cluster) -> String {
    stage
        .condition_is(cluster, LOAD_BALANCER_READY.as_str(), "False", NOT_GRANTED)
        .await
}

/// How many of its own objects the agent has in a namespace.
async fn made(stage: &Stage, namespace: &str) -> usize {
    let own = ListParams::default().labels("app.kubernetes.io/part-of=sip");
    let client = stage.site.client();
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let deployments = Api::<Deployment>::namespaced(client, namespace);
    services.list(&own).await.unwrap().items.len()
        + maps.list(&own).await.unwrap().items.len()
        + deployments.list(&own).await.unwrap().items.len()
}

/// How many watches of Deployments in a single namespace the API server has open. Nobody but the agent opens such.
async fn open_watches(stage: &Stage) -> u32 {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = stage.site.client().request_text(request).await.unwrap();
    let lines = metrics.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{")
            && [
                "resource=\"deployments\"",
                "scope=\"namespace\"",
                "verb=\"WATCH\"",
            ]
            .iter()
            .all(|label| line.contains(label))
    });
    let counts = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u32>().ok());
    counts.sum()
}

/// Waits until so many are open.
async fn watches(stage: &Stage, expected: u32) {
    let started = Instant::now();
    loop {
        let open = open_watches(stage).await;
        if open == expected {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{open} watches, not {expected}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn a_namespace_without_grant_is_reported_and_heals() {
    let mut stage = Stage::start("grants", &AGENTS).await;
    for scenario in ["ungranted", "granted"] {
        stage.load(&fleet(scenario, 2, 1, 1)).await;
    }
    stage.site.create_namespace("ungranted").await.unwrap();
    stage.site.create_tenant_namespace("granted").await.unwrap();
    watches(&stage, 0).await;
    let (refused, served) = (shop("ungranted", 31_800), shop("granted", 31_810));
    // A cluster without load balancers asks nothing of the agent.
    let bare = cluster("ungranted", "bare").role(Role::Worker, 0);
    for one in [&refused, &bare] {
        stage.create(one).await;
    }

    let message = not_granted(&stage, &refused).await;
    for part in [
        "sip-load-balancer-agent has no rights in namespace ungranted",
        "kubectl apply -k",
        "`namespace: ungranted`",
        "the component deploy/tenant-namespace",
        "cannot list resource \"deployments\"",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // Others go on, and the agent stays ready.
    stage.create(&served).await;
    stage.ready(&served).await;
    stage.agents_are_ready().await;
    assert_eq!(made(&stage, "ungranted").await, 0);
    let object = stage.ready(&bare).await;
    assert!(wait::condition(&object, LOAD_BALANCER_READY.as_str()).is_none());

    // It heals by itself once the namespace is granted.
    let before = stage.agent(Agent::LoadBalancer).pid();
    stage.site.grant_agents("ungranted").await.unwrap();
    let granted = Instant::now();
    stage.ready(&refused).await;
    println!("Ready {} ms after the grant", granted.elapsed().as_millis());
    assert_eq!(stage.agent(Agent::LoadBalancer).pid(), before);
    watches(&stage, 2).await;

    // With the last cluster of a namespace its watches end.
    for one in [&refused, &bare] {
        stage.delete(one).await;
        stage.gone(one).await;
    }
    watches(&stage, 1).await;
}

#[tokio::test]
async fn what_runs_stays_when_a_grant_is_taken_back() {
    let stage = Stage::start("revoked", &AGENTS).await;
    stage.load(&fleet("revoked", 2, 2, 1)).await;
    stage.site.create_tenant_namespace("revoked").await.unwrap();
    let shop = shop("revoked", 31_820);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    let before = stage.haproxy_config(&shop, "controlplane").await;

    // Nothing is asked of the API server before something changes.
    stage.site.revoke_agents("revoked").await.unwrap();
    let more = json!({"nodes": {"ControlPlane": {"count": {"active": 2}}}});
    stage.edit(&shop, more).await;
    not_granted(&stage, &shop).await;
    assert_eq!(stage.haproxy_config(&shop, "controlplane").await, before);
    assert_eq!(stage.labelled("revoked", &shop).await.len(), 2);

    stage.site.grant_agents("revoked").await.unwrap();
    stage.ready(&shop).await;
    assert_eq!(stage.labelled("revoked", &shop).await.len(), 3);
    assert_ne!(stage.haproxy_config(&shop, "controlplane").await, before);
}

#[tokio::test]
async fn without_a_grant_hosts_are_released_when_no_pod_is_left() {
    let stage = Stage::start("left", &AGENTS).await;
    stage.load(&fleet("left", 1, 1, 1)).await;
    stage.site.create_tenant_namespace("left").await.unwrap();
    let shop = shop("left", 31_830);
    stage.create(&shop).await;
    stage.ready(&shop).await;

    stage.site.revoke_agents("left").await.unwrap();
    stage.delete(&shop).await;
    // The pods may route to the hosts, and nobody who may delete them does.
    let waits = "waits until Deployment left/loadbalancer-controlplane-shop is gone";
    stage
        .condition_mentions(&shop, "Ready", "False", "Progressing", waits)
        .await;
    for host in stage.hosts_of("left").await {
        assert!(!given_back(&host), "{:?}", host.metadata);
    }
    let deployments: Api<Deployment> = Api::namespaced(stage.site.client(), "left");
    for deployment in deployments.list(&ListParams::default()).await.unwrap() {
        let name = deployment.name_any();
        deployments.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    stage.gone(&shop).await;
    for host in stage.hosts_of("left").await {
        assert!(given_back(&host), "{:?}", host.metadata);
    }
}

/// The cluster agent takes the condition for evidence that the load-balancer agent starts no pod.
#[tokio::test]
async fn rights_are_reported_before_a_pod_is_started() {
    let site = Faulty::start(&AGENTS).await;
    let stage = &site.stage;
    stage.load(&fleet("regranted", 2, 1, 1)).await;
    stage.site.create_namespace("regranted").await.unwrap();
    let shop = shop("regranted", 31_860);
    stage.create(&shop).await;
    not_granted(stage, &shop).await;
    let starts_pods = |call: &Call| call.verb == "patch" && call.resource == "deployments";
    let held = site.proxies[&Agent::LoadBalancer].inject(starts_pods, 0, Fault::HeldBefore);

    stage.site.grant_agents("regranted").await.unwrap();
    held.happens().await;
    let object = stage.clusters("regranted").get(&shop.name).await.unwrap();
    let (_, reason, message) = wait::condition(&object, LOAD_BALANCER_READY.as_str()).unwrap();
    assert_eq!(reason, "Progressing", "{message}");

    held.open();
    stage.ready(&shop).await;
}

#[tokio::test]
async fn a_namespace_that_cannot_be_listed_delays_no_other() {
    let site = Faulty::start(&AGENTS).await;
    let stage = &site.stage;
    let held: Vec<_> = (0..20)
        .map(|_| {
            let of_deployments = |call: &Call| {
                call.verb == "list" && call.resource == "deployments" && call.namespace == "slow"
            };
            site.proxies[&Agent::LoadBalancer].inject(of_deployments, 0, Fault::HeldBefore)
        })
        .collect();
    for scenario in ["slow", "quick"] {
        stage.load(&fleet(scenario, 2, 1, 1)).await;
        stage.site.create_tenant_namespace(scenario).await.unwrap();
    }
    let (slow, quick) = (shop("slow", 31_840), shop("quick", 31_850));
    stage.create(&slow).await;
    held[0].happens().await;
    stage.create(&quick).await;
    stage.ready(&quick).await;
    assert_eq!(
        made(stage, "slow").await,
        0,
        "nothing is done before the list is complete"
    );

    for one in &held {
        one.open();
    }
    stage.ready(&slow).await;
    stage.nothing_was_forbidden();
}
