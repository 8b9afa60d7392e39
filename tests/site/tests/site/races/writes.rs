//! Writes to a `SIPCluster` that arrive after somebody else has written to it.

use std::{collections::BTreeSet, time::Duration};

use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use sandbox::region::{Agent, Replica};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::on_a_site_with_a_proxy;
use crate::{
    faults::{ApiProxy, Call, Fault},
    fixtures::{Cluster, PATIENCE, Role, Stage, cluster, host},
};

/// Short enough to wait for it, long enough for a busy machine.
const LEASE: Duration = Duration::from_secs(6);

/// The project's own finalizer.
const FINALIZER: &str = "sip.airship.airshipit.org/finalizer";

/// A patch of this resource in a scenario's namespace.
fn patches(resource: &'static str, scenario: &'static str) -> impl Fn(&Call) -> bool + Send + Sync {
    move |call| call.verb == "patch" && call.resource == resource && call.namespace == scenario
}

#[test]
fn a_finalizer_that_others_set_meanwhile_stays() {
    on_a_site_with_a_proxy("finalizers", async |site| {
        site.stage.load(&[host("finalizers", "cp", "r1", "only")]).await;
        let late = site
            .proxy()
            .inject(patches("sipclusters", "finalizers"), 0, Fault::HeldBefore);
        let shop = cluster("finalizers", "shop").role(Role::ControlPlane, 1);
        site.stage.create(&shop).await;
        late.happens().await;
        let foreign = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/backup"]}}));
        let clusters = site.stage.clusters("finalizers");
        clusters
            .patch(&shop.name, &PatchParams::default(), &foreign)
            .await
            .unwrap();
        late.open();

        let ready = site.stage.ready(&shop).await;
        let finalizers: BTreeSet<&str> = ready.finalizers().iter().map(String::as_str).collect();
        assert_eq!(finalizers, BTreeSet::from(["example.com/backup", FINALIZER]));
    });
}

/// The answer to each status with a placement that was written, and the placement's epoch and revision, in the order of the
/// writes.
fn written(stage: &Stage, cluster: &Cluster) -> Vec<(u16, (u64, u64))> {
    let placement = |status: &Value| {
        let number = |field: &str| status.pointer(&format!("/status/placement/{field}"))?.as_u64();
        Some((number("epoch")?, number("revision")?))
    };
    let entries = stage.asked_by_agents().into_iter().filter(|entry| {
        let object = entry.object_ref.clone().unwrap_or_default();
        (&*object.resource, &*object.subresource) == ("sipclusters", "status") && object.name == cluster.name
    });
    entries
        .filter_map(|entry| Some((entry.response_status.code, placement(&entry.request_object)?)))
        .collect()
}

#[tokio::test]
async fn a_placement_in_status_never_goes_back() {
    let stage = Stage::start("site-a", &[]).await;
    let (old, new) = (ApiProxy::to(&stage.site).await, ApiProxy::to(&stage.site).await);
    let replica = async |name: &'static str, proxy: &ApiProxy| {
        let config = stage.region.site_config(&stage.site);
        let replica = Replica {
            name,
            lease: LEASE,
            api_server: proxy.url(),
        };
        let started = stage
            .region
            .start_as(&stage.site, Agent::Cluster, &config, replica);
        let mut started = started.await.unwrap();
        started.is_ready().await.unwrap();
        started
    };
    let mut first = replica("first", &old).await;
    let _second = replica("second", &new).await;
    stage.load(&[host("back", "cp", "r1", "only")]).await;
    stage.site.create_tenant_namespace("back").await.unwrap();

    // The first status says Claimed. It is on its way while the other replica writes it and the next ones.
    let late = old.inject(patches("sipclusters/status", "back"), 0, Fault::HeldBefore);
    let shop = cluster("back", "shop").role(Role::ControlPlane, 1);
    stage.create(&shop).await;
    late.happens().await;
    first.process().pause().unwrap();
    stage.ready(&shop).await;
    let before = written(&stage, &shop).len();

    late.open();
    let arrives = async {
        while written(&stage, &shop).len() == before {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, arrives).await.expect("the late write arrives");
    stage.ready(&shop).await;
    let all = written(&stage, &shop);
    let accepted: Vec<(u64, u64)> = all
        .iter()
        .filter(|(code, _)| *code < 300)
        .map(|(_, of)| *of)
        .collect();
    assert!(accepted.is_sorted(), "a placement went back: {accepted:?}");
    assert_eq!(all[before].0, 409, "{all:?}");
}
