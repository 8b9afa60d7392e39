//! Finds who uses a host in the end: a Machine of Cluster API, through its `Metal3Machine` and through a `HostClaim`; and what a host that
//! is gone leaves behind. Objects are read by name only.
//!
//! Tenants write `HostClaim`s, and what is found is annotated. So a `HostClaim` leads only to objects of its own namespace; only the Machine that
//! owns the `Metal3Machine` by its uid counts; and that must be of the Cluster that the `SIPCluster` serves.

use api::{ClusterApiCluster, ConsumerReference, HOST_CLAIM, METAL3, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kit::placement::{HostId, ObjectKey};
use kube::{Client, ResourceExt as _, api::DynamicObject};

use super::{
    machine::{CLUSTER_API, MACHINE, Machine},
    named_objects::{FoundObject, Named, is_name, version_of},
};
use crate::inventory::{Inventory, Verdict};

/// Group of the kinds of Cluster API's providers.
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// Kind of Cluster API's clusters.
const CLUSTER: &str = "Cluster";
/// Kind of what CAPM3 makes of a Machine.
const METAL3_MACHINE: &str = "Metal3Machine";

/// What uses a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum User {
    /// This Machine, directly or through a `HostClaim`.
    Machine(Machine),
    /// A `HostClaim` that no Machine uses, which this names by kind, namespace and name.
    Claim(String),
    /// A Machine of another Cluster than the one that the `SIPCluster` serves. This names what leads there by kind, namespace and name, and nothing
    /// that only that Cluster's owner may know.
    Foreign(String),
    /// Nothing at present: CAPM3 1.14 keeps the host for the next Machine of its owner (`nodeReuse`). This names the Cluster that it puts in the place
    /// of the Machine, by kind, namespace and name.
    Kept(String),
}

/// What a host that is gone leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Remains {
    /// This Machine, which is not being deleted.
    Machine(Machine),
    /// Nothing: its owner, which this names by kind, namespace and name, had gone before, and the garbage collector deletes such hosts.
    Collected(String),
}

/// Finds what uses a host of a `SIPCluster` that serves this Cluster: the Machine that owns the host's consumer, or that owns what a `HostClaim` is
/// for. Where Cluster API is not installed, or something else uses the host, there is none.
///
/// # Errors
/// What the API server answers.
pub(super) async fn find(
    client: &Client,
    served: &ClusterApiCluster,
    consumer: &ConsumerReference,
) -> kube::Result<Option<User>> {
    if is_cluster(consumer) {
        return Ok(Some(User::Kept(described(consumer))));
    }
    if !consumer.is_host_claim() {
        let found = of_metal3_machine(client, served, consumer).await?;
        return Ok(found.map(|owner| owner.user(consumer)));
    }
    let namespace = part(consumer.namespace.as_ref());
    let claim = Named {
        group: METAL3,
        kind: HOST_CLAIM,
        version: version_of(part(consumer.api_version.as_ref()), METAL3),
        namespace,
        name: part(consumer.name.as_ref()),
    };
    let Some(claim) = claim.get(client).await? else {
        return Ok(None);
    };
    let owner = match claimed_for(&claim, namespace) {
        Some(consumer) => of_metal3_machine(client, served, &consumer).await?,
        None => None,
    };
    Ok(Some(owner.map_or_else(
        || User::Claim(described(consumer)),
        |owner| owner.user(consumer),
    )))
}

/// The consumer that a `HostClaim` names in `spec.consumerRef`. The tenant writes that field, so a consumer in another namespace than the claim is
/// ignored.
fn claimed_for(claim: &DynamicObject, namespace: &str) -> Option<ConsumerReference> {
    let consumer = claim.data.pointer("/spec/consumerRef")?;
    let mut consumer = serde_json::from_value::<ConsumerReference>(consumer.clone()).ok()?;
    let named = consumer.namespace.take().filter(|named| !named.is_empty());
    if named.is_some_and(|named| named != namespace) {
        return None;
    }
    consumer.namespace = Some(namespace.to_owned());
    Some(consumer)
}

/// Finds what a host that is gone leaves behind, as far as this process has observed its deletion. Why it is gone is decided by its owners as they
/// are in the first pass that misses it, and noted: a user who deletes its Machine in consequence deletes them, too.
///
/// # Errors
/// What the API server answers.
pub(super) async fn find_left(
    client: &Client,
    inventory: &Inventory,
    served: &ClusterApiCluster,
    host: &HostId,
) -> kube::Result<Option<Remains>> {
    let Some(gone) = inventory.gone_host(host) else {
        return Ok(None);
    };
    let verdict = if let Some(verdict) = gone.verdict {
        verdict
    } else {
        let verdict = judge(client, &host.key().namespace, &gone.owners).await?;
        inventory.judge_gone_host(host, verdict.clone());
        verdict
    };
    if let Verdict::Collected(owner) = verdict {
        return Ok(Some(Remains::Collected(owner)));
    }
    let user = match gone.consumer {
        Some(consumer) => find(client, served, &consumer).await?,
        None => None,
    };
    Ok(match user {
        Some(User::Machine(machine)) if !machine.leaves() => Some(Remains::Machine(machine)),
        Some(User::Machine(_) | User::Claim(_) | User::Foreign(_) | User::Kept(_)) | None => None,
    })
}

