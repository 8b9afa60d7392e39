//! Cluster API's Machines on hosts that leave: each is marked for deletion, so that Cluster API drains its Node and removes it, and the
//! host is no longer used.
//!
//! `cluster.x-k8s.io/delete-machine` makes a Machine the first that Cluster API deletes when its owner is scaled down. Only those on
//! surplus hosts carry it: where a host has failed, the owner is to make another Machine. The
//! status names the Machines that carry it because of us before they do, so that it is removed again when another member leaves
//! in the place of this one, whatever has been restarted since. What a user has set stays, and what another `SIPCluster` has set: the
//! value names the one that it is of.

use std::fmt;

use kit::{apply, placement::ObjectKey};
use kube::{Client, ResourceExt as _, api::DynamicObject, core::PartialObjectMeta};
use serde_json::{Value, json};

use super::{
    context::MANAGER,
    named_objects::{FoundObject, Named},
};

/// On a Machine: Cluster API deletes it first.
pub(super) const DELETE_ANNOTATION: &str = "cluster.x-k8s.io/delete-machine";
/// What the value of the annotation begins with where this agent has put it on; namespace and name of the `SIPCluster` follow. Earlier versions
/// wrote no more than this.
const OWN_MARK_PREFIX: &str = "sip.airshipit.org";
/// Group of Cluster API's own kinds.
pub(super) const CLUSTER_API: &str = "cluster.x-k8s.io";
/// Kind of a Machine.
pub(super) const MACHINE: &str = "Machine";
/// On a Machine: the `MachineDeployment` that it is one of. Its controller is a `MachineSet`, which is not scaled by itself.
const DEPLOYMENT_LABEL: &str = "cluster.x-k8s.io/deployment-name";
/// Attempts to write a Machine that changes under the write, at most.
const MAX_WRITE_ATTEMPTS: u8 = 3;

/// A Machine of Cluster API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Machine {
    key: ObjectKey,
    /// The object to which the host has led, and which is of the Cluster that the `SIPCluster` serves; absent where only a status names it. Without
    /// this no Machine is marked.
    uid: Option<String>,
    /// By which API version it is reached; absent where it is gone, or only a status names it.
    version: Option<String>,
    /// What is scaled, and makes another one in its place: kind and name. Absent where nothing owns it, or only a status names it.
    owner: Option<String>,
    /// Whether it is being deleted, or gone.
    leaves: bool,
    /// Whether Cluster API deletes it first, because of this agent or of a user.
    is_marked: bool,
}

/// As a status names it.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

