//! How a consumed host goes from one management cluster to another: CAPM3 v1.13.2 pauses it (`SetPauseAnnotation`) and resumes it
//! (`RemovePauseAnnotation`), `clusterctl move` of Cluster API v1.13.4 recreates and deletes it (`createTargetObject` and `deleteSourceObject` in
//! `cmd/clusterctl/client/cluster/mover.go`), and the baremetal-operator v0.13.2 restores its status (`reconcileHostData`).
//!
//! The owners of hosts do not move here, so a recreated host has none.

use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    names::PAUSED,
    provider::{found, hosts, merge},
};

/// Value of the annotation by which CAPM3 pauses a host; it resumes no other.
const PAUSED_BY_CAPM3: &str = "metal3.io/capm3";
/// On a host: its status when it was paused.
const STATUS: &str = "baremetalhost.metal3.io/status";
/// On an object that is deleted after it has moved.
const DELETE_FOR_MOVE: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";

/// Pauses a host, and notes its status except what inspection found; `None` for one that is paused already.
#[must_use]
pub fn pause(host: &DynamicObject) -> Option<Value> {
    if host.annotations().contains_key(PAUSED) {
        return None;
    }
    let mut status = host.data["status"].clone();
    if let Some(status) = status.as_object_mut() {
        status.remove("hardware");
    }
    let annotations = json!({PAUSED: PAUSED_BY_CAPM3, STATUS: status.to_string()});
    Some(json!({"metadata": {"annotations": annotations}}))
}

/// The host as it is created in the other cluster, which gives it a uid of its own: with labels, annotations, finalizers and spec, without owners
/// and status.
#[must_use]
pub fn recreated(host: &DynamicObject) -> DynamicObject {
    let ObjectMeta {
        name,
        namespace,
        labels,
        annotations,
        finalizers,
        ..
    } = host.metadata.clone();
    DynamicObject {
        types: host.types.clone(),
        metadata: ObjectMeta {
            name,
            namespace,
            labels,
            annotations,
            finalizers,
            ..ObjectMeta::default()
        },
        data: json!({"spec": host.data["spec"]}),
    }
}

/// The status that is restored of a host without one.
#[must_use]
pub fn noted_status(host: &DynamicObject) -> Option<Value> {
    serde_json::from_str(host.annotations().get(STATUS)?).ok()
}

/// Two management clusters, of which one gets the hosts of the other.
pub struct Mover {
    from: Api<DynamicObject>,
    to: Api<DynamicObject>,
}

impl Mover {
    /// For the hosts of a namespace.
    #[must_use]
    pub fn new(from: Client, to: Client, namespace: &str) -> Self {
        Self {
            from: hosts(from, namespace),
            to: hosts(to, namespace),
        }
    }

    /// Pauses a host where it is.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn pause(&self, name: &str) -> kube::Result<()> {
        match pause(&self.from.get(name).await?) {
            Some(patch) => merge(&self.from, name, &patch).await,
            None => Ok(()),
        }
    }

    /// Recreates a host, and deletes the old one.
    ///
    /// # Errors
    /// What the API servers answer.
    pub async fn recreate(&self, name: &str) -> kube::Result<()> {
        let host = self.from.get(name).await?;
        self.to.create(&PostParams::default(), &recreated(&host)).await?;
        let marked = json!({"metadata": {"annotations": {DELETE_FOR_MOVE: ""}}});
        merge(&self.from, name, &marked).await?;
        self.from.delete(name, &DeleteParams::default()).await?;
        if host.finalizers().is_empty() {
            return Ok(());
        }
        found(merge(&self.from, name, &json!({"metadata": {"finalizers": null}})).await)
    }

    /// Resumes a host where it is now: CAPM3 removes its own pause, then the baremetal-operator restores the status.
    ///
    /// # Errors
    /// What the API server answers.
    pub async fn resume(&self, name: &str) -> kube::Result<()> {
        let host = self.to.get(name).await?;
        if host.annotations().get(PAUSED).map(String::as_str) != Some(PAUSED_BY_CAPM3) {
            return Ok(());
        }
        let without = |key: &str| json!({"metadata": {"annotations": {key: null}}});
        merge(&self.to, name, &without(PAUSED)).await?;
        if let Some(status) = noted_status(&host) {
            let patch = Patch::Merge(json!({ "status": status }));
            self.to
                .patch_status(name, &PatchParams::default(), &patch)
                .await?;
        }
        merge(&self.to, name, &without(STATUS)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {
                "name": "h", "namespace": "metal", "uid": "uid-h", "resourceVersion": "7", "labels": {"a": "1"},
                "annotations": {"note": "kept"}, "finalizers": ["baremetalhost.metal3.io"],
                "ownerReferences": [{"apiVersion": "x/v1", "kind": "Metal3Machine", "name": "m", "uid": "uid-m"}],
            },
            "spec": {"online": true},
            "status": {"poweredOn": true, "hardware": {"cpu": {}}},
        }))
        .unwrap()
    }

    #[test]
    fn a_paused_host_notes_its_status_without_its_hardware() {
        let patch = pause(&host()).unwrap();
        let annotations = &patch["metadata"]["annotations"];
        assert_eq!(annotations[PAUSED], PAUSED_BY_CAPM3);
        let mut paused = host();
        let noted = annotations[STATUS].as_str().unwrap().to_owned();
        paused.annotations_mut().insert(STATUS.to_owned(), noted);
        assert_eq!(noted_status(&paused), Some(json!({"poweredOn": true})));
        paused.annotations_mut().insert(PAUSED.to_owned(), String::new());
        assert_eq!(pause(&paused), None, "a person has paused it");
    }

    #[test]
    fn a_recreated_host_is_another_one_with_the_same_labels() {
        let moved = recreated(&host());
        assert_eq!(
            (moved.labels(), moved.annotations()),
            (host().labels(), host().annotations())
        );
        assert_eq!(moved.finalizers(), host().finalizers());
        assert_eq!((moved.uid(), moved.resource_version()), (None, None));
        assert!(moved.owner_references().is_empty());
        assert_eq!(moved.data, json!({"spec": {"online": true}}));
    }
}