/// Why a host is gone, by its owners as they are now. Those of kinds that this agent may not read count as there.
async fn judge(client: &Client, namespace: &str, owners: &[OwnerReference]) -> kube::Result<Verdict> {
    for owner in owners {
        let version = version_of(&owner.api_version, INFRASTRUCTURE);
        if owner.kind != METAL3_MACHINE || version.is_none() {
            return Ok(Verdict::Deleted);
        }
        let named = Named {
            group: INFRASTRUCTURE,
            kind: METAL3_MACHINE,
            version,
            namespace,
            name: &owner.name,
        };
        let found = named.find(client).await?;
        if found.is_some_and(|found| found.metadata.uid().as_ref() == Some(&owner.uid)) {
            return Ok(Verdict::Deleted);
        }
    }
    Ok(owners.first().map_or(Verdict::Deleted, |owner| {
        Verdict::Collected(format!("{} {namespace}/{}", owner.kind, owner.name))
    }))
}

fn is_cluster(consumer: &ConsumerReference) -> bool {
    let version = version_of(part(consumer.api_version.as_ref()), CLUSTER_API);
    consumer.kind.as_deref() == Some(CLUSTER) && version.is_some()
}

fn part(text: Option<&String>) -> &str {
    text.map(String::as_str).unwrap_or_default()
}

/// Kind, namespace and name.
fn described(consumer: &ConsumerReference) -> String {
    let ConsumerReference {
        api_version: _,
        kind,
        namespace,
        name,
    } = consumer;
    let [kind, namespace, name] = [kind, namespace, name].map(|text| part(text.as_ref()));
    format!("{kind} {namespace}/{name}")
}

/// The Machine that owns a `Metal3Machine`.
#[derive(Debug)]
enum Owner {
    Machine(Machine),
    /// It is of another Cluster.
    Foreign,
}

impl Owner {
    /// As what uses the host of this consumer.
    fn user(self, consumer: &ConsumerReference) -> User {
        match self {
            Self::Machine(machine) => User::Machine(machine),
            Self::Foreign => User::Foreign(described(consumer)),
        }
    }
}

/// Finds the Machine that owns a `Metal3Machine`.
async fn of_metal3_machine(
    client: &Client,
    served: &ClusterApiCluster,
    consumer: &ConsumerReference,
) -> kube::Result<Option<Owner>> {
    let version = version_of(part(consumer.api_version.as_ref()), INFRASTRUCTURE);
    if consumer.kind.as_deref() != Some(METAL3_MACHINE) || version.is_none() {
        return Ok(None);
    }
    let namespace = part(consumer.namespace.as_ref());
    let metal3_machine = Named {
        group: INFRASTRUCTURE,
        kind: METAL3_MACHINE,
        version,
        namespace,
        name: part(consumer.name.as_ref()),
    };
    let Some(found) = metal3_machine.find(client).await? else {
        return Ok(None);
    };
    let owner = found.metadata.owner_references().iter().find_map(|owner| {
        let version = version_of(&owner.api_version, CLUSTER_API)?;
        (owner.kind == MACHINE && is_name(&owner.name)).then_some((owner, version))
    });
    let Some((owner, version)) = owner else {
        return Ok(None);
    };
    let machine = Named {
        group: CLUSTER_API,
        kind: MACHINE,
        version: Some(version),
        namespace,
        name: &owner.name,
    };
    // An object with the owner's name and another uid is not the owner, which is gone.
    let found = machine.find(client).await?;
    let found = found.filter(|found| found.metadata.uid().as_ref() == Some(&owner.uid));
    if found
        .as_ref()
        .is_some_and(|found| !is_of(found, served, namespace))
    {
        return Ok(Some(Owner::Foreign));
    }
    let key = ObjectKey {
        namespace: namespace.to_owned(),
        name: owner.name.clone(),
    };
    let machine = Machine::of_object(key, owner.uid.clone(), found.as_ref());
    Ok(Some(Owner::Machine(machine)))
}

/// Whether a Machine is of this Cluster, by the label that Cluster API sets on every one.
fn is_of(machine: &FoundObject, served: &ClusterApiCluster, namespace: &str) -> bool {
    let named = machine.metadata.labels().get(labels::CLUSTER_API);
    named.is_some_and(|named| served.is(namespace, named))
}

#[cfg(test)]
mod tests;
