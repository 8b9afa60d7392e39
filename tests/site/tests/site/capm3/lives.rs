//! What a host goes through between clusters and Machines, beyond being claimed.

use k8s_openapi::api::core::v1::{Event as CoreEvent, Secret};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::watcher,
};
use sandbox::{
    inventory::NETWORK,
    region::Agent,
    sip_clusters::{CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE, holder},
    site::HOST_CONSUMERS,
    wait,
};
use serde_json::{Value, json};

use super::{CLUSTER, Capm3, Claim, Metal3Machine, NODE_REUSE, Pauses, TEMPLATED, metal3_machine};
use crate::fixtures::{Cluster, PATIENCE, Role, Stage, cluster, given_back, host, on_shared_site};

const MEANT: &str = "sip.airshipit.org/cluster-api-cluster";

async fn name_cluster(stage: &Stage, cluster: &Cluster, value: Value) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {MEANT: value}}}));
    let clusters = stage.clusters(&cluster.namespace);
    clusters
        .patch(&cluster.name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn until_meant(stage: &Stage, host: &str, expected: Option<&str>) {
    let what = format!("annotation {MEANT} to be {expected:?}");
    wait::until(stage.hosts(), host, &what, PATIENCE, |host| {
        host.annotations().get(MEANT).map(String::as_str) == expected
    })
    .await
    .unwrap();
}

#[test]
fn the_node_reuse_label_is_removed_at_release() {
    on_shared_site("reuse", async |stage| {
        let mut capm3 = Capm3::install(&stage.site, Pauses::default(), 1).await;
        stage.load(&[host("reuse", "worker", "r1", "w1")]).await;
        let [first, next] = ["first", "next"].map(|name| cluster("reuse", name).role(Role::Worker, 1));
        stage.create(&first).await;
        stage.ready(&first).await;
        let reusing = Metal3Machine {
            reuses_for: Some("first-md".to_owned()),
            ..metal3_machine(&first, Role::Worker, 0)
        };
        assert_eq!(capm3.associate(&reusing).await, Claim::Has("reuse-w1".to_owned()));
        capm3.release(&reusing).await;
        let kept = stage.hosts().get("reuse-w1").await.unwrap();
        assert_eq!(
            kept.labels().get(NODE_REUSE).map(String::as_str),
            Some("first-md")
        );

        stage.delete(&first).await;
        stage.gone(&first).await;
        let back = stage.hosts().get("reuse-w1").await.unwrap();
        assert!(
            given_back(&back) && !back.labels().contains_key(NODE_REUSE),
            "{:?}",
            back.labels()
        );
        stage.create(&next).await;
        stage.ready(&next).await;
        let machine = metal3_machine(&next, Role::Worker, 0);
        assert_eq!(capm3.associate(&machine).await, Claim::Has("reuse-w1".to_owned()));
        capm3.release(&machine).await;
    });
}

#[test]
fn removed_labels_come_back_to_a_leaving_host_in_use() {
    on_shared_site("peeled", async |stage| {
        let mut capm3 = Capm3::install(&stage.site, Pauses::default(), 1).await;
        stage.load(&[host("peeled", "worker", "r1", "w1")]).await;
        let shop = cluster("peeled", "shop").role(Role::Worker, 1);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        let machine = metal3_machine(&shop, Role::Worker, 0);
        assert_eq!(
            capm3.associate(&machine).await,
            Claim::Has("peeled-w1".to_owned())
        );
        stage
            .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 0}}}}))
            .await;
        let used = "peeled-w1: to be released, it is still used by Metal3Machine";
        stage
            .condition_mentions(&shop, "HostsLabeled", "False", "Waiting", used)
            .await;

        let none = json!({CLUSTER_NAMESPACE: null, CLUSTER_NAME: null, NODE_TYPE: null});
        let patch = Patch::Merge(json!({"metadata": {"labels": none}}));
        let (hosts, params) = (stage.hosts(), PatchParams::default());
        let bare = hosts.patch("peeled-w1", &params, &patch).await.unwrap();
        assert_eq!(holder(&bare), None);
        let what = "have the labels of its Machine's cluster again";
        wait::until(stage.hosts(), "peeled-w1", what, PATIENCE, |host| {
            holder(host).is_some_and(|(of, _)| of == "peeled/shop")
        })
        .await
        .unwrap();
        stage
            .condition_mentions(&shop, "HostsLabeled", "False", "Waiting", used)
            .await;

        capm3.release(&machine).await;
        wait::until(stage.hosts(), "peeled-w1", "be released", PATIENCE, given_back)
            .await
            .unwrap();
        stage.ready(&shop).await;
    });
}

