//! A `BareMetalHost` that has been checked: what inventory reports of it. Never a credential.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use vocabulary::{NetworkId, OperationalStatus, ProvisioningState};

use crate::annotations;
use crate::bare_metal_host::{BareMetalHost, BareMetalHostSpec, Bmc, ConsumerReference, HostCondition};
use crate::fault::{Fault, Invalid};
use crate::network_data::NetworkData;

/// URL of a BMC, without user name and password.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct BmcAddress(String);

impl BmcAddress {
    /// The address as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BmcAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A checked host.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own that metal3 or an operator states; they combine freely"
)]
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    namespace: String,
    name: String,
    uid: String,
    labels: BTreeMap<String, String>,
    provisioning_state: ProvisioningState,
    operational_status: OperationalStatus,
    error_message: String,
    consumer: Option<ConsumerReference>,
    addresses: BTreeMap<NetworkId, IpAddr>,
    bmc_address: Option<BmcAddress>,
    placement_revision: Option<u64>,
    powered_on: bool,
    inspected: bool,
    fault: Option<String>,
    paused: bool,
    detached: bool,
    deleting: bool,
    unhealthy: bool,
    failed: bool,
    cordoned: bool,
    replace_requested: bool,
    reports: Vec<Invalid>,
}

impl Host {
    /// Checks a host as it came from the API server, with its networkData if it names any.
    ///
    /// What is wrong with one field is a report of the host ([`Host::reports`]); the rest of the host is used.
    ///
    /// # Errors
    /// Only for an object without namespace, name or uid, which no API server serves.
    pub fn parse(object: &BareMetalHost, network_data: Option<&NetworkData>) -> Result<Self, Invalid> {
        let metadata = &object.metadata;
        let [namespace, name, uid] = identity(object)?;
        let mut faults = Vec::new();
        let annotated = |key: &str| {
            metadata
                .annotations
                .as_ref()
                .is_some_and(|annotations| annotations.contains_key(key))
        };
        let BareMetalHostSpec {
            online: _,
            bmc,
            network_data: _,
            preprovisioning_network_data_name: _,
            consumer_ref,
        } = &object.spec;
        let status = object.status.clone().unwrap_or_default();
        let operational_status =
            OperationalStatus::parse(status.operational_status.as_deref().unwrap_or_default());
        let state = status
            .provisioning
            .and_then(|provisioning| provisioning.state)
            .unwrap_or_default();
        let provisioning_state = ProvisioningState::parse(&state);
        if let ProvisioningState::Unknown(state) = &provisioning_state {
            faults.push(unknown(
                "status.provisioning.state",
                state,
                ProvisioningState::known(),
            ));
        }
        if let OperationalStatus::Unknown(status) = &operational_status {
            faults.push(unknown(
                "status.operationalStatus",
                status,
                OperationalStatus::known(),
            ));
        }
        let bmc_address = bmc_address(bmc.as_ref(), &mut faults);
        let placement_revision = placement_revision(object, &mut faults);
        let own =
            (!faults.is_empty()).then(|| Invalid::new(&format!("BareMetalHost {namespace}/{name}"), faults));
        Ok(Self {
            namespace,
            name,
            uid,
            labels: metadata.labels.clone().unwrap_or_default(),
            provisioning_state,
            error_message: status.error_message.unwrap_or_default(),
            consumer: consumer_ref.clone(),
            addresses: network_data
                .map(|data| data.addresses().clone())
                .unwrap_or_default(),
            bmc_address,
            placement_revision,
            powered_on: status.powered_on.unwrap_or_default(),
            inspected: status.hardware.is_some(),
            fault: bmc_fault(status.conditions.as_deref().unwrap_or_default()),
            paused: annotated(annotations::PAUSED),
            detached: annotated(annotations::DETACHED) || operational_status == OperationalStatus::Detached,
            deleting: metadata.deletion_timestamp.is_some(),
            unhealthy: annotated(annotations::UNHEALTHY) || annotated(annotations::UNHEALTHY_BEFORE),
            failed: annotated(annotations::FAILED),
            cordoned: annotated(annotations::CORDONED),
            replace_requested: annotated(annotations::REPLACE),
            operational_status,
            reports: own
                .into_iter()
                .chain(network_data.and_then(NetworkData::invalid).cloned())
                .collect(),
        })
    }

    /// Namespace of the BareMetalHost.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Name of the BareMetalHost.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its `metadata.uid`.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Every label, those of SIP included. An empty value is a value.
    #[must_use]
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// State of its provisioning by metal3.
    #[must_use]
    pub fn provisioning_state(&self) -> &ProvisioningState {
        &self.provisioning_state
    }

    /// Operational status that metal3 reports.
    #[must_use]
    pub fn operational_status(&self) -> &OperationalStatus {
        &self.operational_status
    }

    /// Message of the last error that metal3 reports; empty without one.
    #[must_use]
    pub fn error_message(&self) -> &str {
        &self.error_message
    }

    /// Whether metal3 reports an error.
    #[must_use]
    pub fn is_in_error(&self) -> bool {
        self.operational_status == OperationalStatus::Error
    }

