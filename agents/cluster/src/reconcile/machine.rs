//! Cluster API's Machines on hosts that leave: each is asked to go, so that Cluster API drains its Node and removes it, and the
//! host is no longer used.
//!
//! `cluster.x-k8s.io/delete-machine` makes a Machine the first that Cluster API deletes when its owner is scaled down. Only those on
//! surplus hosts carry it: where a host has failed, the owner is to make another Machine. The
//! status names the Machines that carry it because of us before they do, so that it is taken off again when another member goes
//! in the place of this one, whatever has been restarted meanwhile. What a person has put on stays.

use std::fmt;

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
pub(super) const CLUSTER_API: &str = "cluster.x-k8s.io";
/// On a Machine: the `MachineDeployment` that it is one of. Its controller is a `MachineSet`, which nobody scales.
const DEPLOYMENT: &str = "cluster.x-k8s.io/deployment-name";
/// How often a Machine that changes under a write is written.
const ATTEMPTS: u8 = 3;
/// Versions of Cluster API's kinds, the newest first: any serves the metadata of an object.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// A Machine of Cluster API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Machine {
    key: ObjectKey,
    /// By which API version it is reached; absent where only a status names it.
    version: Option<String>,
    /// What is scaled, and makes another one in its place: kind and name. Absent where nothing owns it, or only a status names it.
    owner: Option<String>,
    /// Whether it is being deleted, or gone.
    leaves: bool,
    /// Whether Cluster API deletes it first, because of us or of a person.
    is_marked: bool,
}

/// As a status names it.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

impl Machine {
    /// A Machine by its name and a served version; `found`: the object, if there is one.
    pub(super) fn of_object(
        key: ObjectKey,
        version: String,
        found: Option<&PartialObjectMeta<DynamicObject>>,
    ) -> Self {
        Self {
            key,
            version: Some(version),
            owner: found.and_then(scaled_owner),
            leaves: found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()),
            is_marked: found.is_some_and(|found| found.annotations().contains_key(DELETE)),
        }
    }

    /// Whether it is being deleted, or gone.
    pub(super) fn leaves(&self) -> bool {
        self.leaves
    }

    /// The Machine that a status names.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        Some(Self {
            key: ObjectKey {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            version: None,
            owner: None,
            leaves: false,
            is_marked: false,
        })
    }

    /// Whether Cluster API deletes it first when its owner is scaled down.
    pub(super) fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// What is scaled, and makes another one in its place: kind and name.
    pub(super) fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    #[cfg(test)]
    pub(super) fn owned_by(self, owner: &str) -> Self {
        Self {
            owner: Some(owner.to_owned()),
            ..self
        }
    }

    #[cfg(test)]
    pub(super) fn marked(self) -> Self {
        Self {
            is_marked: true,
            ..self
        }
    }

    #[cfg(test)]
    pub(super) fn leaving(self) -> Self {
        Self { leaves: true, ..self }
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

/// What is scaled and owns a Machine.
fn scaled_owner(machine: &PartialObjectMeta<DynamicObject>) -> Option<String> {
    if let Some(deployment) = machine.labels().get(DEPLOYMENT) {
        return Some(format!("MachineDeployment {deployment}"));
    }
    let owners = machine.owner_references().iter();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    let owner = controllers.next()?;
    Some(format!("{} {}", owner.kind, owner.name))
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

/// Cluster API's controllers write Machines often: one that has changed since it was read is read again.
async fn annotate(client: &Client, machine: &Machine, first: bool) -> kube::Result<()> {
    let mut attempt = 1;
    loop {
        match annotate_once(client, machine, first).await {
            Err(error) if apply::code(&error) == Some(409) && attempt < ATTEMPTS => attempt += 1,
            result => return result,
        }
    }
}

async fn annotate_once(client: &Client, machine: &Machine, first: bool) -> kube::Result<()> {
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

pub(super) fn objects(
    client: &Client,
    version: &GroupVersion,
    kind: &str,
    namespace: &str,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&version.clone().with_kind(kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Metadata of an object; `None` when there is none, or no such kind: the API server answers 404 to both.
pub(super) async fn metadata(
    api: &Api<DynamicObject>,
    name: &str,
) -> kube::Result<Option<PartialObjectMeta<DynamicObject>>> {
    match api.get_metadata(name).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if apply::code(&error) == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use kube::client::Body;

    use super::*;

    /// An API server that refuses the first `conflicts` patches, because the Machine has changed; and how many it was asked.
    fn server(conflicts: usize) -> (Client, Arc<AtomicUsize>) {
        let patches = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&patches);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let is_refused = request.method() == http::Method::PATCH
                && counted.fetch_add(1, Ordering::Relaxed) < conflicts;
            let body = if is_refused {
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409, "reason": "Conflict", "message": ""})
            } else {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "m-0", "uid": "u", "resourceVersion": "7"}})
            };
            let code = if is_refused { 409 } else { 200 };
            let response = http::Response::builder().status(code);
            let response = response
                .body(Body::from(serde_json::to_vec(&body).unwrap()))
                .unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        (Client::new(service, "tenant"), patches)
    }

    #[tokio::test]
    async fn a_machine_that_has_changed_is_read_again() {
        let machine = Machine::parse("tenant/m-0").unwrap();
        for (conflicts, patches, code) in [(0, 1, None), (2, 3, None), (9, 3, Some(409))] {
            let (client, asked) = server(conflicts);
            let result = prioritize(&client, &machine).await;
            assert_eq!(result.err().as_ref().and_then(apply::code), code, "{conflicts}");
            assert_eq!(asked.load(Ordering::Relaxed), patches, "{conflicts}");
        }
    }
}
