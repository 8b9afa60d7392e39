//! Objects that are deleted and made again while a placement is under way, or all at once by a restore.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use sandbox::{inventory::NETWORK, region::Agent, wait};
use serde_json::json;

use super::{on_a_site_with_a_proxy, writes_a_host_of};
use crate::{
    faults::Fault,
    fixtures::{
        AGENTS, Cluster, PATIENCE, Role, Stage, cluster, held, host, make_again, members, sip_labels,
    },
};

/// Somebody takes the finalizer off a cluster and deletes it: it is gone at once, and nothing has been released.
pub(super) async fn delete_by_force(stage: &Stage, cluster: &Cluster) {
    let clusters = stage.clusters(&cluster.namespace);
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    clusters
        .patch(&cluster.name, &PatchParams::default(), &none)
        .await
        .unwrap();
    clusters
        .delete(&cluster.name, &DeleteParams::default())
        .await
        .unwrap();
    stage.gone(cluster).await;
}

#[test]
fn a_host_recreated_mid_placement_is_not_labelled() {
    on_a_site_with_a_proxy("host-again", async |site| {
        let only = host("host-again", "cp", "r1", "only");
        site.stage.load(std::slice::from_ref(&only)).await;
        let before = site.stage.hosts().get(&only.name).await.unwrap().uid().unwrap();
        let late = site
            .proxy()
            .inject(writes_a_host_of("host-again"), 0, Fault::HeldBefore);
        let shop = cluster("host-again", "shop").role(Role::ControlPlane, 1);
        site.stage.create(&shop).await;
        late.happens().await;
        make_again(&site.stage, &only).await;
        late.open();

        let now = site
            .stage
            .until(&shop, "hold the new host", |object| {
                let members = members(object);
                members.len() == 1 && members[0].uid != before && members[0].state == "Bound"
            })
            .await;
        site.stage.ready(&shop).await;
        let host = site.stage.hosts().get(&only.name).await.unwrap();
        assert_eq!(Some(&members(&now)[0].uid), host.uid().as_ref());
        assert_eq!(sip_labels(&host).len(), 3);
        let labelled: Vec<String> = site
            .stage
            .asked_by_agents()
            .into_iter()
            .filter(|entry| {
                entry
                    .object_ref
                    .as_ref()
                    .is_some_and(|object| object.name == only.name)
            })
            .filter(|entry| entry.verb == "patch" && entry.response_status.code == 200)
            .filter_map(|entry| {
                Some(
                    entry
                        .request_object
                        .pointer("/metadata/uid")?
                        .as_str()?
                        .to_owned(),
                )
            })
            .collect();
        assert_eq!(labelled, [host.uid().unwrap()], "once, and the one that there is");
    });
}

#[test]
fn a_cluster_recreated_mid_placement_takes_its_hosts_over() {
    on_a_site_with_a_proxy("cluster-again", async |site| {
        let hosts = ["a", "b", "c"].map(|name| host("cluster-again", "cp", name, name));
        site.stage.load(&hosts).await;
        let late = site
            .proxy()
            .inject(writes_a_host_of("cluster-again"), 0, Fault::HeldBefore);
        let shop = cluster("cluster-again", "shop").role(Role::ControlPlane, 2);
        let before = site.stage.create(&shop).await.uid();
        late.happens().await;
        delete_by_force(&site.stage, &shop).await;
        let after = site.stage.create(&shop).await.uid();
        assert_ne!(before, after);
        late.open();

        let ready = site.stage.ready(&shop).await;
        assert_eq!(ready.uid(), after);
        let labelled = site.stage.labelled("cluster-again", &shop).await;
        assert_eq!(labelled.len(), 2);
        assert_eq!(held(&members(&ready)), labelled);
        let request = json!({"site": "site-a", "cluster": {"namespace": "cluster-again", "name": "shop"}});
        let placement = site
            .stage
            .call("sip.placement.v1.PlacementService/GetPlacement", request)
            .await;
        assert_eq!(
            placement["placement"]["cluster"]["uid"].as_str(),
            after.as_deref()
        );
        site.stage.delete(&shop).await;
        site.stage.gone(&shop).await;
        let left = site.stage.hosts_of("cluster-again").await;
        assert!(left.iter().all(|host| sip_labels(host).is_empty()), "{left:#?}");
    });
}

