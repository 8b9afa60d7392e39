//! What a watch keeps of the metadata of objects that tenants write. A tenant decides how many such objects there are, and each may have up to
//! 1.5 MiB, which would all stay in the memory of the agent.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;

/// Bytes of an annotation that is kept, at most. Multus writes up to about 900 bytes for each of the networks of a pod: its name, addresses and
/// device. An entry names at most 32 of them, beside the network of the site.
const MAX_ANNOTATION_BYTES: usize = 32 << 10;
/// Owners that are kept, at most. Objects have one or two.
const MAX_OWNERS: usize = 16;
/// Bytes of the texts of an owner that is kept, at most. The API server does not limit them.
const MAX_OWNER_BYTES: usize = 1 << 10;

/// Keeps these annotations, each unless it is longer than any program writes it, and the owners by which agents find an object: `SIPCluster`s, and
/// the controller. One without texts stands for all others: an object is not deleted for an owner that is gone while it has others. Labels are left
/// to the caller.
pub(super) fn trim(metadata: &mut ObjectMeta, annotations: &[&str]) {
    metadata.managed_fields = None;
    metadata.finalizers = None;
    if let Some(on_object) = &mut metadata.annotations {
        on_object
            .retain(|key, value| annotations.contains(&key.as_str()) && value.len() <= MAX_ANNOTATION_BYTES);
    }
    if let Some(owners) = &mut metadata.owner_references {
        let count = owners.len();
        owners.retain(|owner| {
            let texts = [&owner.api_version, &owner.kind, &owner.name, &owner.uid];
            let is_read = owner.kind == "SIPCluster" || owner.controller == Some(true);
            is_read && texts.iter().map(|text| text.len()).sum::<usize>() <= MAX_OWNER_BYTES
        });
        owners.truncate(MAX_OWNERS);
        if owners.len() < count {
            owners.push(OwnerReference::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_metadata_that_agents_read_is_kept() {
        let of_networks = "x".repeat(33 * 900);
        let long = "x".repeat(MAX_ANNOTATION_BYTES + 1);
        let owner = |kind: &str, name: &str, controller: bool| -> Value {
            json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": controller})
        };
        let mut owners = vec![
            owner("Job", "other", false),
            owner("ReplicaSet", "made-it", true),
            owner("SIPCluster", &"x".repeat(MAX_OWNER_BYTES), false),
        ];
        owners.extend((0..100).map(|number| owner("SIPCluster", &format!("c{number}"), false)));
        let metadata = json!({
            "name": "lb", "annotations": {"read": of_networks, "long": long, "foreign": "b"},
            "finalizers": ["example.com/a"], "ownerReferences": owners,
        });
        let mut metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
        trim(&mut metadata, &["read", "long"]);
        assert_eq!(
            metadata.annotations,
            Some([("read".to_owned(), of_networks)].into())
        );
        assert_eq!(metadata.finalizers, None);
        let owners = metadata.owner_references.unwrap();
        let names: Vec<&str> = owners.iter().map(|owner| owner.name.as_str()).collect();
        assert_eq!(
            (names[0], names[1], names.len()),
            ("made-it", "c0", MAX_OWNERS + 1)
        );
        assert_eq!(owners[MAX_OWNERS], OwnerReference::default());
        let alone = json!({"ownerReferences": [owner("SIPCluster", "shop", false)]});
        let alone: ObjectMeta = serde_json::from_value(alone).unwrap();
        let mut trimmed = alone.clone();
        trim(&mut trimmed, &[]);
        assert_eq!(trimmed, alone);
    }
}
