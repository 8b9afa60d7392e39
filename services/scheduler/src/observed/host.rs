//! A `BareMetalHost` as its site reports it.

use std::{collections::BTreeMap, net::IpAddr, time::SystemTime};

use placement::{
    ClusterName, Consumer, HostId, HostName, LabelKey, LabelValue, NetworkId, OperationalStatus, RoleName,
    SipLabels,
    size::{entry, small_map, text},
};

/// Bytes of a host by its name, and of its name among those that a snapshot has named.
const HOST_BYTES: usize = entry(size_of::<(HostName, Host)>()) + entry(size_of::<HostName>());
/// Bytes of a host in the index by the cluster that hosts name.
const CLUSTER_ENTRY_BYTES: usize = entry(size_of::<(ClusterName, Option<HostId>)>());
/// Bytes of a host in the index by the addresses of its machine.
const MACHINE_ENTRY_BYTES: usize = entry(size_of::<(IpAddr, Option<HostName>)>());
/// Bytes of a host in the index of hosts whose mark is forged.
const FAULT_BYTES: usize = entry(size_of::<(HostName, u64)>()) + 2 * ALLOCATION_BYTES;
/// Bytes that the allocator adds to a text.
const ALLOCATION_BYTES: usize = 16;

/// About how many bytes the labels of a host take, beside what the model of its site takes of them.
pub(crate) fn label_bytes(labels: &BTreeMap<LabelKey, LabelValue>) -> usize {
    let texts = labels
        .iter()
        .map(|(key, value)| text(key.as_str().len()) + text(value.as_str().len()));
    small_map(labels.len(), size_of::<(LabelKey, LabelValue)>()) + texts.sum::<usize>()
}

/// A host as it was reported: what decisions read of it, and what only members and people need.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    facts: placement::Host,
    details: Details,
}

/// What decisions do not read of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// The cluster that its labels name, completely or not.
    pub named: Option<ClusterName>,
    /// Addresses by network.
    pub addresses: BTreeMap<NetworkId, IpAddr>,
    /// Address of its BMC; empty when there is none.
    pub bmc_address: String,
    /// The release mark that it shows; 0 for none.
    pub release_mark: u64,
    /// metal3's error message.
    pub error_message: String,
    /// Since when it is in error.
    pub error_since: Option<SystemTime>,
    /// API version of its consumer.
    pub consumer_api_version: String,
    /// What the agent could not read of it.
    pub problems: Vec<String>,
}

/// A host's labels, as one cluster sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels<'a> {
    /// None of the three is there.
    None,
    /// Some are there, or a value is not valid.
    Partial,
    /// All three, and they name the cluster.
    Ours(&'a RoleName),
    /// All three, and they name another cluster.
    Others(&'a ClusterName),
}

impl Host {
    pub(crate) fn new(facts: placement::Host, details: Details) -> Self {
        Self { facts, details }
    }

    /// Namespace, name and uid.
    #[must_use]
    pub fn id(&self) -> &HostId {
        &self.facts.id
    }

    /// What decisions read of it.
    #[must_use]
    pub fn facts(&self) -> &placement::Host {
        &self.facts
    }

    /// What decisions do not read of it.
    #[must_use]
    pub fn details(&self) -> &Details {
        &self.details
    }

    /// About how many bytes it takes here, beside what the model of its site takes of it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let placement::Host {
            id,
            labels,
            networks,
            problem,
            consumer,
            sip_labels: _,
            provisioning: _,
            operational: _,
            paused: _,
            detached: _,
            deleting: _,
            powered_on: _,
            unhealthy: _,
            inspected: _,
            cordoned: _,
            marked_failed: _,
            replace_requested: _,
            write_refused: _,
        } = &self.facts;
        let Details {
            named,
            addresses,
            bmc_address,
            release_mark: _,
            error_message,
            error_since: _,
            consumer_api_version,
            problems,
        } = &self.details;
        let name = text(id.name.namespace().as_str().len()) + text(id.name.name().len());
        let consumer = consumer.iter().flat_map(
            |Consumer {
                 kind,
                 namespace,
                 name,
             }| [kind, namespace, name],
        );
        let consumer = consumer.map(|part| text(part.len())).sum::<usize>();
        let named = named.iter().map(|cluster| {
            // In two places of the host, and where hosts are listed by it.
            CLUSTER_ENTRY_BYTES + 2 * (text(cluster.namespace().as_str().len()) + text(cluster.name().len()))
        });
        let networks_and_addresses = small_map(networks.len(), size_of::<NetworkId>())
            + small_map(addresses.len(), size_of::<(NetworkId, IpAddr)>())
            + addresses.len() * MACHINE_ENTRY_BYTES;
        let networks = addresses.keys().map(|network| text(network.as_str().len()));
        // Whose machine it is is compared by the address of its BMC.
        let bmc = if bmc_address.is_empty() {
            0
        } else {
            MACHINE_ENTRY_BYTES + 2 * (ALLOCATION_BYTES + bmc_address.len())
        };
        let problems = problems
            .iter()
            .map(|problem| size_of::<String>() + ALLOCATION_BYTES + problem.len());
        let texts = [error_message, consumer_api_version].map(|text| ALLOCATION_BYTES + text.len());
        let problem = problem.as_ref().map_or(0, |problem| FAULT_BYTES + problem.len());
        HOST_BYTES
            + name
            + text(id.uid.as_str().len())
            + consumer
            + bmc
            + problem
            + label_bytes(labels)
            + named.sum::<usize>()
            + networks_and_addresses
            + networks.sum::<usize>()
            + problems.sum::<usize>()
            + texts.into_iter().sum::<usize>()
    }

    /// The release mark that it shows; 0 for none.
    #[must_use]
    pub fn release_mark(&self) -> u64 {
        self.details.release_mark
    }

    /// What its labels state to a cluster.
    #[must_use]
    pub fn labels_for(&self, cluster: &ClusterName) -> Labels<'_> {
        match &self.facts.sip_labels {
            SipLabels::None => Labels::None,
            SipLabels::Partial => Labels::Partial,
            SipLabels::Complete { cluster: named, role } if named == cluster => Labels::Ours(role),
            SipLabels::Complete {
                cluster: named,
                role: _,
            } => Labels::Others(named),
        }
    }

    /// Whether metal3 was told to leave it alone.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.facts.paused || self.facts.detached || self.facts.operational == OperationalStatus::Detached
    }

    /// Whether metal3 states that it is in error.
    #[must_use]
    pub fn is_in_error(&self) -> bool {
        self.facts.operational == OperationalStatus::Error
    }

    /// Sets why it is not eligible whatever else it shows.
    pub(crate) fn set_problem(&mut self, problem: Option<String>) {
        self.facts.problem = problem;
    }
}