#[test]
fn addresses_survive_a_data_template() {
    on_shared_site("templated", async |stage| {
        let mut capm3 = Capm3::install(&stage.site, Pauses::default(), 1).await;
        let made = host("templated", "worker", "r1", "w1");
        let own = made.addresses[NETWORK].to_string();
        stage.load(&[made]).await;
        let [first, next] = [("first", 30_680), ("next", 30_684)]
            .map(|(name, port)| cluster("templated", name).role(Role::Worker, 1).balanced(port));
        stage.create(&first).await;
        stage.ready(&first).await;
        let templated = Metal3Machine {
            writes_network_data: true,
            ..metal3_machine(&first, Role::Worker, 0)
        };
        let name = "templated-w1";
        assert_eq!(capm3.associate(&templated).await, Claim::Has(name.to_owned()));
        let asked = json!({"site": stage.site.name(), "namespace": "metal", "name": name});
        let get = "sip.inventory.v1.InventoryService/GetHost";
        stage
            .until_answer(get, asked, |answer| answer.to_string().contains(TEMPLATED))
            .await;
        capm3.release(&templated).await;
        stage.delete(&first).await;
        stage.gone(&first).await;
        let back = stage.hosts().get(name).await.unwrap();
        assert_eq!(
            back.data["spec"]["networkData"]["name"], "templated-first-worker-0-networkdata",
            "it still names a Secret that is deleted"
        );
        let secrets: Api<Secret> = Api::namespaced(stage.site.client(), "metal");
        let rendered = secrets.get_opt("templated-first-worker-0-networkdata").await;
        assert!(rendered.unwrap().is_none(), "it is deleted with the Machine");

        // The next cluster needs an address in that network.
        stage.create(&next).await;
        stage.ready(&next).await;
        let balanced = stage.haproxy_config(&next, "worker").await;
        assert!(
            balanced.contains(&own) && !balanced.contains(TEMPLATED),
            "{balanced}"
        );
    });
}

#[test]
fn a_sipcluster_names_another_cluster() {
    on_shared_site("meant", async |stage| {
        let mut capm3 = Capm3::install(&stage.site, Pauses::default(), 1).await;
        stage.load(&[host("meant", "worker", "r1", "w1")]).await;
        let shop = cluster("meant", "shop").role(Role::Worker, 1);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        name_cluster(stage, &shop, json!("metal/stall")).await;
        until_meant(stage, "meant-w1", Some("metal/stall")).await;

        let own_name = metal3_machine(&shop, Role::Worker, 0);
        let Claim::Refused { words, .. } = capm3.associate(&own_name).await else {
            panic!("the policy knows no annotation")
        };
        assert!(
            words.contains("which serves the Cluster API cluster stall"),
            "{words}"
        );
        let named = Metal3Machine {
            cluster: "stall".to_owned(),
            ..own_name
        };
        assert_eq!(capm3.associate(&named).await, Claim::Has("meant-w1".to_owned()));
        stage.ready(&shop).await;

        // It can be corrected while the host is in use; nothing is taken from the Machine, and it is reported.
        name_cluster(stage, &shop, Value::Null).await;
        until_meant(stage, "meant-w1", None).await;
        let text = "of the Cluster API cluster stall";
        stage
            .condition_mentions(&shop, "Ready", "False", "UnableToApplyLabels", text)
            .await;
        capm3.release(&named).await;
        stage.ready(&shop).await;
        name_cluster(stage, &shop, json!("no/such/name")).await;
        stage
            .condition_mentions(&shop, "Scheduled", "False", "InvalidSpec", "NAMESPACE/NAME")
            .await;
    });
}

#[test]
fn a_stranger_is_a_condition_an_event_and_a_report() {
    on_shared_site("stranger", async |stage| {
        stage.load(&[host("stranger", "worker", "r1", "w1")]).await;
        let shop = cluster("stranger", "shop").role(Role::Worker, 1);
        stage.create(&shop).await;
        stage.ready(&shop).await;
        // Whoever is exempt from the policy can do this, or did it before the policy was applied.
        let mut other = metal3_machine(&shop, Role::Worker, 7);
        other.cluster = "stall".to_owned();
        let taken = |consumer: Value, cluster: Value| {
            Patch::Merge(json!({
                "metadata": {"labels": {CLUSTER: cluster}},
                "spec": {"consumerRef": consumer},
            }))
        };
        let (hosts, params) = (stage.hosts(), PatchParams::default());
        let patch = taken(other.reference(), json!("stall"));
        hosts.patch("stranger-w1", &params, &patch).await.unwrap();

        let text = "Metal3Machine metal/stranger-shop-worker-7 of the Cluster API cluster stall";
        stage
            .condition_mentions(&shop, "HostsLabeled", "False", "Blocked", text)
            .await;
        stage
            .condition_mentions(&shop, "Ready", "False", "UnableToApplyLabels", text)
            .await;
        let events: Api<CoreEvent> = Api::namespaced(stage.site.client(), "metal");
        let selected = "involvedObject.kind=BareMetalHost,involvedObject.name=stranger-w1";
        let config = watcher::Config::default().fields(selected);
        wait::until_all(events, config, "an Event on the host", PATIENCE, |events| {
            events
                .iter()
                .any(|event| event.message.as_deref().is_some_and(|note| note.contains(text)))
        })
        .await
        .unwrap();
        let asked = json!({"site": stage.site.name(), "namespace": "metal", "name": "stranger-w1"});
        stage
            .until_answer("sip.inventory.v1.InventoryService/GetHost", asked, |answer| {
                answer.to_string().contains(text)
            })
            .await;

        let patch = taken(Value::Null, Value::Null);
        hosts.patch("stranger-w1", &params, &patch).await.unwrap();
        stage.ready(&shop).await;
    });
}

#[tokio::test]
async fn the_agent_knows_the_shipped_policy() {
    let stage = Stage::start("known", &[Agent::Cluster]).await;
    stage
        .until_logged("ValidatingAdmissionPolicy sip-host-consumers is in force")
        .await;
    let delete = ["delete", "validatingadmissionpolicybinding", HOST_CONSUMERS];
    stage.kubectl(&delete).await;
    stage
        .until_logged("there is no ValidatingAdmissionPolicyBinding sip-host-consumers")
        .await;
    stage.nothing_was_forbidden();
}
