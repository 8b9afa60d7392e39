//! Clusters that change their size: what they have stays, and no rule is broken on the way.

use std::{collections::BTreeSet, time::Duration};

use kube::api::{DynamicObject, Patch, PatchParams};
use sandbox::wait;
use serde_json::json;

use crate::fixtures::{
    Role, Stage, cluster, fleet, held, host, in_role, members, on_shared_site, rack, sip_labels,
    told_before_it_went,
};

fn racks(hosts: &[DynamicObject]) -> Vec<&str> {
    let held = hosts.iter().filter(|host| !sip_labels(host).is_empty());
    held.map(rack).collect()
}

fn count(role: Role, active: u32) -> serde_json::Value {
    json!({"nodes": {role.name(): {"count": {"active": active}}}})
}

/// For how long a cluster that was touched is observed.
const LOOKED_AT_AGAIN: Duration = Duration::from_secs(3);

/// The `Ready` condition with its time of the last change.
fn ready_since(object: &DynamicObject) -> serde_json::Value {
    let conditions = object.data["status"]["conditions"].as_array().unwrap();
    let ready = conditions
        .iter()
        .find(|condition| condition["type"] == "Ready")
        .unwrap();
    json!([ready["status"], ready["lastTransitionTime"]])
}

#[test]
fn a_fourth_host_is_never_in_a_used_rack() {
    on_shared_site("growth", async |stage| {
        // Two in each of three racks: six hosts, but only three racks.
        stage.load(&fleet("growth", 3, 2, 0)).await;
        let shop = cluster("growth", "shop")
            .role(Role::ControlPlane, 3)
            .balanced(30_270);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let three = stage.labelled("growth", &shop).await;

        stage.edit(&shop, count(Role::ControlPlane, 4)).await;
        let why = stage.condition_is(&shop, "Ready", "False", "Unschedulable").await;
        assert!(why.contains("ControlPlane: 4 wanted"), "{why}");
        assert_eq!(stage.labelled("growth", &shop).await, three, "what it has stays");

        // Its name sorts last, so that whoever takes the first free host takes a wrong one.
        stage.load(&[host("growth", "cp", "r9", "zz")]).await;
        stage.ready(&shop).await;
        let four = stage.labelled("growth", &shop).await;
        assert!(
            three.keys().all(|name| four.contains_key(name)),
            "{three:?} {four:?}"
        );
        assert!(four.contains_key("growth-zz"), "{four:?}");
        let hosts = stage.hosts_of("growth").await;
        let racks = racks(&hosts);
        assert_eq!(racks.len(), 4);
        assert_eq!(racks.iter().collect::<BTreeSet<_>>().len(), 4, "{racks:?}");
    });
}

#[test]
fn shrinking_releases_exactly_the_surplus() {
    on_shared_site("shrink", async |stage| {
        stage.load(&fleet("shrink", 3, 1, 3)).await;
        let shop = cluster("shrink", "shop")
            .role(Role::ControlPlane, 3)
            .role(Role::Worker, 6)
            .balanced(30_280);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let before = stage.labelled("shrink", &shop).await;

        stage.edit(&shop, count(Role::Worker, 2)).await;
        stage.ready(&shop).await;

        let after = stage.labelled("shrink", &shop).await;
        assert_eq!(
            (
                in_role(&after, "ControlPlane").len(),
                in_role(&after, "Worker").len()
            ),
            (3, 2)
        );
        assert!(
            after.keys().all(|name| before.contains_key(name)),
            "{before:?} {after:?}"
        );
        let config = stage.haproxy_config(&shop, "worker").await;
        for surplus in before.keys().filter(|name| !after.contains_key(*name)) {
            assert!(
                !config.contains(surplus.as_str()),
                "{surplus} is still balanced to:\n{config}"
            );
        }
        for surplus in before.keys().filter(|name| !after.contains_key(*name)) {
            assert!(told_before_it_went(stage, &shop, surplus), "{surplus}");
        }
        let object = stage
            .until(&shop, "hold five hosts", |object| members(object).len() == 5)
            .await;
        assert_eq!(held(&members(&object)), after);

        grows_again(stage, &shop).await;
    });
}

