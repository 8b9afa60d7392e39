//! Hosts that a tenant cannot use, and what they do to others: nothing.

use std::collections::BTreeSet;

use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use sandbox::{inventory, inventory::NETWORK, region::Agent, sip_clusters::CLUSTER_NAME};
use serde_json::{Value, json};

use crate::{
    fixtures::{
        Role, SECOND_NAMESPACE, Stage, cluster, host, in_role, on_shared_site, set_network_data, sip_labels,
    },
    inventory_forms::reported,
};

/// Writes of labels to hosts of a scenario, by anybody's cluster.
fn labelled_ever(stage: &Stage, scenario: &str) -> BTreeSet<String> {
    let prefix = format!("{scenario}-");
    let asked = stage.asked_by_agents().into_iter();
    let labelled = asked.filter(|entry| {
        let labels = entry.request_object.pointer("/metadata/labels");
        labels.is_some_and(|labels| labels[CLUSTER_NAME].is_string())
    });
    labelled
        .filter_map(|entry| entry.object_ref)
        .map(|object| object.name)
        .filter(|name| name.starts_with(&prefix))
        .collect()
}

#[test]
fn defect_05_a_host_with_a_bad_secret_is_skipped() {
    on_shared_site("bad-secret", async |stage| {
        // They sort first, so that whoever takes before it looks takes these.
        let bad = ["a-text", "b-list", "c-address"];
        let bad_hosts = bad.map(|name| host("bad-secret", "cp", name, name));
        stage.load(&bad_hosts).await;
        for (host, data) in bad_hosts.iter().zip([
            "password: [hunter2\nnetworks: {",
            "networks: 7",
            "networks: [{id: oam-ipv4, ip_address: banana}]",
        ]) {
            set_network_data(stage, &host.name, data).await;
        }
        let good = ["x", "y", "z"].map(|name| host("bad-secret", "cp", name, name));
        stage.load(&good).await;
        for host in &good {
            reported(stage, &host.name, |host| host["addresses"].is_object()).await;
        }
        let shop = cluster("bad-secret", "shop")
            .role(Role::ControlPlane, 2)
            .balanced(30_605);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let held = stage.labelled("bad-secret", &shop).await;
        assert_eq!(in_role(&held, "ControlPlane"), ["bad-secret-x", "bad-secret-y"]);
        let ever = labelled_ever(stage, "bad-secret");
        assert_eq!(
            ever,
            held.keys().cloned().collect(),
            "hosts were taken on the way"
        );

        // And with every good host taken: it is refused, and takes nothing while it tries.
        stage
            .edit(
                &shop,
                json!({"nodes": {"ControlPlane": {"count": {"active": 4}}}}),
            )
            .await;
        stage.condition_is(&shop, "Ready", "False", "Unschedulable").await;
        assert_eq!(stage.labelled("bad-secret", &shop).await, held);
        assert_eq!(labelled_ever(stage, "bad-secret"), ever);
    });
}

#[test]
fn defect_09_hosts_of_one_name_in_two_namespaces_are_two_hosts() {
    on_shared_site("same-name", async |stage| {
        let hosts = [
            host("same-name", "cp", "r1", "one"),
            host("same-name", "cp", "r2", "two"),
        ];
        stage.load(&hosts).await;
        let others = hosts
            .clone()
            .map(|host| host.label(inventory::FLAVOR, "same-name-worker"));
        inventory::load(&stage.site.client(), SECOND_NAMESPACE, &others)
            .await
            .unwrap();
        let shop = cluster("same-name", "shop")
            .role(Role::ControlPlane, 2)
            .role(Role::Worker, 2);
        stage.create(&shop).await;
        let ready = stage.ready(&shop).await;

        let members = ready.data["status"]["placement"]["members"]
            .as_array()
            .unwrap()
            .clone();
        let held: BTreeSet<[&str; 3]> = members
            .iter()
            .map(|member| ["namespace", "name", "role"].map(|key| member[key].as_str().unwrap()))
            .collect();
        let expected = [("metal", "ControlPlane"), (SECOND_NAMESPACE, "Worker")]
            .into_iter()
            .flat_map(|(namespace, role)| {
                ["same-name-one", "same-name-two"].map(|name| [namespace, name, role])
            });
        assert_eq!(held, expected.collect());
        for namespace in ["metal", SECOND_NAMESPACE] {
            let hosts = inventory::api(stage.site.client(), namespace);
            for name in ["same-name-one", "same-name-two"] {
                let host = hosts.get(name).await.unwrap();
                assert_eq!(sip_labels(&host).len(), 3, "{namespace}/{name}");
            }
        }
    });
}

