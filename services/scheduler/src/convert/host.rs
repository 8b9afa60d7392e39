//! Hosts as sites report them, and as callers see them.

use std::{collections::BTreeMap, net::IpAddr};

use placement::{
    ClusterName, Consumer, LabelKey, LabelValue, NetworkId, OperationalStatus, ProvisioningState, SipLabels,
};
use proto::inventory::v1 as inventory;
use vocabulary::labels::{CLUSTER_NAME, CLUSTER_NAMESPACE};

use super::names::{host_id, host_ref, time};
use crate::{
    observed::{Details, Host},
    violation::clip,
};

/// Maximum length of the address of a BMC, in bytes; metal3 sets no limit.
const MAX_BMC_ADDRESS_BYTES: usize = 1024;
/// Maximum length of a part of a consumer's reference, in bytes: that of a Kubernetes name.
const MAX_CONSUMER_BYTES: usize = 253;
/// Maximum number of labels of a host.
const MAX_LABELS: usize = 512;
/// Prefix of SIP's own labels.
const SIP_LABEL_PREFIX: &str = "sip.airshipit.org/";
/// Maximum number of networks in which a host has an address.
const MAX_NETWORKS: usize = 128;

/// Parses a reported host. What of it may become part of a record is bounded here: a host with a text of megabytes is a fault of
/// that host, and no cluster that could take it may find its own record too large for the ledger. What is wrong with it is added to
/// `faults`.
///
/// # Errors
/// When its identity is not valid.
pub fn observed_host(
    mut wire: inventory::Host,
    faults: &mut Vec<String>,
) -> Result<Host, placement::NameError> {
    faults.extend(clip_host(&mut wire));
    let id = host_id(wire.r#ref.as_ref().unwrap_or(&inventory::HostRef::default()))?;
    let provisioning = provisioning(wire.provisioning_state());
    let operational = operational(wire.operational_status());
    let addresses = addresses(&wire.addresses);
    let inventory::Host {
        r#ref: _,
        labels,
        provisioning_state: _,
        operational_status: _,
        error_message,
        error_since,
        paused,
        detached,
        deleting,
        powered_on,
        unhealthy,
        inspected,
        cordoned,
        marked_failed,
        consumer,
        addresses: _,
        bmc_address,
        release_mark,
        problems,
        replace_requested,
        write_refused,
    } = wire;
    let (consumer, consumer_api_version) = match consumer {
        Some(inventory::Consumer {
            api_version,
            kind,
            namespace,
            name,
        }) => {
            let consumer = Consumer {
                kind: kind.into(),
                namespace: namespace.into(),
                name: name.into(),
            };
            (Some(consumer), api_version)
        }
        None => (None, String::new()),
    };
    let facts = placement::Host {
        labels: parse_labels(&labels),
        provisioning,
        operational,
        paused,
        detached,
        deleting,
        powered_on,
        unhealthy,
        inspected,
        cordoned,
        marked_failed,
        replace_requested,
        write_refused,
        consumer,
        networks: addresses.keys().cloned().collect(),
        // An address that could not be read is missing already, and so is a reason of its own.
        problem: None,
        sip_labels: sip_labels(&labels),
        id,
    };
    let details = Details {
        named: named(&labels),
        addresses,
        bmc_address,
        release_mark,
        error_message,
        error_since: time(error_since),
        consumer_api_version,
        problems,
    };
    Ok(Host::new(facts, details))
}

/// A host as callers see it.
#[must_use]
pub fn host(host: &Host) -> inventory::Host {
    let placement::Host {
        id,
        labels,
        provisioning,
        operational,
        paused,
        detached,
        deleting,
        powered_on,
        unhealthy,
        inspected,
        cordoned,
        marked_failed,
        replace_requested,
        write_refused,
        consumer,
        networks: _,
        problem: _,
        sip_labels: _,
    } = host.facts();
    let Details {
        named: _,
        addresses,
        bmc_address,
        release_mark,
        error_message,
        error_since,
        consumer_api_version,
        problems,
    } = host.details();
    let labels = labels.iter();
    inventory::Host {
        r#ref: Some(host_ref(id)),
        labels: labels
            .map(|(key, value)| (key.as_str().to_owned(), value.as_str().to_owned()))
            .collect(),
        provisioning_state: provisioning_state(provisioning).into(),
        operational_status: operational_status(operational).into(),
        error_message: error_message.clone(),
        error_since: error_since.map(Into::into),
        paused: *paused,
        detached: *detached,
        deleting: *deleting,
        powered_on: *powered_on,
        unhealthy: *unhealthy,
        inspected: *inspected,
        cordoned: *cordoned,
        marked_failed: *marked_failed,
        consumer: consumer.as_ref().map(|consumer| inventory::Consumer {
            api_version: consumer_api_version.clone(),
            kind: consumer.kind.to_string(),
            namespace: consumer.namespace.to_string(),
            name: consumer.name.to_string(),
        }),
        addresses: addresses_by_network(addresses),
        bmc_address: bmc_address.clone(),
        release_mark: *release_mark,
        problems: problems.clone(),
        replace_requested: *replace_requested,
        write_refused: *write_refused,
    }
}

/// Takes out of a report of a host what is longer than it may be, and says what.
fn clip_host(host: &mut inventory::Host) -> Option<String> {
    let mut clipped = Vec::new();
    if host.bmc_address.len() > MAX_BMC_ADDRESS_BYTES {
        clipped.push("the BMC address is longer than 1,024 bytes, and is left out");
        host.bmc_address.clear();
    }
    if let Some(consumer) = &mut host.consumer {
        for part in [&mut consumer.kind, &mut consumer.namespace, &mut consumer.name] {
            if part.len() > MAX_CONSUMER_BYTES {
                clipped.push("the consumer's reference is longer than 253 bytes, and is cut off");
                *part = clip(part, MAX_CONSUMER_BYTES).to_owned();
            }
        }
    }
    if host.addresses.len() > MAX_NETWORKS {
        clipped.push("it has addresses in more than 128 networks, and only the first are used");
        host.addresses = std::mem::take(&mut host.addresses)
            .into_iter()
            .take(MAX_NETWORKS)
            .collect();
    }
    if host.labels.len() > MAX_LABELS {
        clipped.push("it has more than 512 labels: SIP's are used, then the others by key, 512 in all");
        let (sip, others): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut host.labels)
            .into_iter()
            .partition(|(key, _)| key.starts_with(SIP_LABEL_PREFIX));
        host.labels = sip.into_iter().chain(others).take(MAX_LABELS).collect();
    }
    let name = host.r#ref.as_ref().map_or("", |host| &host.name);
    (!clipped.is_empty()).then(|| {
        format!(
            "reported host {:?} breaks limits: {}",
            clip(name, MAX_CONSUMER_BYTES),
            clipped.join("; ")
        )
    })
}

