//! A `SIPCluster` of a list or a watch: however a tenant wrote it, it cannot make the others unreadable.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use crate::bounded;
use crate::cluster::LONGEST;
use crate::sip_cluster::{SIPCluster, SIPClusterSpec};

/// Reads every object that has metadata. One whose spec or status is not as expected has an empty spec with the reason in
/// [`SIPClusterSpec::unreadable`], which [`crate::Cluster::parse`] refuses: such a cluster exists, holds what it holds, and gets no more.
/// Of every list and map in a spec it keeps one more than any may have, so that too much is still refused, and takes no memory.
/// Lists and watches over the clusters of more than one tenant read this instead of a [`SIPCluster`], since a list is read as a whole.
#[derive(Clone, Debug)]
pub struct TolerantCluster(SIPCluster);

impl TolerantCluster {
    /// The cluster.
    #[must_use]
    pub fn into_inner(self) -> SIPCluster {
        self.0
    }
}

impl<'de> Deserialize<'de> for TolerantCluster {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = bounded::value(deserializer)?;
        if let Some(spec) = object.get_mut("spec") {
            bounded::cut(spec, LONGEST.saturating_add(1));
        }
        SIPCluster::deserialize(&object)
            .or_else(|error| rescued(&object, &error))
            .map(Self)
            .map_err(D::Error::custom)
    }
}

/// The cluster without a spec, and without a status that cannot be read.
fn rescued(object: &Value, error: &serde_json::Error) -> serde_json::Result<SIPCluster> {
    let part = |name: &str| object.get(name).unwrap_or(&Value::Null);
    let mut metadata = part("metadata").clone();
    if let Value::Object(metadata) = &mut metadata {
        metadata.remove("managedFields");
    }
    Ok(SIPCluster {
        metadata: ObjectMeta::deserialize(metadata)?,
        spec: SIPClusterSpec {
            unreadable: Some(error.to_string()),
            ..SIPClusterSpec::default()
        },
        status: Deserialize::deserialize(part("status")).unwrap_or_default(),
    })
}

impl Resource for TolerantCluster {
    type DynamicType = ();
    type Scope = <SIPCluster as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        SIPCluster::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        SIPCluster::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        SIPCluster::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        SIPCluster::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectList;
    use serde_json::json;

    use super::*;
    use crate::{Cluster, fixtures};

    fn list(objects: &[String]) -> Vec<SIPCluster> {
        let text = format!(
            r#"{{"apiVersion": "v1", "kind": "List", "metadata": {{}}, "items": [{}]}}"#,
            objects.join(",")
        );
        let list: ObjectList<TolerantCluster> = serde_json::from_str(&text).unwrap();
        list.items.into_iter().map(TolerantCluster::into_inner).collect()
    }

    #[test]
    fn one_object_makes_no_other_unreadable() {
        let good = fixtures::sample();
        let mut large = good.clone();
        large["spec"]["services"]["jumpHost"][0]["resources"] =
            json!({"limits": {"memory": 4_294_967_296_i64}});
        let mut wrong = good.clone();
        wrong["spec"]["nodes"] = json!("none");
        wrong["status"] = json!({"placement": {
            "epoch": 1, "revision": 7, "generation": 1,
            "members": [{"namespace": "hosts", "name": "a", "uid": "u", "role": "Worker", "state": "Bound", "revision": 7}],
        }});
        let mut forged = good.clone();
        forged["status"] = json!({"placement": 7});
        let mut deep = good.clone();
        deep["spec"]["services"]["jumpHost"][0]["override"] = json!("DEEP");
        let nested = format!("{}1{}", r#"{"a":"#.repeat(5_000), "}".repeat(5_000));
        let deep = deep.to_string().replace("\"DEEP\"", &nested);
        let texts = [
            good.to_string(),
            large.to_string(),
            wrong.to_string(),
            forged.to_string(),
            deep,
        ];

        let read = list(&texts);
        let faults: Vec<_> = read.iter().map(|object| Cluster::parse(object).err()).collect();
        assert_eq!((&faults[0], &faults[1]), (&None, &None));
        let messages: Vec<_> = faults.iter().flatten().map(ToString::to_string).collect();
        assert!(
            messages[0].contains("spec is \"invalid type: string"),
            "{messages:?}"
        );
        assert!(
            messages[1].contains("spec is \"invalid type: integer"),
            "{messages:?}"
        );
        assert!(
            messages[2].contains("override.a is \"{\\\"a\\\":"),
            "{messages:?}"
        );
        let status = read[2]
            .status
            .as_ref()
            .and_then(|status| status.placement.as_ref());
        assert_eq!(
            status.map(|placement| placement.members.len()),
            Some(1),
            "what it holds is known"
        );
        assert_eq!(read[3].status, None);
        assert!(read.iter().all(|object| object.metadata.uid.is_some()));
    }

    #[test]
    fn too_much_is_refused_and_not_kept() {
        let mut object = fixtures::sample();
        object["spec"]["services"]["jumpHost"] = json!(vec![json!({}); 5_000]);
        object["spec"]["nodes"]["Worker"]["labelSelector"] = json!({"matchLabels": (0..5_000).map(|n| (n.to_string(), json!(""))).collect::<serde_json::Map<_, _>>()});
        let read = list(&[object.to_string()]).remove(0);
        let kept = read
            .spec
            .services
            .as_ref()
            .and_then(|services| services.jump_host.as_ref());
        assert_eq!(kept.map(Vec::len), Some(1_001));
        let faults = Cluster::parse(&read).unwrap_err();
        let fields: Vec<_> = faults.faults().iter().map(crate::Fault::path).collect();
        assert_eq!(
            fields,
            ["spec.nodes[Worker].labelSelector", "spec.services.jumpHost"]
        );
    }

    #[test]
    fn amounts_may_be_larger_than_32_bits() {
        let mut object = fixtures::sample();
        object["spec"]["services"]["jumpHost"][0]["resources"] =
            json!({"limits": {"memory": 4_294_967_296_i64}});
        serde_json::from_value::<SIPCluster>(object).unwrap();
    }
}
