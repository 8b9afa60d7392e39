//! What is known of an object with replicas, and of the template of its Machines.

use std::{collections::BTreeMap, fmt};

use api::{Scaled, ScaledKind, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kit::{apply::Manager, placement::ObjectKey};
use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::Value;

/// Name under which this agent owns `spec.replicas` of these objects, and nothing else of them.
pub(super) const MANAGER: Manager = Manager("sip-cluster-agent-replicas");
/// Group of the kinds of CAPM3.
pub(super) const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// Kind of the template that selects hosts.
pub(super) const TEMPLATE: &str = "Metal3MachineTemplate";
/// On an object of Cluster API: its controllers do not reconcile it.
const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
/// On an object of Cluster API: the cluster autoscaler sets its replicas, from and up to these numbers. Either one suffices for it.
const AUTOSCALER_ANNOTATIONS: [&str; 2] = [
    "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size",
    "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size",
];
/// Replicas that Cluster API assumes where an object states none.
const DEFAULT_REPLICAS: u32 = 1;

/// Which object, at which version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::reconcile) struct ObjectId {
    pub(super) kind: ScaledKind,
    pub(super) key: ObjectKey,
    /// Of its API, by which it was read.
    pub(super) api_version: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// An object with replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::reconcile) struct Object {
    pub(super) id: ObjectId,
    pub(super) replicas: u32,
    /// Name of its Cluster.
    pub(super) cluster: Option<String>,
    /// Name of its `Metal3MachineTemplate` in its own namespace.
    pub(super) template: Option<String>,
    pub(super) is_paused: bool,
    pub(super) is_deleting: bool,
    /// Another manager that will set the replicas again, such as an autoscaler.
    pub(super) other_owner: Option<OtherOwner>,
    /// A manager that owns the replicas at present; for messages.
    pub(super) set_by: Option<String>,
}

/// Another manager whose replicas this agent does not change; for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OtherOwner {
    /// What it does, so that this agent leaves the replicas to it.
    pub(super) cause: String,
    /// What makes it stop.
    pub(super) remedy: String,
}

impl OtherOwner {
    /// A manager that does this, and that stops once what it applies no longer has the field.
    pub(super) fn applying(who: &str, cause: String) -> Self {
        Self {
            cause,
            remedy: format!("remove spec.replicas from what {who} applies"),
        }
    }
}

/// The labels that a template demands of hosts, `spec.template.spec.hostSelector.matchLabels`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::reconcile) struct HostLabels(pub(super) BTreeMap<String, String>);

/// The API group of a kind.
pub(super) const fn group(kind: ScaledKind) -> &'static str {
    match kind {
        ScaledKind::MachineDeployment => "cluster.x-k8s.io",
        ScaledKind::KubeadmControlPlane => "controlplane.cluster.x-k8s.io",
    }
}

impl Object {
    /// Parses the object that the API server has for `scaled`.
    pub(super) fn parse(
        scaled: &Scaled,
        namespace: &str,
        api_version: String,
        found: &DynamicObject,
    ) -> Self {
        let annotations = found.annotations();
        let replicas = found.data.pointer("/spec/replicas").and_then(Value::as_u64);
        let autoscaled = AUTOSCALER_ANNOTATIONS
            .iter()
            .find(|key| annotations.contains_key(**key));
        let setters = || found.managed_fields().iter().filter(|entry| sets(entry));
        let applier = || setters().find(|entry| entry.operation.as_deref() == Some("Apply"));
        Self {
            id: ObjectId {
                kind: scaled.kind(),
                key: ObjectKey {
                    namespace: namespace.to_owned(),
                    name: scaled.name().to_owned(),
                },
                api_version,
                uid: found.uid().unwrap_or_default(),
                resource_version: found.resource_version().unwrap_or_default(),
            },
            replicas: replicas.map_or(DEFAULT_REPLICAS, |count| u32::try_from(count).unwrap_or(u32::MAX)),
            cluster: cluster(scaled.kind(), found),
            template: template(scaled.kind(), namespace, &found.data),
            is_paused: annotations.contains_key(PAUSED_ANNOTATION),
            is_deleting: found.metadata.deletion_timestamp.is_some(),
            // A manager that applies the field sets it again with its next apply. One that has set it once by an update, as `kubectl create` does
            // or a webhook on its behalf, does not.
            other_owner: match autoscaled {
                Some(annotation) => Some(OtherOwner {
                    cause: format!("the autoscaler sets it, by annotation {annotation}"),
                    remedy: format!("remove the annotation {annotation}"),
                }),
                None => applier().map(|applied| {
                    let who = manager(applied);
                    OtherOwner::applying(&who, format!("{who} sets it"))
                }),
            },
            set_by: setters().next().map(manager),
        }
    }
}

impl HostLabels {
    /// Parses the labels of a template.
    pub(super) fn parse(found: &DynamicObject) -> Self {
        let labels = found
            .data
            .pointer("/spec/template/spec/hostSelector/matchLabels")
            .and_then(Value::as_object);
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        Self(labels.into_iter().flatten().filter_map(text).collect())
    }
}

/// A `KubeadmControlPlane` names its Cluster by the label only, which Cluster API sets.
fn cluster(kind: ScaledKind, found: &DynamicObject) -> Option<String> {
    match kind {
        ScaledKind::MachineDeployment => {
            let name = found.data.pointer("/spec/clusterName").and_then(Value::as_str);
            name.map(str::to_owned)
        }
        ScaledKind::KubeadmControlPlane => found.labels().get(labels::CLUSTER_API).cloned(),
    }
}

