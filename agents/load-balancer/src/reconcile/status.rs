//! The part of a `SIPCluster`'s status that this agent owns, and when it is written: only when it differs.

use api::{
    Applied as AppliedEntry, Endpoint, Placement, SIPCluster, SIPClusterStatus,
    conditions::{LOAD_BALANCER_READY, SCHEDULED, ready::PROGRESSING},
};
use k8s_openapi::jiff::Timestamp;
use kit::{
    apply,
    conditions::{Finding, REMOVED, find},
};
use kube::{Client, ResourceExt as _};

use super::{
    Error, MANAGER,
    apply::{Applied, Joined, Lack},
    said::{self, Said},
};

/// Whether an entry of the status, by its name, is this agent's: several agents share the lists.
pub(super) fn is_own(name: &str) -> bool {
    name.starts_with("loadbalancer-")
}

/// What this agent says of the cluster at present.
fn own(object: &SIPCluster) -> (Vec<AppliedEntry>, Vec<Endpoint>) {
    let mut status = object.status.clone().unwrap_or_default();
    status.applied.retain(|applied| is_own(&applied.service));
    status.endpoints.retain(|endpoint| is_own(&endpoint.name));
    (status.applied, status.endpoints)
}

/// Whether the cluster agent has said what has become of the cluster's hosts.
pub(super) fn is_decided(object: &SIPCluster) -> bool {
    let status = object.status.as_ref();
    status.is_some_and(|status| find(&status.conditions, SCHEDULED).is_some())
}

/// Says that there is no placement to serve yet.
pub(super) async fn waiting(object: &SIPCluster, client: &Client) -> Result<(), Error> {
    let finding = Finding::no(
        LOAD_BALANCER_READY,
        PROGRESSING,
        "the cluster has no placement yet",
    );
    let (applied, endpoints) = own(object);
    write(
        object,
        client,
        Said {
            finding,
            applied,
            endpoints,
        },
    )
    .await
    .map(drop)
}

/// Says which load balancers have taken this placement in, if that is not said yet; what was said of this generation's
/// pods stays. Returns the cluster as it is then.
pub(super) async fn joined(
    object: &SIPCluster,
    held: &Placement,
    joined: &[Result<Joined<'_>, Lack>],
    client: &Client,
) -> Result<Option<SIPCluster>, Error> {
    let so_far: Vec<Applied> = joined
        .iter()
        .map(|joined| match joined {
            Ok(joined) => joined.so_far(),
            Err(lack) => Applied::Refused(lack.clone()),
        })
        .collect();
    let Said {
        finding,
        applied,
        endpoints,
    } = said::of(object, held, &so_far);
    let (said, reached) = own(object);
    if said == applied {
        return Ok(None);
    }
    let before = object
        .status
        .as_ref()
        .map(|status| &*status.conditions)
        .unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    let known = find(before, LOAD_BALANCER_READY)
        .filter(|condition| condition.observed_generation == Some(generation));
    let (condition, endpoints) = match known {
        Some(known) => (known.clone(), reached),
        None => (finding.condition(before, generation, Timestamp::now()), endpoints),
    };
    let next = SIPClusterStatus {
        conditions: vec![condition],
        applied,
        endpoints,
        ..SIPClusterStatus::default()
    };
    apply_status(object, client, &next).await.map(Some)
}

/// Says that every object that was made for the cluster is removed.
pub(super) async fn removed(object: &SIPCluster, client: &Client) -> Result<(), Error> {
    let finding = Finding::no(LOAD_BALANCER_READY, REMOVED, "the cluster is being deleted");
    write(
        object,
        client,
        Said {
            finding,
            applied: Vec::new(),
            endpoints: Vec::new(),
        },
    )
    .await
    .map(drop)
}

/// Whether this agent has said anything of the cluster.
pub(super) fn answered(object: &SIPCluster) -> bool {
    let said = object
        .status
        .as_ref()
        .map(|status| &*status.conditions)
        .unwrap_or_default();
    find(said, LOAD_BALANCER_READY).is_some()
}

/// Takes back what this agent said: the spec asks for no load balancer any more.
pub(super) async fn withdraw(object: &SIPCluster, client: &Client) -> Result<(), Error> {
    if !answered(object) {
        return Ok(());
    }
    apply_status(object, client, &SIPClusterStatus::default())
        .await
        .map(drop)
}

/// Writes the status if it differs from the one there. Returns whether it did.
pub(super) async fn write(object: &SIPCluster, client: &Client, said: Said) -> Result<bool, Error> {
    let Said {
        finding,
        applied,
        endpoints,
    } = said;
    let before = object.status.clone().unwrap_or_default();
    let own = own(object);
    let generation = object.metadata.generation.unwrap_or_default();
    let condition = finding.condition(&before.conditions, generation, Timestamp::now());
    let same = find(&before.conditions, LOAD_BALANCER_READY) == Some(&condition)
        && own == (applied.clone(), endpoints.clone());
    if same {
        return Ok(false);
    }
    let next = SIPClusterStatus {
        conditions: vec![condition],
        applied,
        endpoints,
        ..SIPClusterStatus::default()
    };
    apply_status(object, client, &next).await?;
    Ok(true)
}

async fn apply_status(
    object: &SIPCluster,
    client: &Client,
    status: &SIPClusterStatus,
) -> Result<SIPCluster, Error> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    apply::apply_status::<SIPCluster>(client, MANAGER, &namespace, &name, status)
        .await
        .map_err(Error::kubernetes("write the status"))
}
