//! The part of a `SIPCluster`'s status that this agent owns, and when it is written: only when it differs.

use api::{
    Applied as AppliedEntry, Drained, Endpoint, Placement, SIPCluster, SIPClusterStatus,
    conditions::{LOAD_BALANCER_READY, SCHEDULED, ready::PROGRESSING},
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kit::{
    apply,
    conditions::{Finding, REMOVED, find},
};
use kube::{Client, ResourceExt as _};

use super::{
    Error, MANAGER,
    apply::{Applied, Joined, Lack},
    drain::Drain,
    said::{self, Said},
};

/// Whether an entry of the status, by its name, is this agent's: several agents share the lists.
pub(super) fn is_own(name: &str) -> bool {
    name.starts_with("loadbalancer-")
}

/// What this agent says of the cluster at present, besides its condition.
fn own(object: &SIPCluster) -> (Vec<AppliedEntry>, Vec<Endpoint>, Option<Drained>) {
    let mut status = object.status.clone().unwrap_or_default();
    status.applied.retain(|applied| is_own(&applied.service));
    status.endpoints.retain(|endpoint| is_own(&endpoint.name));
    (status.applied, status.endpoints, status.drained)
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
    let (applied, endpoints, drained) = own(object);
    let said = Said {
        finding: Some(finding),
        applied,
        endpoints,
        drained,
    };
    write(object, client, said).await.map(drop)
}

/// Says which load balancers have this placement, unless that is said already: hosts get their labels as soon as it is, and
/// pods take their time. What was said of this generation's pods stays. Returns whether it was written.
pub(super) async fn joined(
    object: &SIPCluster,
    held: &Placement,
    joined: &[Result<Joined<'_>, Lack>],
    client: &Client,
) -> Result<bool, Error> {
    let so_far: Vec<Applied> = joined
        .iter()
        .map(|joined| match joined {
            Ok(joined) => joined.so_far(),
            Err(lack) => Applied::Refused(lack.clone()),
        })
        .collect();
    let (known, reached, drained) = own(object);
    let generation = object.metadata.generation.unwrap_or_default();
    let mut next = said::of(generation, held, &so_far, &Drain::Done(drained));
    if known == next.applied {
        return Ok(false);
    }
    let kept = condition(object).filter(|known| known.observed_generation == Some(generation));
    if let Some(kept) = kept.cloned() {
        next.endpoints = reached;
        apply_status(object, client, vec![kept], next).await?;
        return Ok(true);
    }
    write(object, client, next).await
}

/// Says that every object that was made for the cluster is removed.
pub(super) fn removed(drained: Option<Drained>) -> Said {
    let why = "the cluster is being deleted";
    Said {
        finding: Some(Finding::no(LOAD_BALANCER_READY, REMOVED, why)),
        applied: Vec::new(),
        endpoints: Vec::new(),
        drained,
    }
}

/// Says which hosts may be given back, and leaves what else was said as it is.
pub(super) async fn drained(
    object: &SIPCluster,
    client: &Client,
    drained: Option<Drained>,
) -> Result<(), Error> {
    let (applied, endpoints, known) = own(object);
    if known == drained {
        return Ok(());
    }
    let said = Said {
        finding: None,
        applied,
        endpoints,
        drained,
    };
    let kept = condition(object).cloned().into_iter().collect();
    apply_status(object, client, kept, said).await
}

/// Whether this agent has said anything of the cluster.
pub(super) fn answered(object: &SIPCluster) -> bool {
    condition(object).is_some()
}

fn condition(object: &SIPCluster) -> Option<&Condition> {
    let status = object.status.as_ref()?;
    find(&status.conditions, LOAD_BALANCER_READY)
}

/// Writes the status if it differs from the one there. Returns whether it did.
pub(super) async fn write(object: &SIPCluster, client: &Client, said: Said) -> Result<bool, Error> {
    let before = object
        .status
        .as_ref()
        .map(|status| &*status.conditions)
        .unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    let next = said
        .finding
        .as_ref()
        .map(|finding| finding.clone().condition(before, generation, Timestamp::now()));
    let (applied, endpoints, drained) = own(object);
    let same = condition(object) == next.as_ref()
        && (&applied, &endpoints, drained) == (&said.applied, &said.endpoints, said.drained);
    if same {
        return Ok(false);
    }
    apply_status(object, client, next.into_iter().collect(), said).await?;
    Ok(true)
}

async fn apply_status(
    object: &SIPCluster,
    client: &Client,
    conditions: Vec<Condition>,
    said: Said,
) -> Result<(), Error> {
    let Said {
        finding: _,
        applied,
        endpoints,
        drained,
    } = said;
    let status = SIPClusterStatus {
        conditions,
        applied,
        endpoints,
        drained,
        ..SIPClusterStatus::default()
    };
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    apply::apply_status::<SIPCluster>(client, MANAGER, &namespace, &name, &status)
        .await
        .map(drop)
        .map_err(Error::kubernetes("write the status"))
}
