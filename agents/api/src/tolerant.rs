//! A `SIPCluster` of a list or a watch: however a tenant wrote it, it cannot make the others unreadable.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

use crate::annotations::CLUSTER_API_CLUSTER;
use crate::cluster::{Cluster, MAX_ITEMS, MAX_ROLES, size::stored, unreadable};
use crate::fault::Fault;
use crate::sip_cluster::{EmptySpec, LeftOut, NodeSet, SIPCluster, SIPClusterSpec};
use crate::status::Placement;
use crate::{FINALIZER, bounded};

/// Bytes of memory of a refused spec that is kept, at most.
const MAX_REFUSED_SPEC_BYTES: usize = 16 << 10;
/// Fields of `metadata` that are kept, besides one annotation.
const METADATA_FIELDS: [&str; 9] = [
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
/// Finalizers that are kept at most, besides SIP's. Objects have one or two.
const MAX_FINALIZERS: usize = 16;
/// Bytes of the key of a label with its prefix, at most.
const MAX_LABEL_KEY_BYTES: usize = 317;
/// Bytes that are kept of the annotation that is read, at most: the name in it has at most a tenth of them.
const MAX_ANNOTATION_BYTES: usize = 2_048;
/// The rule that a spec breaks which cannot be read; and that of a placement.
const SPEC: &str =
    "must be readable; the version of its definition that the site has may be another one than the agents'";
const PLACEMENT: &str = "must be readable; another version of the agents may have written it: run that version, or remove the field (the placement \
    is then the scheduler's)";

/// Reads every object that has metadata. One whose spec or placement is not as expected has an empty spec with the reason in
/// [`SIPClusterSpec::left_out`], which [`Cluster::parse`] refuses: such a cluster exists, holds what it holds, and gets no more. A placement that
/// cannot be read is kept there as it is.
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
        let left_out = trim_metadata(&mut object);
        let mut is_large = false;
        if let Some(spec) = object.get_mut("spec") {
            bounded::cut(spec, MAX_ITEMS.saturating_add(1));
            is_large = bounded::memory(spec) > MAX_REFUSED_SPEC_BYTES;
        }
        let read = SIPCluster::deserialize(&object);
        let mut cluster = read
            .or_else(|error| rescued(&mut object, &error))
            .map_err(D::Error::custom)?;
        drop(object);
        let of_parts = std::mem::take(&mut cluster.spec.left_out);
        cluster.spec.left_out = LeftOut {
            spec: of_parts.spec,
            placement: of_parts.placement,
            ..left_out
        };
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
    metadata.retain(|field, _| METADATA_FIELDS.contains(&&**field));
    if let Some(Value::Array(finalizers)) = metadata.get_mut("finalizers")
        && finalizers.len() > MAX_FINALIZERS
    {
        let has_ours = finalizers
            .iter()
            .skip(MAX_FINALIZERS)
            .any(|name| name == FINALIZER);
        finalizers.truncate(MAX_FINALIZERS);
        finalizers.extend(has_ours.then(|| FINALIZER.into()));
        left_out.finalizers = true;
    }
    if let Some(Value::Object(mut annotations)) = annotations {
        let kept = annotations.remove(CLUSTER_API_CLUSTER);
        left_out.annotations = stored(&annotations);
        if let Some(mut kept) = kept {
            if let Value::String(text) = &mut kept {
                text.truncate(text.floor_char_boundary(MAX_ANNOTATION_BYTES));
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
            let key = set.topology_key.filter(|key| key.len() <= MAX_LABEL_KEY_BYTES);
            let set = NodeSet {
                topology_key: Some(key?),
                ..NodeSet::default()
            };
            (role.len() <= MAX_LABEL_KEY_BYTES).then_some((role, set))
        });
        let refused = EmptySpec::Refused(invalid.with_shown_faults());
        cluster.spec = SIPClusterSpec {
            nodes: nodes.take(MAX_ROLES).collect(),
            left_out: LeftOut {
                spec: Some(left_out.spec.unwrap_or(refused)),
                ..left_out
            },
            ..SIPClusterSpec::default()
        };
    }
}

/// The cluster without a spec, and without a placement that cannot be read.
fn rescued(object: &mut Value, error: &serde_json::Error) -> serde_json::Result<SIPCluster> {
    let placement = take_unreadable_placement(object);
    let part = |name: &str| object.get(name).unwrap_or(&Value::Null);
    let mut cluster = SIPCluster {
        metadata: ObjectMeta::deserialize(part("metadata"))?,
        spec: SIPClusterSpec::default(),
        status: Deserialize::deserialize(part("status")).unwrap_or_default(),
    };
    let fault = match &placement {
        Some((_, error)) => Fault::text("status.placement", &error.to_string(), PLACEMENT),
        None => Fault::text("spec", &error.to_string(), SPEC),
    };
    let invalid = unreadable(&cluster, fault);
    cluster.spec.left_out.spec = Some(EmptySpec::Unreadable(invalid));
    cluster.spec.left_out.placement = placement.map(|(as_written, _)| as_written);
    Ok(cluster)
}

/// Takes the placement out of the status if it cannot be read; with it, why it cannot.
fn take_unreadable_placement(object: &mut Value) -> Option<(Value, serde_json::Error)> {
    let status = object.get_mut("status")?.as_object_mut()?;
    let error = Option::<Placement>::deserialize(status.get("placement")?).err()?;
    Some((status.remove("placement")?, error))
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
mod tests;
