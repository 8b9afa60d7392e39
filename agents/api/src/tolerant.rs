//! A `SIPCluster` of a list or a watch: however a tenant wrote it, it cannot make the others unreadable.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

use crate::annotations::CLUSTER_API_CLUSTER;
use crate::cluster::{Cluster, LONGEST, ROLES, size::stored, unreadable};
use crate::sip_cluster::{EmptySpec, LeftOut, NodeSet, SIPCluster, SIPClusterSpec};
use crate::{FINALIZER, bounded};

/// Bytes of memory up to which a spec is kept though it is refused.
const SMALL: usize = 16 << 10;
/// What is kept of `metadata`, besides an annotation.
const METADATA: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
];
/// Finalizers that are kept besides SIP's. Objects have one or two.
const FINALIZERS: usize = 16;
/// The longest key of a label, with its prefix.
const LABEL_KEY: usize = 317;
/// Bytes that are kept of the annotation that counts: what it may name is a tenth as long.
const ANNOTATION: usize = 2_048;

/// Reads every object that has metadata. One whose spec or status is not as expected has an empty spec with the reason in
/// [`SIPClusterSpec::left_out`], which [`Cluster::parse`] refuses: such a cluster exists, holds what it holds, and gets no more.
/// Lists and watches over the clusters of more than one tenant read this instead of a [`SIPCluster`], since a list is read as a whole.
///
/// However large the object, little of it stays in memory unless its spec is accepted, which it is up to about 1 MiB:
/// - Of every list and map in a spec it keeps one more than any may have, so that too much is still refused.
/// - A large spec that is refused is empty but for its topology keys, with its faults in [`SIPClusterSpec::left_out`].
/// - Of the metadata it keeps what agents read: `managedFields` and foreign annotations, for example, are left out.
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
        let mut left_out = trim_metadata(&mut object);
        let mut is_large = false;
        if let Some(spec) = object.get_mut("spec") {
            bounded::cut(spec, LONGEST.saturating_add(1));
            is_large = bounded::memory(spec) > SMALL;
        }
        let read = SIPCluster::deserialize(&object);
        let mut cluster = read
            .or_else(|error| rescued(&object, &error))
            .map_err(D::Error::custom)?;
        drop(object);
        left_out.spec = cluster.spec.left_out.spec.take();
        cluster.spec.left_out = left_out;
        if is_large {
            empty_if_refused(&mut cluster);
        }
        Ok(Self(cluster))
    }
}

/// Removes what no agent reads.
fn trim_metadata(object: &mut Value) -> LeftOut {
    let mut left_out = LeftOut::default();
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
        return left_out;
    };
    let annotations = metadata.remove("annotations");
    left_out.labels = metadata.remove("labels").as_ref().map_or(0, stored);
    metadata.retain(|field, _| METADATA.contains(&&**field));
    if let Some(Value::Array(finalizers)) = metadata.get_mut("finalizers")
        && finalizers.len() > FINALIZERS
    {
        let has_ours = finalizers.iter().skip(FINALIZERS).any(|name| name == FINALIZER);
        finalizers.truncate(FINALIZERS);
        finalizers.extend(has_ours.then(|| FINALIZER.into()));
        left_out.finalizers = true;
    }
    if let Some(Value::Object(mut annotations)) = annotations {
        let kept = annotations.remove(CLUSTER_API_CLUSTER);
        left_out.annotations = stored(&annotations);
        if let Some(mut kept) = kept {
            if let Value::String(text) = &mut kept {
                text.truncate(text.floor_char_boundary(ANNOTATION));
            }
            let annotations = Map::from_iter([(CLUSTER_API_CLUSTER.to_owned(), kept)]);
            metadata.insert("annotations".to_owned(), annotations.into());
        }
    }
    left_out
}

/// Replaces a spec that is refused by the faults of the object, but for its topology keys: the domains in the status are values of them.
fn empty_if_refused(cluster: &mut SIPCluster) {
    if let Err(invalid) = Cluster::parse(cluster) {
        let SIPClusterSpec {
            nodes,
            services: _,
            cluster_api: _,
            left_out,
        } = std::mem::take(&mut cluster.spec);
        let nodes = nodes.into_iter().filter_map(|(role, set)| {
            let key = set.topology_key.filter(|key| key.len() <= LABEL_KEY);
            let set = NodeSet {
                topology_key: Some(key?),
                ..NodeSet::default()
            };
            (role.len() <= LABEL_KEY).then_some((role, set))
        });
        let refused = EmptySpec::Refused(invalid.with_shown_faults());
        cluster.spec = SIPClusterSpec {
            nodes: nodes.take(ROLES).collect(),
            left_out: LeftOut {
                spec: Some(left_out.spec.unwrap_or(refused)),
                ..left_out
            },
            ..SIPClusterSpec::default()
        };
    }
}

