//! Somebody uses a host before it has its labels, or after it has lost them.

use std::time::Duration;

use kube::ResourceExt as _;
use sandbox::{region::Agent, wait};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{HOSTS, on_a_site_with_a_proxy, writes_a_host_of};
use crate::{
    faults::{Call, Fault, Faulty},
    fixtures::{PATIENCE, Role, cluster, given_back, host, in_role, set_consumer, sip_labels},
};

fn thief() -> Value {
    json!({"apiVersion": "x/v1", "kind": "Machine", "namespace": "elsewhere", "name": "thief"})
}

/// How the API server has answered writes of the agent to a host.
fn answers(site: &Faulty, host: &str) -> Vec<u16> {
    let asked = site.stage.asked_by_agents().into_iter();
    let writes = asked.filter(|entry| entry.verb == "patch");
    let of = writes.filter(|entry| {
        entry
            .object_ref
            .as_ref()
            .is_some_and(|object| object.name == host)
    });
    of.map(|entry| entry.response_status.code).collect()
}

#[test]
fn a_consumer_before_the_label_write_keeps_the_host() {
    on_a_site_with_a_proxy("thief", async |site| {
        let hosts = ["a", "b"].map(|name| host("thief", "cp", name, name));
        site.stage.load(&hosts).await;
        let held = site
            .proxy()
            .inject(writes_a_host_of("thief"), 0, Fault::HeldBefore);
        let shop = cluster("thief", "shop").role(Role::ControlPlane, 1);
        site.stage.create(&shop).await;
        held.happens().await;
        set_consumer(&site.stage, "thief-a", thief()).await;
        held.open();

        site.stage.ready(&shop).await;
        let labelled = site.stage.labelled("thief", &shop).await;
        assert_eq!(in_role(&labelled, "ControlPlane"), ["thief-b"]);
        let taken = site.stage.hosts().get("thief-a").await.unwrap();
        assert!(given_back(&taken), "{:?}", taken.metadata);
        assert_eq!(taken.data["spec"]["consumerRef"], thief());
        assert_eq!(
            answers(site, "thief-a")[0],
            409,
            "the label was decided on an older host"
        );
    });
}

#[test]
fn a_consumer_after_the_unlabel_write_keeps_the_host() {
    on_a_site_with_a_proxy("late-user", async |site| {
        site.stage.load(&[host("late-user", "cp", "r1", "only")]).await;
        let (first, next) = (
            cluster("late-user", "first").role(Role::ControlPlane, 1),
            cluster("late-user", "next").role(Role::ControlPlane, 1),
        );
        site.stage.create(&first).await;
        site.stage.ready(&first).await;
        let held = site
            .proxy()
            .inject(writes_a_host_of("late-user"), 0, Fault::HeldAfter);
        site.stage.delete(&first).await;
        held.happens().await;
        set_consumer(&site.stage, "late-user-only", thief()).await;
        held.open();
        site.stage.gone(&first).await;

        site.stage.create(&next).await;
        let why = site
            .stage
            .condition_is(&next, "Ready", "False", "Unschedulable")
            .await;
        assert!(why.contains("ControlPlane: 1 wanted"), "{why}");
        let used = site.stage.hosts().get("late-user-only").await.unwrap();
        assert!(given_back(&used), "{:?}", used.metadata);
        assert_eq!(used.data["spec"]["consumerRef"], thief());

        set_consumer(&site.stage, "late-user-only", Value::Null).await;
        site.stage.ready(&next).await;
        assert_eq!(site.stage.labelled("late-user", &next).await.len(), 1);
    });
}

#[test]
fn a_stale_watch_cache_labels_no_taken_host() {
    on_a_site_with_a_proxy("stale", async |site| {
        site.stage.load(&[host("stale", "cp", "r1", "only")]).await;
        let shop = cluster("stale", "shop").role(Role::ControlPlane, 2);
        site.stage.create(&shop).await;
        // It has seen the host: it says that it is the only one.
        site.stage
            .condition_mentions(
                &shop,
                "Ready",
                "False",
                "Unschedulable",
                "2 wanted, 1 can be placed",
            )
            .await;
        site.proxy().freeze(HOSTS);
        set_consumer(&site.stage, "stale-only", thief()).await;
        site.stage
            .edit(
                &shop,
                json!({"nodes": {"ControlPlane": {"count": {"active": 1}}}}),
            )
            .await;
        let refused = async {
            while answers(site, "stale-only").len() < 2 {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(crate::fixtures::PATIENCE, refused)
            .await
            .unwrap();
        assert!(answers(site, "stale-only").iter().all(|code| *code == 409));
        site.proxy().thaw(HOSTS);

        let expected = "metal/stale-only: it is used by Machine elsewhere/thief already";
        site.stage
            .condition_mentions(&shop, "HostsLabeled", "False", "Blocked", expected)
            .await;
        let host = site.stage.hosts().get("stale-only").await.unwrap();
        assert!(sip_labels(&host).is_empty(), "{:?}", host.labels());
        set_consumer(&site.stage, "stale-only", Value::Null).await;
        site.stage.ready(&shop).await;
    });
}

/// A Machine of Cluster API, which the agent reads to name it.
fn machine() -> Value {
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
        "kind": "Metal3Machine",
        "namespace": "metal",
        "name": "shop-0",
    })
}

#[test]
fn a_host_freed_during_an_agents_first_pass_is_released() {
    on_a_site_with_a_proxy("let-go", async |site| {
        site.stage.load(&[host("let-go", "worker", "r1", "only")]).await;
        let shop = cluster("let-go", "shop").role(Role::Worker, 1);
        site.stage.create(&shop).await;
        site.stage.ready(&shop).await;
        set_consumer(&site.stage, "let-go-only", machine()).await;
        let none = json!({"nodes": {"Worker": {"count": {"active": 0}}}});
        site.stage.edit(&shop, none).await;
        site.stage
            .condition_mentions(&shop, "HostsLabeled", "False", "Waiting", "still used")
            .await;

        // The pass has read the host when it reads the Machine.
        site.stage.agent(Agent::Cluster).kill9().await.unwrap();
        let reads = |call: &Call| call.verb == "get" && call.resource == "metal3machines";
        let held = site.proxy().inject(reads, 0, Fault::HeldBefore);
        site.stage.agent(Agent::Cluster).restart().await.unwrap();
        held.happens().await;
        set_consumer(&site.stage, "let-go-only", Value::Null).await;
        let is_reported = async {
            let host = json!({"site": "site-a", "namespace": "metal", "name": "let-go-only"});
            loop {
                let found = site
                    .stage
                    .call("sip.inventory.v1.InventoryService/GetHost", host.clone())
                    .await;
                if found.pointer("/host/host/consumer").is_none() {
                    return;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, is_reported).await.unwrap();
        held.open();

        wait::until(
            site.stage.hosts(),
            "let-go-only",
            "be released",
            PATIENCE,
            given_back,
        )
        .await
        .unwrap();
    });
}
