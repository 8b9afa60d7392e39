//! From the first claim to the last label: what is written, and in which order.

use kube::ResourceExt as _;
use sandbox::{
    audit::Entry,
    sip_clusters::{CLUSTER_NAME, CLUSTER_NAMESPACE, NODE_TYPE},
};

use crate::fixtures::{Role, cluster, fleet, on_shared_site};

const FINALIZER: &str = "sip.airship.airshipit.org/finalizer";

fn patches_of<'a>(asked: &'a [Entry], resource: &str, subresource: &str) -> Vec<&'a Entry> {
    let of = |entry: &&Entry| {
        let object = entry.object_ref.clone().unwrap_or_default();
        object.resource == resource && object.subresource == subresource && entry.verb == "patch"
    };
    asked.iter().filter(of).collect()
}

#[test]
fn defect_08_the_finalizer_is_there_before_the_first_claim() {
    on_shared_site("finalizer", async |stage| {
        stage.load(&fleet("finalizer", 2, 1, 0)).await;
        let shop = cluster("finalizer", "shop").role(Role::ControlPlane, 2);
        assert!(shop.object().finalizers().is_empty());
        stage.create(&shop).await;
        let ready = stage.ready(&shop).await;
        assert!(ready.finalizers().iter().any(|finalizer| finalizer == FINALIZER));

        let asked: Vec<Entry> = stage
            .asked_by_agents()
            .into_iter()
            .filter(|entry| {
                entry
                    .object_ref
                    .as_ref()
                    .is_some_and(|object| object.namespace == "finalizer")
            })
            .collect();
        let set = patches_of(&asked, "sipclusters", "")
            .into_iter()
            .find(|entry| entry.request_object.to_string().contains(FINALIZER))
            .expect("the finalizer is set by a patch of the agent");
        let first = patches_of(&asked, "sipclusters", "status")
            .into_iter()
            .find(|entry| entry.request_object.pointer("/status/placement").is_some())
            .expect("the claim is written to the status");
        assert!(set.stage_timestamp < first.request_received_timestamp);
    });
}

#[test]
fn defect_19_three_labels_in_one_write_after_the_status() {
    on_shared_site("one-write", async |stage| {
        stage.load(&fleet("one-write", 3, 1, 1)).await;
        let shop = cluster("one-write", "shop")
            .role(Role::ControlPlane, 3)
            .role(Role::Worker, 2)
            .balanced(30_615);
        stage.create(&shop).await;
        stage.ready(&shop).await;

        let asked = stage.asked_by_agents();
        let claimed = patches_of(&asked, "sipclusters", "status")
            .into_iter()
            .filter(|entry| {
                entry
                    .object_ref
                    .as_ref()
                    .is_some_and(|object| object.namespace == "one-write")
            })
            .find(|entry| {
                let members = entry.request_object.pointer("/status/placement/members");
                members
                    .and_then(serde_json::Value::as_array)
                    .is_some_and(|members| members.len() == 5)
            })
            .expect("the claim is written to the status");
        let labellings: Vec<&Entry> = patches_of(&asked, "baremetalhosts", "")
            .into_iter()
            .filter(|entry| {
                entry
                    .object_ref
                    .as_ref()
                    .is_some_and(|object| object.name.starts_with("one-write-"))
            })
            .collect();
        assert_eq!(labellings.len(), 5, "{labellings:#?}");
        for entry in labellings {
            let labels = &entry.request_object["metadata"]["labels"];
            for key in [CLUSTER_NAMESPACE, CLUSTER_NAME, NODE_TYPE] {
                assert!(labels[key].is_string(), "{entry:#?}");
            }
            assert!(claimed.stage_timestamp < entry.request_received_timestamp);
        }
    });
}