/// The cluster without a spec, and without a status that cannot be read.
fn rescued(object: &Value, error: &serde_json::Error) -> serde_json::Result<SIPCluster> {
    let part = |name: &str| object.get(name).unwrap_or(&Value::Null);
    let mut cluster = SIPCluster {
        metadata: ObjectMeta::deserialize(part("metadata"))?,
        spec: SIPClusterSpec::default(),
        status: Deserialize::deserialize(part("status")).unwrap_or_default(),
    };
    let invalid = unreadable(&cluster, &error.to_string());
    cluster.spec.left_out.spec = Some(EmptySpec::Unreadable(invalid));
    Ok(cluster)
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
    use crate::fixtures;

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
        assert_eq!(read.spec.services, None);
        let faults = Cluster::parse(&read).unwrap_err();
        let fields: Vec<_> = faults.faults().iter().map(crate::Fault::path).collect();
        assert_eq!(
            fields,
            ["spec.nodes[Worker].labelSelector", "spec.services.jumpHost"]
        );
    }

    /// Bytes that the object takes when it is written.
    fn written_bytes(object: &SIPCluster) -> usize {
        stored(object)
    }

    #[test]
    fn a_large_text_is_refused_wherever_it_is_and_not_kept() {
        let text = "x".repeat(1_400 << 10);
        for (pointer, value, fault) in [
            (
                "/nodes/Worker/topologyKey",
                json!(text),
                "spec.nodes[Worker].topologyKey is \"xxx",
            ),
            (
                "/nodes/Worker/replaceAfterError",
                json!(text),
                "spec.nodes[Worker].replaceAfterError is \"xxx",
            ),
            (
                "/nodes/Worker/labelSelector",
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": [text]}]}),
                "spec.nodes[Worker].labelSelector",
            ),
            (
                "/services/jumpHost/0/image",
                json!(text),
                "spec.services.jumpHost[0].image is \"xxx",
            ),
            (
                "/services/jumpHost/0/clusterIP",
                json!(text),
                "spec.services.jumpHost[0].clusterIP is \"xxx",
            ),
            (
                "/services/jumpHost/0/sshAuthorizedKeys",
                json!([text]),
                "spec.services.jumpHost[0].sshAuthorizedKeys is 1433604 bytes: the whole object",
            ),
            (
                "/services/jumpHost/0/override",
                json!({"service": {"metadata": {"annotations": {"a": text}}}}),
                "bytes: the whole object",
            ),
            (
                "/services/auth/0/issuer",
                json!(text),
                "spec.services.auth[0].issuer is \"xxx",
            ),
            (
                "/nodes/Worker/count",
                json!(text),
                "spec is \"invalid type: string",
            ),
        ] {
            let object = fixtures::sample_with(pointer, value);
            let whole: Option<SIPCluster> = serde_json::from_value(object.clone()).ok();
            let read = list(&[object.to_string()]).remove(0);
            assert!(
                written_bytes(&read) < 1_000,
                "{pointer}: {}",
                written_bytes(&read)
            );
            let refused = Cluster::parse(&read).unwrap_err();
            assert!(refused.to_string().contains(fault), "{pointer}: {refused}");
            if let Some(whole) = whole {
                assert_eq!(Cluster::parse(&whole), Err(refused), "{pointer}: the same words");
            }
        }
    }

    #[test]
    fn topology_keys_of_a_refused_spec_are_kept() {
        let object = fixtures::sample_with("/services/jumpHost/0/image", json!("x".repeat(100_000)));
        let read = list(&[object.to_string()]).remove(0);
        let key = |role: &str| {
            read.spec
                .nodes
                .get(role)
                .and_then(|set| set.topology_key.as_deref())
        };
        assert_eq!(key("Worker"), Some("example.org/server"));
        assert!(read.spec.nodes.values().all(|set| set.label_selector.is_none()));
    }

    #[test]
    fn a_large_spec_that_is_accepted_is_kept() {
        let keys = vec![format!("ssh-rsa {}", "x".repeat(700)); 1_000];
        let object = fixtures::sample_with("/services/jumpHost/0/sshAuthorizedKeys", json!(keys));
        let read = list(&[object.to_string()]).remove(0);
        assert_eq!(Cluster::parse(&read), fixtures::parse(object));
        assert!(written_bytes(&read) > 700_000);
    }

    #[test]
    fn faults_of_a_refused_spec_are_few_and_its_text_is_the_same() {
        let values: Vec<String> = (0..256).map(|n| format!("-{n}-")).collect();
        let expression = json!({"key": "a", "operator": "In", "values": values});
        let selector = json!({"matchExpressions": vec![expression; 32]});
        let object = fixtures::sample_with("/nodes/Worker/labelSelector", selector);
        let whole = fixtures::parse(object.clone()).unwrap_err();
        assert!(whole.faults().len() > 20);
        let read = list(&[object.to_string()]).remove(0);
        let refused = Cluster::parse(&read).unwrap_err();
        assert_eq!(refused.to_string(), whole.to_string());
        assert_eq!(refused.faults().len(), 20);
    }

    #[test]
    fn the_values_of_all_selectors_are_bounded_together() {
        let expression = |values: usize| json!({"key": "a", "operator": "In", "values": vec!["b"; values]});
        let with = |expressions: Vec<Value>| {
            fixtures::sample_with("/nodes/Worker/labelSelector/matchExpressions", json!(expressions))
        };
        let most = vec![expression(256); 32];
        assert_eq!(fixtures::faults(with(most.clone())), [""; 0]);
        let mut more = most;
        more.push(expression(1));
        let refused =
            "spec.nodes is 8193 values: must be at most 8192 in the selectors of all roles together";
        assert_eq!(fixtures::faults(with(more)), [refused]);
    }

    #[test]
    fn metadata_that_no_agent_reads_counts_and_is_not_kept() {
        let mut object = fixtures::sample();
        let metadata = &mut object["metadata"];
        metadata["managedFields"] = json!([{"manager": "m", "fieldsV1": {"f:a": {}}}]);
        metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}]);
        metadata["annotations"] = json!({"note": "x".repeat(200 << 10), CLUSTER_API_CLUSTER: "capi/shop"});
        metadata["labels"] = json!({"label": "x".repeat(100 << 10)});
        let read = list(&[object.to_string()]).remove(0);
        let parsed = Cluster::parse(&read).unwrap();
        assert_eq!(parsed.cluster_api_name(), "shop");
        assert_eq!(
            parsed.other_bytes(),
            fixtures::parse(object.clone()).unwrap().other_bytes()
        );
        assert!(parsed.other_bytes() > 0);
        let expected = serde_json::from_value::<ObjectMeta>(json!({
            "namespace": object["metadata"]["namespace"], "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
            "generation": 7, "annotations": {CLUSTER_API_CLUSTER: "capi/shop"}, "finalizers": object["metadata"]["finalizers"],
        }));
        assert_eq!(read.metadata, expected.unwrap());

        object["metadata"]["annotations"] = json!({CLUSTER_API_CLUSTER: "x".repeat(200 << 10)});
        let read = list(&[object.to_string()]).remove(0);
        assert!(written_bytes(&read) < 20_000);
        let refused = Cluster::parse(&read).unwrap_err();
        assert_eq!(Err(refused), fixtures::parse(object));
    }

    #[test]
    fn of_many_finalizers_ours_is_kept() {
        let mut object = fixtures::sample();
        let mut finalizers: Vec<String> = (0..4_000).map(|n| format!("example.com/{n}")).collect();
        finalizers.push(FINALIZER.to_owned());
        object["metadata"]["finalizers"] = json!(finalizers);
        let read = list(&[object.to_string()]).remove(0);
        let names = read.metadata.finalizers.unwrap();
        assert_eq!((names.len(), &*names[16]), (17, FINALIZER));
        assert!(read.spec.left_out.finalizers);
        object["metadata"]["finalizers"] = json!(finalizers[..16]);
        let read = list(&[object.to_string()]).remove(0);
        assert_eq!(read.metadata.finalizers.map(|names| names.len()), Some(16));
        assert!(!read.spec.left_out.finalizers);
    }

    #[test]
    fn amounts_may_be_larger_than_32_bits() {
        let mut object = fixtures::sample();
        object["spec"]["services"]["jumpHost"][0]["resources"] =
            json!({"limits": {"memory": 4_294_967_296_i64}});
        serde_json::from_value::<SIPCluster>(object).unwrap();
    }
}
