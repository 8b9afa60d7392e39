//! Cluster API's Machines on hosts that leave: each is asked to go, so that Cluster API drains its Node and removes it, and the
//! host is no longer used.
//!
//! `cluster.x-k8s.io/delete-machine` makes a Machine the first that Cluster API deletes when its owner is scaled down. The
//! status names the Machines that carry it because of us before they do, so that it is taken off again when another member goes
//! in the place of this one, whatever has been restarted meanwhile. What a person has put on stays.

use std::fmt;

use api::ConsumerReference;
use kit::{apply, placement::ObjectKey};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    core::{GroupVersion, PartialObjectMeta},
};
use serde_json::json;

use super::context::MANAGER;

/// On a Machine: Cluster API deletes it first.
pub(super) const DELETE: &str = "cluster.x-k8s.io/delete-machine";
/// Value of the annotation where we have put it on.
const OURS: &str = "sip.airshipit.org";
/// Group of Cluster API's own kinds.
const CLUSTER_API: &str = "cluster.x-k8s.io";
/// Group of its providers' kinds.
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// Versions of Cluster API's kinds, the newest first: any serves the metadata of an object.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// A Machine of Cluster API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Machine {
    key: ObjectKey,
    /// By which API version it is reached; absent where only a status names it.
    version: Option<String>,
}

/// As a status names it.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

impl Machine {
    /// The Machine that a status names.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        Some(Self {
            key: ObjectKey {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            version: None,
        })
    }

    /// Whether both are the same object.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.key == other.key
    }

    fn versions(&self) -> impl Iterator<Item = GroupVersion> {
        let known = self
            .version
            .as_deref()
            .map(|version| GroupVersion::gv(CLUSTER_API, version));
        let guessed = VERSIONS.map(|version| GroupVersion::gv(CLUSTER_API, version));
        let guessed = guessed.into_iter().filter(|_| self.version.is_none());
        known.into_iter().chain(guessed)
    }
}

/// Finds the Machine that owns a host's consumer. Where Cluster API is not installed, or something else uses the host, there is
/// none.
///
/// # Errors
/// What the API server answers.
pub(super) async fn find(client: &Client, consumer: &ConsumerReference) -> kube::Result<Option<Machine>> {
    let ConsumerReference {
        api_version,
        kind,
        namespace,
        name,
    } = consumer;
    let [api_version, kind, namespace, name] =
        [api_version, kind, namespace, name].map(|part| part.as_deref().unwrap_or_default());
    let version = api_version.parse::<GroupVersion>().ok();
    let Some(version) = version.filter(|version| version.group == INFRASTRUCTURE) else {
        return Ok(None);
    };
    let Some(found) = metadata(&objects(client, &version, kind, namespace), name).await? else {
        return Ok(None);
    };
    let owner = found.owner_references().iter().find_map(|owner| {
        let version = owner.api_version.parse::<GroupVersion>().ok()?;
        (owner.kind == "Machine" && version.group == CLUSTER_API).then_some((&owner.name, version.version))
    });
    Ok(owner.map(|(name, version)| Machine {
        key: ObjectKey {
            namespace: namespace.to_owned(),
            name: name.clone(),
        },
        version: Some(version),
    }))
}

/// Makes a Machine the first that Cluster API deletes.
///
/// # Errors
/// What the API server answers.
pub(super) async fn prioritize(client: &Client, machine: &Machine) -> kube::Result<()> {
    annotate(client, machine, true).await
}

/// Takes that back; what a person has put on stays.
///
/// # Errors
/// What the API server answers.
pub(super) async fn restore(client: &Client, machine: &Machine) -> kube::Result<()> {
    annotate(client, machine, false).await
}

async fn annotate(client: &Client, machine: &Machine, first: bool) -> kube::Result<()> {
    let ObjectKey { namespace, name } = &machine.key;
    for version in machine.versions() {
        let machines = objects(client, &version, "Machine", namespace);
        let Some(found) = metadata(&machines, name).await? else {
            continue;
        };
        let annotation = found.annotations().get(DELETE);
        let due = if first {
            annotation.is_none()
        } else {
            annotation.is_some_and(|value| value == OURS)
        };
        if due {
            let value = if first { json!(OURS) } else { json!(null) };
            let (uid, observed) = (found.uid(), found.resource_version());
            let condition = (&*uid.unwrap_or_default(), &*observed.unwrap_or_default());
            let change = json!({ "annotations": { DELETE: value } });
            apply::merge_metadata(&machines, MANAGER, name, condition, change).await?;
        }
        return Ok(());
    }
    Ok(())
}

fn objects(client: &Client, version: &GroupVersion, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&version.clone().with_kind(kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Metadata of an object; `None` when there is none, or no such kind: the API server answers 404 to both.
async fn metadata(
    api: &Api<DynamicObject>,
    name: &str,
) -> kube::Result<Option<PartialObjectMeta<DynamicObject>>> {
    match api.get_metadata(name).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if apply::code(&error) == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}