/// What was released can be had again.
async fn grows_again(stage: &Stage, shop: &crate::fixtures::Cluster) {
    stage.edit(shop, count(Role::Worker, 9)).await;
    stage.ready(shop).await;
    let held = stage.labelled("shrink", shop).await;
    assert_eq!(in_role(&held, "Worker").len(), 9);
}

#[test]
fn an_own_configuration_is_not_read_before_each_write() {
    on_shared_site("reads", async |stage| {
        stage.load(&fleet("reads", 3, 1, 4)).await;
        let shop = cluster("reads", "shop")
            .role(Role::ControlPlane, 3)
            .role(Role::Worker, 1)
            .balanced(30_275);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        for active in 2..=12 {
            stage.edit(&shop, count(Role::Worker, active)).await;
            stage.ready(&shop).await;
        }
        let asked = stage.asked_by_agents();
        let calls = |verb: &str| {
            let of_workers = asked.iter().filter(|entry| {
                let object = entry.object_ref.as_ref();
                entry.verb == verb
                    && object.is_some_and(|object| {
                        (&*object.resource, &*object.namespace, &*object.name)
                            == ("configmaps", "reads", "loadbalancer-worker-shop")
                    })
            });
            of_workers.count()
        };
        let (reads, writes) = (calls("get"), calls("patch"));
        assert!(writes >= 12, "{writes} writes");
        // Before the first write, and where the watch has fallen behind by more than one.
        assert!(2 * reads < writes, "{reads} reads, {writes} writes");
    });
}

#[test]
fn a_satisfied_cluster_stays_ready_when_no_host_is_free() {
    on_shared_site("satisfied", async |stage| {
        stage.load(&fleet("satisfied", 2, 1, 1)).await;
        let shop = cluster("satisfied", "shop")
            .role(Role::ControlPlane, 2)
            .role(Role::Worker, 2)
            .balanced(30_290);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let held = stage.labelled("satisfied", &shop).await;

        let late = cluster("satisfied", "late").role(Role::Worker, 1);
        stage.create(&late).await;
        let why = stage.condition_is(&late, "Ready", "False", "Unschedulable").await;
        assert!(why.contains("Worker: 1 wanted"), "{why}");
        stage.event(&late, "Unschedulable", "Worker: 1 wanted").await;

        // Everything is looked at again, with nothing to take: first for a new generation, which the other agents have to
        // answer first, and then for the same one.
        stage
            .edit(
                &shop,
                json!({"nodes": {"Worker": {"count": {"active": 1, "standby": 1}}}}),
            )
            .await;
        let before = ready_since(&stage.ready(&shop).await);
        assert_eq!(stage.labelled("satisfied", &shop).await, held);
        stage
            .clusters("satisfied")
            .patch(
                "shop",
                &PatchParams::default(),
                &Patch::Merge(json!({"metadata": {"annotations": {"looked-at": "again"}}})),
            )
            .await
            .unwrap();
        // The agents look at it again within this time, and more than once.
        let until = tokio::time::Instant::now() + LOOKED_AT_AGAIN;
        while tokio::time::Instant::now() < until {
            let after = stage.ready(&shop).await;
            assert!(wait::is_true(&after, "Scheduled"));
            assert_eq!(ready_since(&after), before, "it was not Ready for a while");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(stage.labelled("satisfied", &shop).await, held);

        // A free host at last: it goes to the one that waits, without being asked.
        stage.load(&[host("satisfied", "worker", "r3", "new")]).await;
        stage.ready(&late).await;
        let taken = stage.labelled("satisfied", &late).await;
        assert_eq!(in_role(&taken, "Worker"), ["satisfied-new"]);
    });
}
