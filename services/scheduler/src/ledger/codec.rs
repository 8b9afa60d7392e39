//! Records to bytes and back.

use std::collections::{BTreeMap, BTreeSet};

use placement::{ClusterName, HostId, LabelValue, MemberState, RoleName};
use prost::Message as _;
use proto::{inventory::v1 as inventory, ledger::v1 as disk, placement::v1 as api};

use super::{Error, RecordKey};
use crate::{
    convert,
    record::{Member, Record, ReleaseReason},
    spec::Spec,
};

/// A record's bytes.
pub(crate) fn encode(site: &str, record: &Record) -> Vec<u8> {
    let confirmed = record
        .members
        .iter()
        .filter(|(_, member)| member.confirmed)
        .map(|(id, _)| convert::host_ref(id))
        .collect();
    disk::Record {
        placement: Some(convert::placement(site, 0, record)),
        spec: Some(record.spec.wire().clone()),
        created: record.created.map(Into::into),
        confirmed,
    }
    .encode_to_vec()
}

/// What [`encode`] made, under the key that it was stored at.
///
/// # Errors
/// [`Error::Corrupt`] names what does not parse.
pub(crate) fn decode(
    (site, namespace, name): (&str, &str, &str),
    bytes: &[u8],
) -> Result<(RecordKey, Record), Error> {
    let corrupt = |rule: String| Error::Corrupt {
        what: format!("record {site}/{namespace}/{name}"),
        rule,
    };
    let disk::Record {
        placement,
        spec,
        created,
        confirmed,
    } = disk::Record::decode(bytes).map_err(|error| corrupt(error.to_string()))?;
    let placement = placement.ok_or_else(|| corrupt("has no placement".to_owned()))?;
    let cluster = ClusterName::new(namespace, name).map_err(|error| corrupt(error.to_string()))?;
    let spec = Spec::parse(spec.unwrap_or_default(), "spec")
        .map_err(|violations| corrupt(crate::error::sentence(&violations)))?;
    let confirmed: BTreeSet<HostId> = confirmed
        .iter()
        .filter_map(|id| convert::host_id(id).ok())
        .collect();
    let mut record = Record::new(
        cluster.clone(),
        placement.cluster.map(|cluster| cluster.uid).unwrap_or_default(),
        convert::time(created),
        placement.generation,
        spec,
    );
    record.members = placement
        .members
        .into_iter()
        .map(|member| self::member(member, &confirmed).map_err(&corrupt))
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    record.refusal = placement.refusal;
    record.reports = placement.reports;
    record.releasing = placement.releasing;
    record.revision = placement.revision.unwrap_or_default().revision;
    Ok((
        RecordKey {
            site: site.to_owned(),
            cluster,
        },
        record,
    ))
}

fn member(wire: api::Member, confirmed: &BTreeSet<HostId>) -> Result<(HostId, Member), String> {
    let state = state(wire.state())?;
    let id = convert::host_id(&wire.host.unwrap_or_default()).map_err(|error| error.to_string())?;
    let member = Member {
        role: RoleName::new(wire.role).map_err(|error| error.to_string())?,
        domain: match &*wire.domain {
            "" => None,
            domain => Some(LabelValue::new(domain).map_err(|error| error.to_string())?),
        },
        state,
        revision: wire.revision,
        addresses: convert::addresses(&wire.addresses),
        bmc_address: wire.bmc_address,
        failed_since: convert::time(wire.failed_since),
        replaces: wire
            .replaces
            .map(|id| convert::host_id(&id))
            .transpose()
            .map_err(|error| error.to_string())?,
        release_reason: ReleaseReason::parse(&wire.release_reason),
        confirmed: confirmed.contains(&id),
    };
    Ok((id, member))
}

fn state(wire: inventory::MemberState) -> Result<MemberState, String> {
    match wire {
        inventory::MemberState::Claimed => Ok(MemberState::Claimed),
        inventory::MemberState::Bound => Ok(MemberState::Bound),
        inventory::MemberState::Releasing => Ok(MemberState::Releasing),
        inventory::MemberState::Unspecified => Err("a member has no state".to_owned()),
    }
}