/// The host's labels, those that are valid; the API server admits no others.
fn parse_labels(wire: &BTreeMap<String, String>) -> BTreeMap<LabelKey, LabelValue> {
    wire.iter()
        .filter_map(|(key, value)| Some((LabelKey::new(key).ok()?, LabelValue::new(value).ok()?)))
        .collect()
}

/// The cluster that a host's labels name, be they complete or not.
fn named(labels: &BTreeMap<String, String>) -> Option<ClusterName> {
    let (namespace, name) = labels.get(CLUSTER_NAMESPACE).zip(labels.get(CLUSTER_NAME))?;
    ClusterName::new(namespace, name).ok()
}

/// What SIP's three labels state.
#[must_use]
pub fn sip_labels(wire: &BTreeMap<String, String>) -> SipLabels {
    SipLabels::read(|key| wire.get(key).map(String::as_str))
}

/// The addresses that parse, by network. An IPv4 address that is written as IPv6 is the same address: agents connect to one machine by both.
#[must_use]
pub fn addresses(wire: &BTreeMap<String, String>) -> BTreeMap<NetworkId, IpAddr> {
    wire.iter()
        .filter_map(|(id, address)| {
            let address = address.parse::<IpAddr>().ok()?.to_canonical();
            Some((NetworkId::new(id).ok()?, address))
        })
        .collect()
}

