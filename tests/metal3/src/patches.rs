//! What CAPM3 v1.13.2 writes to a host: `Associate`, `setHostSpec` and `Delete` of its machine manager. None of it has a resourceVersion or uid.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::{Value, json};

use crate::{
    metal3_machine::Metal3Machine,
    names::{CLUSTER, NODE_REUSE},
};

/// The image that every host gets.
pub(crate) const IMAGE: &str = "http://images.invalid/node.qcow2";

/// Claims a host, as it was when it was chosen. `network_data`: the Secret that a data template was rendered to.
#[must_use]
pub fn claim(machine: &Metal3Machine, chosen: &DynamicObject, network_data: Option<&str>) -> Value {
    let mut patch = json!({
        "metadata": {"labels": {CLUSTER: machine.cluster, NODE_REUSE: null}},
        "spec": {
            "consumerRef": machine.reference(), "online": true,
            "image": {"url": IMAGE, "checksum": format!("{IMAGE}.sha256")},
        },
    });
    if let Some(secret) = network_data {
        patch["spec"]["networkData"] = json!({"name": secret, "namespace": machine.namespace});
    }
    if let Some(owner) = machine.owner() {
        // Cluster API's patch helper writes the whole list that it has read.
        let mut owners = json!(others(machine, chosen));
        if let Some(owners) = owners.as_array_mut() {
            owners.push(owner);
        }
        patch["metadata"]["ownerReferences"] = owners;
    }
    patch
}

/// Has a host deprovisioned, before it is let go; `None` where that was done.
#[must_use]
pub fn deprovision(host: &DynamicObject) -> Option<Value> {
    let spec = &host.data["spec"];
    (!spec["image"].is_null() || spec["online"] == true)
        .then(|| json!({"spec": {"image": null, "online": false}}))
}

/// Lets a host go that is deprovisioned: takes the consumer off, and its cluster label where that is the Machine's own. With `nodeReuse` a label
/// stays that keeps the host for the Machine's owner.
#[must_use]
pub fn release(machine: &Metal3Machine, host: &DynamicObject) -> Value {
    let mut labels = json!({});
    if host.labels().get(CLUSTER) == Some(&machine.cluster) {
        labels[CLUSTER] = Value::Null;
    }
    if let Some(owner) = &machine.reuses_for {
        labels[NODE_REUSE] = json!(owner);
    }
    let mut patch = json!({"metadata": {"labels": labels}, "spec": {"consumerRef": null}});
    if machine.uid.is_some() {
        patch["metadata"]["ownerReferences"] = json!(others(machine, host));
    }
    patch
}

/// Owners of a host other than this one.
fn others(machine: &Metal3Machine, host: &DynamicObject) -> Vec<OwnerReference> {
    let owners = host.owner_references().iter();
    owners
        .filter(|owner| Some(&owner.uid) != machine.uid.as_ref())
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Metal3Machine {
        Metal3Machine {
            namespace: "metal".to_owned(),
            name: "m-0".to_owned(),
            uid: Some("uid-m".to_owned()),
            cluster: "shop".to_owned(),
            selector: String::new(),
            reuses_for: None,
            failure_domain: None,
            writes_network_data: false,
        }
    }

    fn host(labels: &Value, spec: &Value) -> DynamicObject {
        let owner = json!([{"apiVersion": "x/v1", "kind": "Rack", "name": "r1", "uid": "uid-r"}]);
        let metadata = json!({"name": "h", "labels": labels, "ownerReferences": owner, "resourceVersion": "7", "uid": "uid-h"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn a_claim_depends_on_nothing_of_the_host_but_its_owners() {
        let chosen = host(&json!({"sip.airshipit.org/cluster-name": "shop"}), &json!({}));
        let patch = claim(&machine(), &chosen, Some("m-0-networkdata"));
        assert_eq!(
            patch["metadata"].as_object().map(serde_json::Map::len),
            Some(2),
            "no resourceVersion, no uid"
        );
        assert_eq!(
            patch["metadata"]["labels"],
            json!({CLUSTER: "shop", NODE_REUSE: null})
        );
        let owners = patch["metadata"]["ownerReferences"].as_array().unwrap();
        assert_eq!(
            owners.iter().map(|owner| &owner["uid"]).collect::<Vec<_>>(),
            ["uid-r", "uid-m"]
        );
        assert_eq!(owners[1]["controller"], true);
        assert_eq!(patch["spec"]["consumerRef"]["name"], "m-0");
        assert!(
            patch["spec"].get("preprovisioningNetworkDataName").is_none(),
            "CAPM3 leaves it alone"
        );
        assert_eq!(
            patch["spec"]["networkData"],
            json!({"name": "m-0-networkdata", "namespace": "metal"})
        );
        let alone = Metal3Machine {
            uid: None,
            ..machine()
        };
        let patch = claim(&alone, &chosen, None);
        assert!(patch["metadata"]["ownerReferences"].is_null() && patch["spec"]["networkData"].is_null());
    }

    #[test]
    fn a_host_is_deprovisioned_before_it_is_let_go() {
        let labels = json!({CLUSTER: "shop"});
        let used = host(&labels, &json!({"image": {"url": "x"}, "online": true}));
        assert_eq!(
            deprovision(&used),
            Some(json!({"spec": {"image": null, "online": false}}))
        );
        assert_eq!(deprovision(&host(&labels, &json!({"online": false}))), None);
        let patch = release(&machine(), &used);
        assert_eq!(patch["metadata"]["labels"], json!({CLUSTER: null}));
        assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "uid-r");
        assert_eq!(patch["spec"], json!({"consumerRef": null}));
        let reusing = Metal3Machine {
            reuses_for: Some("shop-md".to_owned()),
            ..machine()
        };
        let patch = release(&reusing, &host(&json!({CLUSTER: "stall"}), &json!({})));
        assert_eq!(patch["metadata"]["labels"], json!({NODE_REUSE: "shop-md"}));
    }
}