    /// What uses it.
    #[must_use]
    pub fn consumer(&self) -> Option<&ConsumerReference> {
        self.consumer.as_ref()
    }

    /// Its addresses, by network.
    #[must_use]
    pub fn addresses(&self) -> &BTreeMap<NetworkId, IpAddr> {
        &self.addresses
    }

    /// Where its BMC is.
    #[must_use]
    pub fn bmc_address(&self) -> Option<&BmcAddress> {
        self.bmc_address.as_ref()
    }

    /// Revision of the release that last removed its SIP labels ([`annotations::PLACEMENT_REVISION`]).
    #[must_use]
    pub fn placement_revision(&self) -> Option<u64> {
        self.placement_revision
    }

    /// Whether it is powered on.
    #[must_use]
    pub fn is_powered_on(&self) -> bool {
        self.powered_on
    }

    /// Whether its hardware has been inspected.
    #[must_use]
    pub fn is_inspected(&self) -> bool {
        self.inspected
    }

    /// The fault that its BMC reports, for messages, if it does.
    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Whether the annotation that pauses metal3 is present.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether metal3 reports the host as detached, or an annotation asks metal3 to detach it.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        self.detached
    }

    /// Whether it is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// Whether Cluster API's metal3 provider found the machine on it unhealthy.
    #[must_use]
    pub fn is_unhealthy(&self) -> bool {
        self.unhealthy
    }

    /// Whether an operator declares it failed.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.failed
    }

    /// Whether no new claim may take it.
    #[must_use]
    pub fn is_cordoned(&self) -> bool {
        self.cordoned
    }

    /// Whether a member on it is to be moved off.
    #[must_use]
    pub fn is_to_be_replaced(&self) -> bool {
        self.replace_requested
    }

    /// Faults of the object, then of its networkData. The rest of the host was read.
    #[must_use]
    pub fn reports(&self) -> &[Invalid] {
        &self.reports
    }
}

fn identity(object: &BareMetalHost) -> Result<[String; 3], Invalid> {
    let metadata = &object.metadata;
    let fields = [
        ("metadata.namespace", &metadata.namespace),
        ("metadata.name", &metadata.name),
        ("metadata.uid", &metadata.uid),
    ];
    let faults: Vec<_> = fields
        .iter()
        .filter(|(_, value)| value.as_ref().is_none_or(String::is_empty))
        .map(|(path, _)| Fault::absent(path, "must be set"))
        .collect();
    let [namespace, name, uid] = fields.map(|(_, value)| value.clone().unwrap_or_default());
    if faults.is_empty() {
        Ok([namespace, name, uid])
    } else {
        Err(Invalid::new(&format!("BareMetalHost {namespace}/{name}"), faults))
    }
}

/// A fault for a value that this version does not know: a later metal3 may have more values.
fn unknown(path: &str, text: &str, known: impl Iterator<Item = &'static str>) -> Fault {
    let known: Vec<_> = known.collect();
    let rule = format!("must be one of {}", known.join(", "));
    Fault::text(path, text, rule)
}

/// An address that cannot be read is not repeated either: it could contain a password.
fn bmc_address(bmc: Option<&Bmc>, faults: &mut Vec<Fault>) -> Option<BmcAddress> {
    const PATH: &str = "spec.bmc.address";
    let Bmc {
        address,
        credentials_name: _,
        disable_certificate_verification: _,
    } = bmc?;
    let address = address.as_deref().filter(|text| !text.is_empty())?;
    let rule = match address.parse::<http::Uri>() {
        Err(_) => "must be a URL or a host with an optional port",
        Ok(uri)
            if uri
                .authority()
                .is_none_or(|authority| authority.as_str().contains('@')) =>
        {
            "must name a host, without user name and password: those belong in the credentials Secret"
        }
        Ok(_) => return Some(BmcAddress(address.to_owned())),
    };
    faults.push(Fault::new(PATH, "a redacted value", rule));
    None
}

/// The condition in which metal3 states the health that a BMC reports; `Unknown` is no fault.
const HEALTHY: &str = "Healthy";

fn bmc_fault(conditions: &[HostCondition]) -> Option<String> {
    let unhealthy = |condition: &&HostCondition| {
        condition.kind.as_deref() == Some(HEALTHY) && condition.status.as_deref() == Some("False")
    };
    let HostCondition {
        kind: _,
        status: _,
        reason,
        message,
    } = conditions.iter().find(unhealthy)?;
    let parts = [reason, message].into_iter().flatten();
    let parts: Vec<&str> = parts
        .map(String::as_str)
        .filter(|text| !text.is_empty())
        .collect();
    Some(parts.join(": "))
}

fn placement_revision(object: &BareMetalHost, faults: &mut Vec<Fault>) -> Option<u64> {
    let text = object
        .metadata
        .annotations
        .as_ref()?
        .get(annotations::PLACEMENT_REVISION)?;
    let path = format!("metadata.annotations[{}]", annotations::PLACEMENT_REVISION);
    let rule = "must be a revision, a whole number";
    text.parse()
        .map_err(|_| faults.push(Fault::text(&path, text, rule)))
        .ok()
}

#[cfg(test)]
mod tests;
