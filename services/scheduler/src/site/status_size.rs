//! How large the status of a SIPCluster may become.
//!
//! An agent writes the members of a cluster into the status of its SIPCluster before it labels a host, and an API server stores no
//! object of more than 1.5 MiB. A claim that cannot be written there could never be used, nor be read back from there. So a cluster whose
//! status might not fit does not grow, whichever ledger there is.

use std::collections::BTreeMap;

use placement::{HostId, HostName};

use crate::{
    ledger::TooLarge,
    record::{Member, Record},
};

/// Maximum size of an object in etcd, in bytes, with 4 KiB for the rest of the request.
const MAX_OBJECT_BYTES: usize = (1_536 - 4) << 10;
/// Maximum size of the members of a cluster in its status, in bytes: its spec, conditions and whatever else the object has fit into the
/// other 256 KiB.
const MAX_MEMBERS_BYTES: usize = 1_280 << 10;

/// Bytes of the names of all fields of a member with numbers and times, in the status and among the managed fields of the object.
const MEMBER_FIELDS_BYTES: usize = 496;
/// Bytes of the name of a Machine. Longer ones take from what is left for the rest of the object.
const MACHINE_NAME_BYTES: usize = 64;

/// Refuses a step by which a cluster gets more members than its status can have, or a spec that leaves too little room for those it has.
/// What is declared again of the same generation is not refused for its size: the object is there already, and so are its members.
/// `beside`: bytes for which there must be room too.
///
/// # Errors
/// [`TooLarge`] names the cluster.
pub(super) fn require(
    site: &str,
    before: Option<&Record>,
    after: &Record,
    beside: usize,
) -> Result<(), TooLarge> {
    let grows = beside > 0 || hosts(after) > before.map_or(0, hosts);
    let other = after.spec.other_bytes();
    let leaves_less = before.is_some_and(|before| {
        after.generation > before.generation && other > before.spec.other_bytes() && !after.releasing
    });
    if !grows && !leaves_less {
        return Ok(());
    }
    let bytes = sizes(after).values().sum::<usize>() + beside;
    let limit = limit(other);
    if bytes <= limit {
        return Ok(());
    }
    let what = format!("{} in site {site:?} with {} hosts", after.cluster, hosts(after));
    Err(TooLarge {
        what: format!("{what}{}", other_fields(after)),
        place: "the status of its SIPCluster",
        bytes,
        limit,
    })
}

/// How many members the status names: one of each name. Of a host that was made again or has moved the others are not in it.
pub(super) fn hosts(record: &Record) -> usize {
    let mut last = None;
    let names = record.members.keys().map(|id| &id.name);
    names.filter(|name| last.replace(*name) != Some(*name)).count()
}

/// The most bytes of the member of each name.
fn sizes(record: &Record) -> BTreeMap<&HostName, usize> {
    let mut sizes = BTreeMap::new();
    for (id, of) in &record.members {
        let size = sizes.entry(&id.name).or_default();
        *size = member(id, of).max(*size);
    }
    sizes
}

/// The bytes of the members that a padded record has besides those of `record`.
pub(super) fn replacements(padded: &Record, record: &Record) -> usize {
    let members = padded.members.iter();
    let new = members.filter(|(id, _)| !record.members.contains_key(*id));
    new.map(|(id, of)| member(id, of)).sum()
}

/// What the object takes besides its members, where that is more than every cluster has; for people.
pub(super) fn other_fields(record: &Record) -> String {
    match record.spec.other_bytes() {
        0 => String::new(),
        other => format!(" and {other} bytes of spec, annotations and endpoints"),
    }
}

/// The most bytes for the members of a cluster whose object takes so many besides.
fn limit(other: u32) -> usize {
    let other = usize::try_from(other).unwrap_or(usize::MAX);
    MAX_OBJECT_BYTES.saturating_sub(other).min(MAX_MEMBERS_BYTES)
}

/// The most bytes that a member takes, until it is released.
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
    MEMBER_FIELDS_BYTES
        + MACHINE_NAME_BYTES
        + 2 * name(&id.name)
        + id.uid.as_str().len()
        + member.role.as_str().len()
        + domain
        + replaces
}