/// A `KubeadmControlPlane` of v1beta2 has its reference one level deeper.
fn template(kind: ScaledKind, namespace: &str, data: &Value) -> Option<String> {
    let reference = match kind {
        ScaledKind::MachineDeployment => data.pointer("/spec/template/spec/infrastructureRef"),
        ScaledKind::KubeadmControlPlane => data
            .pointer("/spec/machineTemplate/spec/infrastructureRef")
            .or_else(|| data.pointer("/spec/machineTemplate/infrastructureRef")),
    }?;
    let text = |field: &str| reference.get(field).and_then(Value::as_str);
    let group = text("apiGroup").or_else(|| text("apiVersion")?.split('/').next());
    let is_near = text("namespace").is_none_or(|named| named == namespace);
    let is_template = group == Some(INFRASTRUCTURE) && text("kind") == Some(TEMPLATE) && is_near;
    text("name").filter(|_| is_template).map(str::to_owned)
}

/// Whether another writer has set the replicas.
fn sets(entry: &ManagedFieldsEntry) -> bool {
    let fields = entry.fields_v1.as_ref();
    let owns = fields.is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some());
    owns && entry.manager.as_deref() != Some(MANAGER.0)
}

fn manager(entry: &ManagedFieldsEntry) -> String {
    format!("field manager {}", entry.manager.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use api::Cluster;
    use serde_json::json;

    use super::*;
    use crate::fixtures;

    /// The object that a spec names for the workers.
    fn scaled(field: &str) -> Scaled {
        let mut cluster = fixtures::cluster(&json!({}));
        let replicas = json!({"replicas": {"Worker": {field: "x"}}});
        cluster.spec.cluster_api = Some(serde_json::from_value(replicas).unwrap());
        Cluster::parse(&cluster).unwrap().scaled()[0].clone()
    }

    fn parse(field: &str, metadata: &Value, spec: &Value) -> Object {
        let mut metadata = metadata.clone();
        metadata["name"] = "x".into();
        metadata["namespace"] = "metal".into();
        let object = json!({"apiVersion": "a/v1", "kind": "K", "metadata": metadata, "spec": spec});
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        Object::parse(&scaled(field), "metal", "v1beta1".to_owned(), &object)
    }

    #[test]
    fn clusters_and_templates_are_read_of_every_version() {
        let old =
            json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": TEMPLATE, "name": "t"});
        let new = json!({"apiGroup": INFRASTRUCTURE, "kind": TEMPLATE, "name": "t"});
        let mut near = old.clone();
        near["namespace"] = "metal".into();
        let mut far = old.clone();
        far["namespace"] = "other".into();
        let other = json!({"apiGroup": "example.org", "kind": TEMPLATE, "name": "t"});
        for (reference, expected) in [
            (&old, Some("t")),
            (&new, Some("t")),
            (&near, Some("t")),
            (&far, None),
            (&other, None),
            (&json!({}), None),
        ] {
            let spec = json!({"clusterName": "shop", "template": {"spec": {"infrastructureRef": reference}}});
            let found = parse("machineDeployment", &json!({}), &spec);
            assert_eq!(found.template.as_deref(), expected, "{reference}");
            assert_eq!(found.cluster.as_deref(), Some("shop"));
            for at in [
                json!({"infrastructureRef": reference}),
                json!({"spec": {"infrastructureRef": reference}}),
            ] {
                let labels = json!({"labels": {labels::CLUSTER_API: "shop"}});
                let found = parse("kubeadmControlPlane", &labels, &json!({"machineTemplate": at}));
                assert_eq!(found.template.as_deref(), expected, "{reference}");
                assert_eq!(found.cluster.as_deref(), Some("shop"));
            }
        }
    }

    #[test]
    fn who_sets_replicas_again_and_again_is_named() {
        let entry = |manager: &str, operation: &str, field: &str| {
            json!({"manager": manager, "operation": operation, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {field: {}}}})
        };
        for (entries, expected, set_by) in [
            (vec![], None, None),
            (
                vec![entry("kubectl-create", "Update", "f:replicas")],
                None,
                Some("field manager kubectl-create"),
            ),
            (vec![entry("flux", "Apply", "f:template")], None, None),
            (vec![entry(MANAGER.0, "Apply", "f:replicas")], None, None),
            (
                vec![
                    entry(MANAGER.0, "Apply", "f:replicas"),
                    entry("flux", "Apply", "f:replicas"),
                ],
                Some("field manager flux"),
                Some("field manager flux"),
            ),
        ] {
            let metadata = json!({"managedFields": entries});
            let found = parse("machineDeployment", &metadata, &json!({"replicas": 3}));
            let owner = expected.map(|who: &str| OtherOwner::applying(who, format!("{who} sets it")));
            assert_eq!(found.other_owner, owner, "{metadata}");
            assert_eq!(found.set_by.as_deref(), set_by, "{metadata}");
        }
        for annotation in AUTOSCALER_ANNOTATIONS {
            let autoscaled = json!({"annotations": {annotation: "1", PAUSED_ANNOTATION: ""}});
            let found = parse("machineDeployment", &autoscaled, &json!({}));
            let expected = OtherOwner {
                cause: format!("the autoscaler sets it, by annotation {annotation}"),
                remedy: format!("remove the annotation {annotation}"),
            };
            assert_eq!(found.other_owner, Some(expected));
            assert_eq!((found.is_paused, found.replicas), (true, 1));
        }
    }
}