/// Addresses as callers see them.
pub(super) fn addresses_by_network(addresses: &BTreeMap<NetworkId, IpAddr>) -> BTreeMap<String, String> {
    let addresses = addresses.iter();
    addresses
        .map(|(id, address)| (id.as_str().to_owned(), address.to_string()))
        .collect()
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

fn provisioning_state(state: &ProvisioningState) -> inventory::ProvisioningState {
    use inventory::ProvisioningState as Wire;
    match state {
        // A site reports no others.
        ProvisioningState::None | ProvisioningState::NotReported | ProvisioningState::Unknown(_) => {
            Wire::Unspecified
        }
        ProvisioningState::Unmanaged => Wire::Unmanaged,
        ProvisioningState::Registering => Wire::Registering,
        ProvisioningState::MatchProfile => Wire::MatchProfile,
        ProvisioningState::Preparing => Wire::Preparing,
        ProvisioningState::Ready => Wire::Ready,
        ProvisioningState::Available => Wire::Available,
        ProvisioningState::Provisioning => Wire::Provisioning,
        ProvisioningState::Provisioned => Wire::Provisioned,
        ProvisioningState::ExternallyProvisioned => Wire::ExternallyProvisioned,
        ProvisioningState::Deprovisioning => Wire::Deprovisioning,
        ProvisioningState::Inspecting => Wire::Inspecting,
        ProvisioningState::PoweringOffBeforeDelete => Wire::PoweringOffBeforeDelete,
        ProvisioningState::Deleting => Wire::Deleting,
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

fn operational_status(status: &OperationalStatus) -> inventory::OperationalStatus {
    use inventory::OperationalStatus as Wire;
    match status {
        // A site reports no others.
        OperationalStatus::None | OperationalStatus::Unknown(_) => Wire::Unspecified,
        OperationalStatus::Ok => Wire::Ok,
        OperationalStatus::Discovered => Wire::Discovered,
        OperationalStatus::Error => Wire::Error,
        OperationalStatus::Delayed => Wire::Delayed,
        OperationalStatus::Detached => Wire::Detached,
        OperationalStatus::Servicing => Wire::Servicing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with something in every field.
    fn reported() -> inventory::Host {
        inventory::Host {
            r#ref: Some(inventory::HostRef {
                namespace: "metal".to_owned(),
                name: "h1".to_owned(),
                uid: "uid-1".to_owned(),
            }),
            labels: BTreeMap::from([("rack".to_owned(), "r1".to_owned())]),
            error_message: "no power".to_owned(),
            error_since: Some(prost_types::Timestamp { seconds: 7, nanos: 1 }),
            paused: true,
            detached: true,
            deleting: true,
            powered_on: true,
            unhealthy: true,
            inspected: true,
            cordoned: true,
            marked_failed: true,
            replace_requested: true,
            write_refused: true,
            consumer: Some(inventory::Consumer {
                api_version: "v1".to_owned(),
                kind: "Metal3Machine".to_owned(),
                namespace: "tenant".to_owned(),
                name: "m-0".to_owned(),
            }),
            addresses: BTreeMap::from([("oam".to_owned(), "2001:db8::1".to_owned())]),
            bmc_address: "redfish://192.0.2.1/1".to_owned(),
            release_mark: 9,
            problems: vec!["networkData: not YAML".to_owned()],
            ..inventory::Host::default()
        }
    }

    #[test]
    fn callers_see_hosts_as_they_were_reported() {
        for number in 0..14 {
            let reported = inventory::Host {
                provisioning_state: number,
                operational_status: number % 7,
                ..reported()
            };
            assert_eq!(
                host(&observed_host(reported.clone(), &mut Vec::new()).unwrap()),
                reported
            );
        }
    }

    #[test]
    fn long_texts_are_clipped() {
        let mut long = reported();
        long.bmc_address = "x".repeat(MAX_BMC_ADDRESS_BYTES + 1);
        long.consumer.as_mut().unwrap().name = "ä".repeat(MAX_CONSUMER_BYTES);
        long.addresses = (0..=MAX_NETWORKS)
            .map(|index| (format!("n{index}"), "192.0.2.1".to_owned()))
            .collect();
        let clipped = host(&observed_host(long, &mut Vec::new()).unwrap());
        assert_eq!(clipped.bmc_address, "");
        assert_eq!(clipped.consumer.unwrap().name.len(), MAX_CONSUMER_BYTES - 1);
        assert_eq!(clipped.addresses.len(), MAX_NETWORKS);
    }

    #[test]
    fn an_ipv4_address_is_one_however_it_is_written() {
        let wire = |address: &str| BTreeMap::from([("oam".to_owned(), address.to_owned())]);
        for same in ["192.0.2.1", "::ffff:192.0.2.1", "::ffff:c000:201"] {
            assert_eq!(addresses(&wire(same)), addresses(&wire("192.0.2.1")), "{same}");
        }
        assert_eq!(addresses(&wire("192.0.2.1")).len(), 1);
        assert_ne!(addresses(&wire("2001:db8::1")), addresses(&wire("192.0.2.1")));
    }
}
