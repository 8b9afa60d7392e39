//! Protobuf into the decision's types and back, each in one place.

use std::{collections::BTreeMap, net::IpAddr, time::SystemTime};

use placement::{
    ClusterName, Consumer, Host, HostId, HostName, LabelKey, LabelValue, MemberState, NetworkId,
    OperationalStatus, ProvisioningState, Replaces, SipLabels, Uid,
};
use proto::{inventory::v1 as inventory, placement::v1 as api};

use crate::{
    error::{Error, Violation},
    ledger::SitePosition,
    record::{Member, Record},
};

/// Most reports in an answer.
const REPORTS: usize = 64;

/// Parses a cluster's name and, where it is wanted, its uid.
///
/// # Errors
/// [`Error::Invalid`] with paths below `path`.
pub fn cluster(wire: Option<&inventory::ClusterRef>, path: &str) -> Result<ClusterName, Error> {
    let invalid =
        |field: &str, rule: &dyn std::fmt::Display| Error::Invalid(vec![Violation::new(field, rule)]);
    let wire = wire.ok_or_else(|| invalid(path, &"is missing"))?;
    ClusterName::new(&wire.namespace, &wire.name).map_err(|error| invalid(path, &error))
}

/// The uid of a cluster in a request that needs one.
///
/// # Errors
/// [`Error::Invalid`] when it is missing, or cannot be a uid.
pub fn uid(wire: Option<&inventory::ClusterRef>) -> Result<String, Error> {
    match wire {
        Some(wire) if !wire.uid.is_empty() => match Uid::new(&wire.uid) {
            Ok(uid) => Ok(uid.as_str().to_owned()),
            Err(error) => Err(Error::Invalid(vec![Violation::new("cluster.uid", error)])),
        },
        _ => Err(Error::Invalid(vec![Violation::new("cluster.uid", "is missing")])),
    }
}

/// Parses a host's identity.
///
/// # Errors
/// The rule that it breaks.
pub fn host_id(wire: &inventory::HostRef) -> Result<HostId, placement::NameError> {
    Ok(HostId {
        name: HostName::new(&wire.namespace, &wire.name)?,
        uid: Uid::new(&wire.uid)?,
    })
}

/// A host's identity as callers see it.
#[must_use]
pub fn host_ref(id: &HostId) -> inventory::HostRef {
    inventory::HostRef {
        namespace: id.name.namespace().as_str().to_owned(),
        name: id.name.name().to_owned(),
        uid: id.uid.as_str().to_owned(),
    }
}

/// The host's labels, those that are valid; the API server admits no others.
fn labels(wire: &BTreeMap<String, String>) -> BTreeMap<LabelKey, LabelValue> {
    wire.iter()
        .filter_map(|(key, value)| Some((LabelKey::new(key).ok()?, LabelValue::new(value).ok()?)))
        .collect()
}

/// What SIP's three labels state.
#[must_use]
pub fn sip_labels(wire: &BTreeMap<String, String>) -> SipLabels {
    SipLabels::read(|key| wire.get(key).map(String::as_str))
}

/// The addresses that parse, by network.
#[must_use]
pub fn addresses(wire: &BTreeMap<String, String>) -> BTreeMap<NetworkId, IpAddr> {
    wire.iter()
        .filter_map(|(id, address)| Some((NetworkId::new(id).ok()?, address.parse().ok()?)))
        .collect()
}