#[test]
fn defect_10_missing_counts_and_labels_crash_nothing() {
    on_shared_site("nothing-set", async |stage| {
        let mut bare = host("nothing-set", "worker", "r1", "bare");
        bare.labels.clear();
        stage
            .load(&[bare, host("nothing-set", "worker", "r2", "good")])
            .await;
        let selector = json!({"matchLabels": {inventory::FLAVOR: "nothing-set-worker"}});
        let wrong = [
            ("no-count", json!({"labelSelector": selector})),
            ("null-count", json!({"labelSelector": selector, "count": null})),
            ("no-numbers", json!({"labelSelector": selector, "count": {}})),
            ("empty-role", json!({})),
        ];
        for (name, role) in &wrong {
            stage
                .create(&cluster("nothing-set", name).with("/nodes/Worker", role.clone()))
                .await;
        }
        let shop = cluster("nothing-set", "shop").role(Role::Worker, 1);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        for (name, _) in &wrong {
            let said = stage
                .until(&cluster("nothing-set", name), "be answered", |object| {
                    sandbox::wait::condition(object, "Ready").is_some()
                })
                .await;
            assert!(crate::fixtures::members(&said).is_empty(), "{name} took hosts");
        }
        assert_eq!(
            in_role(&stage.labelled("nothing-set", &shop).await, "Worker"),
            ["nothing-set-good"]
        );
        let restarts = stage.site.audit_log().unwrap();
        let elections = restarts.iter().filter(|entry| {
            entry.user.username == crate::fixtures::user(Agent::Cluster)
                && entry.verb == "create"
                && entry
                    .object_ref
                    .as_ref()
                    .is_some_and(|object| object.resource == "leases")
        });
        assert_eq!(elections.count(), 1, "the agent was started once");
    });
}

#[test]
fn defect_14_each_service_needs_its_own_interface() {
    on_shared_site("interfaces", async |stage| {
        let with = |name: &str, networks: &[&str]| {
            let mut made = host("interfaces", "cp", name, name);
            let address = made.addresses[NETWORK];
            made.addresses = networks.iter().map(|id| ((*id).to_owned(), address)).collect();
            made
        };
        stage
            .load(&[
                with("a-first", &[NETWORK]),
                with("b-second", &["storage"]),
                with("c-both", &[NETWORK, "storage"]),
            ])
            .await;
        let balancer = |network: &str, port: u16| json!({"image": "haproxy:2.8", "nodeInterfaceId": network, "nodePort": port});
        let shop = cluster("interfaces", "shop").role(Role::ControlPlane, 2).with(
            "/services/loadBalancerControlPlane",
            json!([balancer(NETWORK, 30_610), balancer("storage", 30_611)]),
        );
        stage.create(&shop).await;
        // The first decision may be made before the scheduler knows all hosts.
        stage
            .condition_mentions(
                &shop,
                "Ready",
                "False",
                "Unschedulable",
                "ControlPlane: 2 wanted, 1 can be placed",
            )
            .await;

        stage
            .edit(
                &shop,
                json!({"nodes": {"ControlPlane": {"count": {"active": 1}}}}),
            )
            .await;
        stage.ready(&shop).await;
        let held = stage.labelled("interfaces", &shop).await;
        assert_eq!(in_role(&held, "ControlPlane"), ["interfaces-c-both"]);
    });
}