impl Machine {
    /// A Machine by its name and uid; `found`: the object, if it is there.
    pub(super) fn of_object(key: ObjectKey, uid: String, found: Option<&FoundObject>) -> Self {
        let metadata = found.map(|found| &found.metadata);
        Self {
            key,
            uid: Some(uid),
            version: found.map(|found| found.version.clone()),
            owner: metadata.and_then(scaled_owner),
            leaves: metadata.is_none_or(|found| found.metadata.deletion_timestamp.is_some()),
            is_marked: metadata.is_some_and(|found| found.annotations().contains_key(DELETE_ANNOTATION)),
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
            uid: None,
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

    /// Its namespace, which is also that of its owner.
    pub(super) fn namespace(&self) -> &str {
        &self.key.namespace
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

    /// One to which a host has led.
    #[cfg(test)]
    pub(super) fn reached(self, uid: &str) -> Self {
        Self {
            uid: Some(uid.to_owned()),
            ..self
        }
    }

    #[cfg(test)]
    pub(super) fn leaving(self) -> Self {
        Self { leaves: true, ..self }
    }

    /// Whether both are the same object.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.key == other.key
    }

    /// What is written to its annotation, if anything; `found`: as it is now, `mark`: the value that is ours.
    fn change(&self, found: &PartialObjectMeta<DynamicObject>, change: Change, mark: &str) -> Option<Value> {
        let is_known = self.uid.is_some() && self.uid == found.uid();
        let value = found.annotations().get(DELETE_ANNOTATION).map(String::as_str);
        // Earlier versions did not write the SIPCluster into the value. It counts as ours only on the Machine that our own host leads to.
        let is_earlier = value == Some(OWN_MARK_PREFIX) && is_known;
        match change {
            Change::Mark => (is_known && (value.is_none() || is_earlier)).then(|| json!(mark)),
            Change::Unmark => (value == Some(mark) || is_earlier).then_some(Value::Null),
        }
    }
}

/// What happens to the annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Mark,
    Unmark,
}

/// What is scaled and owns a Machine.
fn scaled_owner(machine: &PartialObjectMeta<DynamicObject>) -> Option<String> {
    if let Some(deployment) = machine.labels().get(DEPLOYMENT_LABEL) {
        return Some(format!("MachineDeployment {deployment}"));
    }
    let owners = machine.owner_references().iter();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    let owner = controllers.next()?;
    Some(format!("{} {}", owner.kind, owner.name))
}

/// Makes a Machine the first that Cluster API deletes, for this `SIPCluster`.
///
/// # Errors
/// What the API server answers.
pub(super) async fn prioritize(client: &Client, cluster: &ObjectKey, machine: &Machine) -> kube::Result<()> {
    annotate(client, cluster, machine, Change::Mark).await
}

/// Removes that mark; what a user or another `SIPCluster` has set stays.
///
/// # Errors
/// What the API server answers.
pub(super) async fn restore(client: &Client, cluster: &ObjectKey, machine: &Machine) -> kube::Result<()> {
    annotate(client, cluster, machine, Change::Unmark).await
}

/// Cluster API's controllers write Machines often: one that has changed since it was read is read again.
async fn annotate(
    client: &Client,
    cluster: &ObjectKey,
    machine: &Machine,
    change: Change,
) -> kube::Result<()> {
    let mut attempt = 1;
    loop {
        match annotate_once(client, cluster, machine, change).await {
            Err(error) if apply::code(&error) == Some(409) && attempt < MAX_WRITE_ATTEMPTS => attempt += 1,
            result => return result,
        }
    }
}

async fn annotate_once(
    client: &Client,
    cluster: &ObjectKey,
    machine: &Machine,
    change: Change,
) -> kube::Result<()> {
    let ObjectKey { namespace, name } = &machine.key;
    let named = Named {
        group: CLUSTER_API,
        kind: MACHINE,
        version: machine.version.as_deref(),
        namespace,
        name,
    };
    let Some(FoundObject {
        version: _,
        api,
        metadata: found,
    }) = named.find(client).await?
    else {
        return Ok(());
    };
    let Some(value) = machine.change(&found, change, &format!("{OWN_MARK_PREFIX}/{cluster}")) else {
        return Ok(());
    };
    let (uid, observed) = (found.uid(), found.resource_version());
    let condition = (&*uid.unwrap_or_default(), &*observed.unwrap_or_default());
    let written = json!({ "annotations": { DELETE_ANNOTATION: value } });
    apply::merge_metadata(&api, MANAGER, name, condition, written).await?;
    Ok(())
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

    fn shop() -> ObjectKey {
        ObjectKey {
            namespace: "shop".to_owned(),
            name: "orders".to_owned(),
        }
    }

    #[tokio::test]
    async fn a_machine_that_has_changed_is_read_again() {
        let machine = Machine::parse("tenant/m-0").unwrap().reached("u");
        for (conflicts, patches, code) in [(0, 1, None), (2, 3, None), (9, 3, Some(409))] {
            let (client, asked) = server(conflicts);
            let result = prioritize(&client, &shop(), &machine).await;
            assert_eq!(result.err().as_ref().and_then(apply::code), code, "{conflicts}");
            assert_eq!(asked.load(Ordering::Relaxed), patches, "{conflicts}");
        }
    }

    #[test]
    fn only_an_own_mark_is_written_or_taken_off() {
        const MARK: &str = "sip.airshipit.org/shop/orders";
        let named = Machine::parse("tenant/m-0").unwrap();
        let (own, other) = (named.clone().reached("u"), named.clone().reached("another"));
        let [set, remove] = [Some(json!(MARK)), Some(Value::Null)];
        for (who, machine, value, marked, unmarked) in [
            ("none", &own, None, &set, &None),
            ("its own", &own, Some(MARK), &None, &remove),
            (
                "of an earlier version",
                &own,
                Some(OWN_MARK_PREFIX),
                &set,
                &remove,
            ),
            ("a person's", &own, Some("mine"), &None, &None),
            (
                "another cluster's",
                &own,
                Some("sip.airshipit.org/b/orders"),
                &None,
                &None,
            ),
            ("none, by a status alone", &named, None, &None, &None),
            ("its own, by a status alone", &named, Some(MARK), &None, &remove),
            (
                "of an earlier version, by a status alone",
                &named,
                Some(OWN_MARK_PREFIX),
                &None,
                &None,
            ),
            ("none, on another of its name", &other, None, &None, &None),
            (
                "of an earlier version, on another of its name",
                &other,
                Some(OWN_MARK_PREFIX),
                &None,
                &None,
            ),
        ] {
            let annotations = value.map(|value| json!({ DELETE_ANNOTATION: value }));
            let found = json!({"metadata": {"name": "m-0", "uid": "u", "annotations": annotations}});
            let found: PartialObjectMeta<DynamicObject> = serde_json::from_value(found).unwrap();
            assert_eq!(machine.change(&found, Change::Mark, MARK), *marked, "{who}");
            assert_eq!(machine.change(&found, Change::Unmark, MARK), *unmarked, "{who}");
        }
    }
}
