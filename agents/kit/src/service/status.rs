//! The part of a `SIPCluster`'s status that a service agent owns. It is written only when it differs, and only to the object as it was observed:
//! a late write must neither report to another incarnation what was applied for the one before, nor list again what was withdrawn.

use api::{
    Applied, Drained, Endpoint, SIPClusterStatus,
    conditions::{NAMESPACE_NOT_GRANTED, ready::PROGRESSING},
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kube::Client;

use super::{error::Error, identity::Identity, observed::Observed};
use crate::{apply, conditions::Finding};

/// The part of a status that a service agent owns.
#[derive(Debug)]
pub(super) struct Status {
    /// `None`: the spec asks for no instance, so there is no condition.
    pub(super) finding: Option<Finding>,
    pub(super) applied: Vec<Applied>,
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) drained: Option<Drained>,
}

/// Writes the status if it differs from the observed one. Returns whether it did.
///
/// # Errors
/// [`Error::Changed`] and [`Error::Gone`] when the cluster is not as it was observed any more; what else the API server answers.
pub(super) async fn write(
    client: &Client,
    identity: &Identity,
    observed: &Observed<'_>,
    status: Status,
) -> Result<bool, Error> {
    let condition = status
        .finding
        .clone()
        .map(|finding| finding.condition(observed.conditions(), observed.generation(), Timestamp::now()));
    if observed.condition() == condition.as_ref() && is_same(observed, &status) {
        return Ok(false);
    }
    write_with(client, identity, observed, condition, status).await?;
    Ok(true)
}

/// Whether the last status reports that the agent has no rights in the namespace. A pass with rights replaces it before it starts pods.
pub(super) fn lacked_rights(observed: &Observed<'_>) -> bool {
    let condition = observed.condition();
    condition.is_some_and(|condition| condition.reason == NAMESPACE_NOT_GRANTED)
}

fn is_same(observed: &Observed<'_>, status: &Status) -> bool {
    observed.applied() == status.applied
        && observed.endpoints() == status.endpoints
        && observed.drained() == status.drained
}

/// Writes the status with the existing condition, if the rest differs. A condition that reports missing rights is not kept: other agents conclude
/// from it that this agent starts no pods.
pub(super) async fn write_keeping_condition(
    client: &Client,
    identity: &Identity,
    observed: &Observed<'_>,
    status: Status,
) -> Result<(), Error> {
    if lacked_rights(observed) {
        let why = "the agent has rights in the namespace now, and is checking whether the service works";
        let finding = Some(Finding::no(identity.condition, PROGRESSING, why));
        write(client, identity, observed, Status { finding, ..status }).await?;
        return Ok(());
    }
    if is_same(observed, &status) {
        return Ok(());
    }
    write_with(client, identity, observed, observed.condition().cloned(), status).await
}

async fn write_with(
    client: &Client,
    identity: &Identity,
    observed: &Observed<'_>,
    condition: Option<Condition>,
    status: Status,
) -> Result<(), Error> {
    let Status {
        finding: _,
        applied,
        endpoints,
        drained,
    } = status;
    let status = SIPClusterStatus {
        conditions: condition.into_iter().collect(),
        applied,
        endpoints,
        drained,
        ..SIPClusterStatus::default()
    };
    apply::apply_status_of(client, identity.manager, observed.object(), &status)
        .await
        .map(drop)
        .map_err(Error::conditional("write the status"))
}
