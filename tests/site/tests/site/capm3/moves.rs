//! `clusterctl move`: a consumed host leaves for another management cluster and comes back.

use kube::ResourceExt as _;
use metal3::mover::Mover;
use sandbox::{crds, region::HOSTS_NAMESPACE, site::Site};
use serde_json::json;

use super::{Capm3, Claim, Pauses, metal3_machine};
use crate::fixtures::{AGENTS, Cluster, Role, Stage, cluster, host, members, sip_labels};

const SCENARIO: &str = "pivoted";
/// Of a member whose host is gone and may come back.
const MISSING: &str = "its BareMetalHost is gone";

/// Waits until the scheduler reports this of a member. What it reports it has stored.
async fn until_reported(stage: &Stage, cluster: &Cluster, text: &str) {
    let named = json!({"namespace": cluster.namespace, "name": cluster.name});
    let asked = json!({"site": stage.site.name(), "cluster": named});
    let get = "sip.placement.v1.PlacementService/GetPlacement";
    stage
        .until_answer(get, asked, |answer| {
            answer["placement"]["reports"].to_string().contains(text)
        })
        .await;
}

#[tokio::test]
async fn a_host_that_clusterctl_moves_stays_with_its_cluster() {
    let stage = Stage::start(SCENARIO, &AGENTS).await;
    stage.site.create_tenant_namespace(SCENARIO).await.unwrap();
    let other = Site::builder("pivoted-to")
        .crds(crds::all())
        .namespace(HOSTS_NAMESPACE);
    let other = other.start().await.unwrap();
    stage
        .load(&["a", "b", "c"].map(|name| host(SCENARIO, "worker", name, name)))
        .await;
    let shop = cluster(SCENARIO, "shop").role(Role::Worker, 2);
    stage.create(&shop).await;
    stage.ready(&shop).await;
    let before = stage.labelled(SCENARIO, &shop).await;
    let mut capm3 = Capm3::install(&stage.site, Pauses::default(), 1).await;
    let machine = metal3_machine(&shop, Role::Worker, 0);
    let Claim::Has(name) = capm3.associate(&machine).await else {
        panic!("no host for {machine:?}")
    };
    let at_home = stage.hosts().get(&name).await.unwrap();

    let away = Mover::new(stage.site.client(), other.client(), HOSTS_NAMESPACE);
    away.pause(&name).await.unwrap();
    until_reported(&stage, &shop, "it is paused").await;
    away.recreate(&name).await.unwrap();
    let there = sandbox::inventory::api(other.client(), HOSTS_NAMESPACE);
    let moved = there.get(&name).await.unwrap();
    assert_eq!(sip_labels(&moved), sip_labels(&at_home));
    assert_eq!(moved.data["spec"]["consumerRef"], machine.reference());
    assert!(moved.data["status"].is_null() && moved.uid() != at_home.uid());
    until_reported(&stage, &shop, MISSING).await;

    let back = Mover::new(other.client(), stage.site.client(), HOSTS_NAMESPACE);
    back.recreate(&name).await.unwrap();
    back.resume(&name).await.unwrap();
    let uid = stage.hosts().get(&name).await.unwrap().uid().unwrap();
    stage
        .until(&shop, "hold the host under its new uid", |object| {
            let mut members = members(object).into_iter();
            members.any(|member| member.name == name && member.uid == uid && member.state == "Bound")
        })
        .await;
    stage.ready(&shop).await;
    assert_eq!(stage.labelled(SCENARIO, &shop).await, before);
    let hosts = stage.hosts_of(SCENARIO).await;
    let mut spare = hosts.iter().filter(|host| !before.contains_key(&host.name_any()));
    assert!(
        spare.all(|host| host.annotations().is_empty()),
        "no other host was claimed meanwhile"
    );
    stage.nothing_was_forbidden();
}