#[test]
fn a_restore_with_new_uids_keeps_every_host_where_it_was() {
    on_a_site_with_a_proxy("restore", async |site| {
        let hosts = ["a", "b", "c", "d"].map(|name| host("restore", "cp", name, name));
        site.stage.load(&hosts).await;
        let shop = cluster("restore", "shop").role(Role::ControlPlane, 3);
        site.stage.create(&shop).await;
        site.stage.ready(&shop).await;
        let before = site.stage.labelled("restore", &shop).await;
        assert_eq!(before.len(), 3);

        // The agent is away while an administrator puts everything back from a backup, as it was: labels, no status.
        site.stage.agent(Agent::Cluster).kill9().await.unwrap();
        let found = site.stage.hosts_of("restore").await;
        let writes = site.stage.asked_by_agents().len();
        delete_by_force(&site.stage, &shop).await;
        for (host, found) in hosts.iter().zip(&found) {
            assert_eq!(host.name, found.name_any());
            let mut restored = host.clone();
            let labels = sip_labels(found);
            restored.labels.extend(
                labels
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value.to_owned())),
            );
            make_again(&site.stage, &restored).await;
        }
        site.stage.create(&shop).await;
        site.stage.agent(Agent::Cluster).restart().await.unwrap();

        let ready = site.stage.ready(&shop).await;
        assert_eq!(held(&members(&ready)), before);
        assert_eq!(site.stage.labelled("restore", &shop).await, before);
        let uids: Vec<String> = members(&ready).into_iter().map(|member| member.uid).collect();
        let restored = site.stage.hosts_of("restore").await;
        assert!(
            uids.iter()
                .all(|uid| restored.iter().any(|host| host.uid().as_ref() == Some(uid)))
        );
        let written = site.stage.asked_by_agents().split_off(writes);
        let written = written
            .iter()
            .filter(|entry| entry.verb == "patch")
            .filter(|entry| {
                entry
                    .object_ref
                    .as_ref()
                    .is_some_and(|object| object.name.starts_with("restore-"))
            });
        assert_eq!(written.count(), 0, "no host was written to");
    });
}

/// An object whose owner has never existed is gone: the garbage collector works.
async fn garbage_is_collected(maps: &Api<ConfigMap>) {
    let owner = json!({
        "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "name": "never",
        "uid": "00000000-0000-4000-8000-000000000000",
    });
    let garbage = json!({"metadata": {"name": "garbage", "ownerReferences": [owner]}});
    let garbage = serde_json::from_value(garbage).unwrap();
    maps.create(&PostParams::default(), &garbage).await.unwrap();
    wait::until_gone(maps.clone(), "garbage", PATIENCE).await.unwrap();
}

/// While its watch is interrupted, a cluster is deleted and made again: its next list shows the new one as a change of the former one.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_garbage_collector_misses_is_deleted() {
    const SCENARIO: &str = "missed";
    const NAME: &str = "loadbalancer-worker-shop";
    let mut stage = Stage::start(SCENARIO, &[Agent::Cluster]).await;
    stage
        .start_agent_where(Agent::LoadBalancer, |config| {
            config.ownerless_services_seconds = Some(1);
        })
        .await;
    stage.agents_are_ready().await;
    stage.site.create_tenant_namespace(SCENARIO).await.unwrap();
    let entry = json!({
        "image": "haproxy:2.8", "nodeInterfaceId": NETWORK, "nodePortRange": {"start": 31_349, "end": 31_349},
    });
    let shop = cluster(SCENARIO, "shop")
        .role(Role::Worker, 0)
        .with("/services/loadBalancerWorker", json!([entry]));
    let former = stage.create(&shop).await.uid().unwrap();
    stage.ready(&shop).await;

    for agent in AGENTS {
        stage.agent(agent).kill9().await.unwrap();
    }
    let services = Api::<Service>::namespaced(stage.site.client(), SCENARIO);
    let deployments = Api::<Deployment>::namespaced(stage.site.client(), SCENARIO);
    let maps = Api::<ConfigMap>::namespaced(stage.site.client(), SCENARIO);
    stage.site.control_plane().controller_manager.pause().unwrap();
    // Its connections have ended, so none holds an event for it.
    stage.site.restart_api_server().await.unwrap();
    delete_by_force(&stage, &shop).await;
    let uid = stage.create(&shop).await.uid().unwrap();
    // The API server knows no earlier event, so the garbage collector has to list.
    stage.site.restart_api_server().await.unwrap();
    stage.site.control_plane().controller_manager.resume().unwrap();
    garbage_is_collected(&maps).await;
    let left = services.get(NAME).await.unwrap();
    assert_eq!(left.owner_references()[0].uid, former);

    for agent in AGENTS {
        stage.agent(agent).restart().await.unwrap();
    }
    let ready = stage.ready(&shop).await;
    assert_eq!(ready.uid().as_ref(), Some(&uid));
    let made = [
        services.get(NAME).await.unwrap().metadata,
        deployments.get(NAME).await.unwrap().metadata,
        maps.get(NAME).await.unwrap().metadata,
    ];
    for metadata in made {
        let owners = metadata.owner_references.unwrap_or_default();
        let owners: Vec<_> = owners.into_iter().map(|owner| owner.uid).collect();
        assert_eq!(owners, [&*uid], "{:?}", metadata.name);
    }
    stage.nothing_was_forbidden();
}