/// What the decision reads of a reported host.
///
/// # Errors
/// When its identity is not valid.
pub fn host(wire: &inventory::Host) -> Result<Host, placement::NameError> {
    let id = host_id(wire.r#ref.as_ref().unwrap_or(&inventory::HostRef::default()))?;
    Ok(Host {
        labels: labels(&wire.labels),
        provisioning: provisioning(wire.provisioning_state()),
        operational: operational(wire.operational_status()),
        paused: wire.paused,
        detached: wire.detached,
        deleting: wire.deleting,
        powered_on: wire.powered_on,
        inspected: wire.inspected,
        cordoned: wire.cordoned,
        marked_failed: wire.marked_failed,
        replace_requested: wire.replace_requested,
        consumer: wire.consumer.as_ref().map(|consumer| Consumer {
            kind: consumer.kind.as_str().into(),
            namespace: consumer.namespace.as_str().into(),
            name: consumer.name.as_str().into(),
        }),
        networks: addresses(&wire.addresses).into_keys().collect(),
        // What could not be read is absent already, and so is a reason of its own.
        problem: None,
        sip_labels: sip_labels(&wire.labels),
        id,
    })
}

fn provisioning(wire: inventory::ProvisioningState) -> ProvisioningState {
    use inventory::ProvisioningState as Wire;
    match wire {
        Wire::Unspecified => ProvisioningState::None,
        Wire::Unmanaged => ProvisioningState::Unmanaged,
        Wire::Registering => ProvisioningState::Registering,
        Wire::MatchProfile => ProvisioningState::MatchProfile,
        Wire::Preparing => ProvisioningState::Preparing,
        Wire::Ready => ProvisioningState::Ready,
        Wire::Available => ProvisioningState::Available,
        Wire::Provisioning => ProvisioningState::Provisioning,
        Wire::Provisioned => ProvisioningState::Provisioned,
        Wire::ExternallyProvisioned => ProvisioningState::ExternallyProvisioned,
        Wire::Deprovisioning => ProvisioningState::Deprovisioning,
        Wire::Inspecting => ProvisioningState::Inspecting,
        Wire::PoweringOffBeforeDelete => ProvisioningState::PoweringOffBeforeDelete,
        Wire::Deleting => ProvisioningState::Deleting,
    }
}

fn operational(wire: inventory::OperationalStatus) -> OperationalStatus {
    use inventory::OperationalStatus as Wire;
    match wire {
        Wire::Unspecified => OperationalStatus::None,
        Wire::Ok => OperationalStatus::Ok,
        Wire::Discovered => OperationalStatus::Discovered,
        Wire::Error => OperationalStatus::Error,
        Wire::Delayed => OperationalStatus::Delayed,
        Wire::Detached => OperationalStatus::Detached,
        Wire::Servicing => OperationalStatus::Servicing,
    }
}

/// A claim's state as callers see it.
#[must_use]
pub fn state(state: MemberState) -> inventory::MemberState {
    match state {
        MemberState::Claimed => inventory::MemberState::Claimed,
        MemberState::Bound => inventory::MemberState::Bound,
        MemberState::Releasing => inventory::MemberState::Releasing,
    }
}

/// A record as callers see it.
#[must_use]
pub fn placement(site: &str, epoch: u64, record: &Record) -> api::Placement {
    api::Placement {
        site: site.to_owned(),
        cluster: Some(record.reference()),
        generation: record.generation,
        revision: Some(SitePosition::new(epoch, record.revision).into()),
        members: record
            .members
            .iter()
            .map(|(id, member)| self::member(id, member))
            .collect(),
        refusal: record.refusal.clone(),
        reports: record
            .conflicts
            .iter()
            .chain(&record.reports)
            .take(REPORTS)
            .cloned()
            .collect(),
        releasing: record.releasing,
    }
}

fn member(id: &HostId, member: &Member) -> api::Member {
    let Member {
        role,
        domain,
        state,
        revision,
        addresses,
        bmc_address,
        failed_since,
        unwell_since,
        suspended,
        replaces,
        release_reason,
        confirmed: _,
    } = member;
    api::Member {
        host: Some(host_ref(id)),
        role: role.as_str().to_owned(),
        domain: domain
            .as_ref()
            .map(|domain| domain.value.to_string())
            .unwrap_or_default(),
        domain_key: domain
            .as_ref()
            .map(|domain| domain.key.to_string())
            .unwrap_or_default(),
        state: self::state(*state).into(),
        revision: *revision,
        addresses: addresses
            .iter()
            .map(|(id, address)| (id.as_str().to_owned(), address.to_string()))
            .collect(),
        bmc_address: bmc_address.clone(),
        failed_since: failed_since.map(Into::into),
        unwell_since: unwell_since.map(Into::into),
        suspended: *suspended,
        replaces: replaces.as_ref().map(|old| host_ref(old.host())),
        replaces_alone: match replaces {
            Some(Replaces::Alone(_)) => true,
            Some(Replaces::Beside(_)) | None => false,
        },
        release_reason: release_reason
            .map(|reason| reason.as_str().to_owned())
            .unwrap_or_default(),
    }
}

/// The time in a request or a stored record; `None` when absent or not representable.
#[must_use]
pub fn time(wire: Option<prost_types::Timestamp>) -> Option<SystemTime> {
    wire.and_then(|time| SystemTime::try_from(time).ok())
}
