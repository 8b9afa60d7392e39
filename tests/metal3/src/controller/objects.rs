//! The kinds that the controllers read and write, in one namespace.

use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use crate::provider::{found, hosts, merge};

/// A kind of Cluster API or of CAPM3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Machine,
    MachineSet,
    ControlPlane,
    Metal3Machine,
    Template,
    Remediation,
    HostClaim,
}

impl Kind {
    fn resource(self) -> ApiResource {
        let (group, kind) = match self {
            Self::HostClaim => ("metal3.io", "HostClaim"),
            Self::Machine => ("cluster.x-k8s.io", "Machine"),
            Self::MachineSet => ("cluster.x-k8s.io", "MachineSet"),
            Self::ControlPlane => ("controlplane.cluster.x-k8s.io", "KubeadmControlPlane"),
            Self::Metal3Machine => ("infrastructure.cluster.x-k8s.io", "Metal3Machine"),
            Self::Template => ("infrastructure.cluster.x-k8s.io", "Metal3MachineTemplate"),
            Self::Remediation => ("infrastructure.cluster.x-k8s.io", "Metal3Remediation"),
        };
        let version = if self == Self::HostClaim {
            "v1alpha1"
        } else {
            "v1beta1"
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    }
}

/// The objects of one namespace.
pub(super) struct Objects {
    client: Client,
    namespace: String,
}

impl Objects {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
        }
    }

    pub(super) fn hosts(&self) -> Api<DynamicObject> {
        hosts(self.client.clone(), &self.namespace)
    }

    /// Of the hosts.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource())
    }

    /// The kind in the namespace of an object of it.
    fn api_of(&self, kind: Kind, object: &DynamicObject) -> Api<DynamicObject> {
        let namespace = object.metadata.namespace.as_ref().unwrap_or(&self.namespace);
        Api::namespaced_with(self.client.clone(), namespace, &kind.resource())
    }

    pub(super) async fn all_namespaces(&self, kind: Kind) -> kube::Result<Vec<DynamicObject>> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind.resource());
        Ok(api.list(&ListParams::default()).await?.items)
    }

    pub(super) async fn all(&self, kind: Kind) -> kube::Result<Vec<DynamicObject>> {
        Ok(self.api(kind).list(&ListParams::default()).await?.items)
    }

    pub(super) async fn get(&self, kind: Kind, name: &str) -> kube::Result<Option<DynamicObject>> {
        self.api(kind).get_opt(name).await
    }

    pub(super) async fn create(
        &self,
        kind: Kind,
        name: &str,
        content: &Value,
    ) -> kube::Result<DynamicObject> {
        let mut object = DynamicObject::new(name, &kind.resource());
        let metadata = serde_json::from_value(content["metadata"].clone());
        object.metadata = metadata.map_err(kube::Error::SerdeError)?;
        object.metadata.name = Some(name.to_owned());
        object.data = json!({"spec": content["spec"]});
        self.api(kind).create(&PostParams::default(), &object).await
    }

    pub(super) async fn patch(&self, kind: Kind, object: &DynamicObject, patch: &Value) -> kube::Result<()> {
        found(merge(&self.api_of(kind, object), &object.name_any(), patch).await)
    }

    /// Writes a status that differs.
    pub(super) async fn status(
        &self,
        kind: Kind,
        object: &DynamicObject,
        status: &Value,
    ) -> kube::Result<()> {
        let differs = status.as_object().into_iter().flatten();
        let mut differs = differs.filter(|(field, value)| object.data["status"][field] != **value);
        if differs.next().is_none() {
            return Ok(());
        }
        let patch = json!({ "status": status });
        let api = self.api_of(kind, object);
        found(
            api.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch))
                .await,
        )
    }

    pub(super) async fn delete(&self, kind: Kind, object: &DynamicObject) -> kube::Result<()> {
        found(
            self.api_of(kind, object)
                .delete(&object.name_any(), &DeleteParams::default())
                .await,
        )
    }

    pub(super) async fn remove_finalizer(
        &self,
        kind: Kind,
        object: &DynamicObject,
        name: &str,
    ) -> kube::Result<()> {
        let left: Vec<&String> = object
            .finalizers()
            .iter()
            .filter(|other| *other != name)
            .collect();
        if left.len() == object.finalizers().len() {
            return Ok(());
        }
        self.patch(kind, object, &json!({"metadata": {"finalizers": left}}))
            .await
    }
}

/// The controller of an object, if it is of this kind.
pub(super) fn controller<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a str> {
    let mut owners = object.owner_references().iter();
    let owner = owners.find(|owner| owner.controller == Some(true) && owner.kind == kind)?;
    Some(&owner.name)
}