/// What makes a host that is available one that no tenant can have.
fn unfit() -> Vec<(&'static str, Value, Value)> {
    let annotation = |key: &str| json!({"metadata": {"annotations": {key: ""}}});
    let status = |value: &str| json!({"status": {"operationalStatus": value, "errorMessage": "no power"}});
    let machine = json!({"apiVersion": "x/v1", "kind": "Machine", "namespace": "elsewhere", "name": "other"});
    let none = Value::Null;
    vec![
        ("a-in-error", none.clone(), status("error")),
        ("b-servicing", none.clone(), status("servicing")),
        ("c-detached", none.clone(), status("detached")),
        (
            "d-consumed",
            json!({"spec": {"consumerRef": machine}}),
            none.clone(),
        ),
        (
            "e-paused",
            annotation("baremetalhost.metal3.io/paused"),
            none.clone(),
        ),
        (
            "f-detaching",
            annotation("baremetalhost.metal3.io/detached"),
            none.clone(),
        ),
        ("g-marked", annotation("sip.airshipit.org/failed"), none.clone()),
        (
            "h-unhealthy",
            annotation("capm3.metal3.io/unhealthy"),
            none.clone(),
        ),
        (
            "i-cordoned",
            annotation("sip.airshipit.org/cordoned"),
            none.clone(),
        ),
        (
            "j-deleting",
            json!({"metadata": {"finalizers": ["test.example/stays"]}}),
            none,
        ),
    ]
}

#[test]
fn defect_16_hosts_in_error_used_paused_or_ending_stay() {
    on_shared_site("unfit", async |stage| {
        let (hosts, params) = (stage.hosts(), PatchParams::default());
        for (name, object, status) in unfit() {
            let unfit = host("unfit", "cp", name, name);
            stage.load(std::slice::from_ref(&unfit)).await;
            if !object.is_null() {
                hosts
                    .patch(&unfit.name, &params, &Patch::Merge(object))
                    .await
                    .unwrap();
            }
            if !status.is_null() {
                hosts
                    .patch_status(&unfit.name, &params, &Patch::Merge(status))
                    .await
                    .unwrap();
            }
        }
        hosts
            .delete("unfit-j-deleting", &kube::api::DeleteParams::default())
            .await
            .unwrap();
        stage
            .load(&["y", "z"].map(|name| host("unfit", "cp", name, name)))
            .await;

        let shop = cluster("unfit", "shop").role(Role::ControlPlane, 3);
        stage.create(&shop).await;
        // The first decision may be made before the scheduler knows all hosts.
        stage
            .condition_mentions(
                &shop,
                "Ready",
                "False",
                "Unschedulable",
                "ControlPlane: 3 wanted, 2 can be placed",
            )
            .await;
        stage
            .edit(
                &shop,
                json!({"nodes": {"ControlPlane": {"count": {"active": 2}}}}),
            )
            .await;
        stage.ready(&shop).await;
        let held = stage.labelled("unfit", &shop).await;
        assert_eq!(in_role(&held, "ControlPlane"), ["unfit-y", "unfit-z"]);
        assert_eq!(labelled_ever(stage, "unfit"), held.keys().cloned().collect());

        // One that is well again is as good as any.
        let well = json!({"metadata": {"annotations": {"baremetalhost.metal3.io/paused": null}}});
        hosts
            .patch("unfit-e-paused", &params, &Patch::Merge(well))
            .await
            .unwrap();
        stage
            .edit(
                &shop,
                json!({"nodes": {"ControlPlane": {"count": {"active": 3}}}}),
            )
            .await;
        stage.ready(&shop).await;
        assert!(
            stage
                .labelled("unfit", &shop)
                .await
                .contains_key("unfit-e-paused")
        );
        for host in stage.hosts_of("unfit").await {
            if !held.contains_key(&host.name_any()) && host.name_any() != "unfit-e-paused" {
                assert!(sip_labels(&host).is_empty(), "{:?}", host.metadata);
            }
        }
        let stays = json!({"metadata": {"finalizers": null}});
        hosts
            .patch("unfit-j-deleting", &params, &Patch::Merge(stays))
            .await
            .unwrap();
    });
}
