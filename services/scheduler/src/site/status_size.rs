//! How large the status of a SIPCluster may become.
//!
//! An agent writes the members of a cluster into the status of its SIPCluster before it labels a host, and an API server stores no
//! object of more than 1.5 MiB. A claim that cannot be written there could never be used, nor be read back from there. So a cluster whose
//! status might not fit does not grow, whichever ledger there is.

use placement::{HostId, HostName};

use crate::{
    ledger::TooLarge,
    record::{Member, Record},
};

/// The most bytes for the members of a cluster: 1.5 MiB without 256 KiB for the spec, the conditions and whatever else an object has.
const LIMIT: usize = 1_280 << 10;

/// The names of all fields of a member with numbers and times, in the status and among the managed fields of the object.
const FIELDS: usize = 496;
/// The name of a Machine. Longer ones take from what is left for the rest of the object.
const MACHINE: usize = 64;

/// Refuses a step by which a cluster gets more members than its status can have.
///
/// # Errors
/// [`TooLarge`] names the cluster.
pub(super) fn require(site: &str, before: Option<&Record>, after: &Record) -> Result<(), TooLarge> {
    let members = |record: &Record| record.members.len();
    if members(after) <= before.map_or(0, members) {
        return Ok(());
    }
    let bytes = after.members.iter().map(|(id, of)| member(id, of)).sum();
    if bytes <= LIMIT {
        return Ok(());
    }
    Err(TooLarge {
        what: format!("{} in site {site:?} with {} hosts", after.cluster, members(after)),
        place: "the status of its SIPCluster",
        bytes,
        limit: LIMIT,
    })
}

/// The most bytes that a member takes, until it is given back.
pub(super) fn member(id: &HostId, member: &Member) -> usize {
    let name = |host: &HostName| host.namespace().as_str().len() + host.name().len();
    let domain = member
        .domain
        .as_ref()
        .map_or(0, |domain| domain.value.as_str().len());
    let replaces = member
        .replaces
        .as_ref()
        .map_or(0, |replaces| name(&replaces.host().name));
    FIELDS
        + MACHINE
        + 2 * name(&id.name)
        + id.uid.as_str().len()
        + member.role.as_str().len()
        + domain
        + replaces
}
