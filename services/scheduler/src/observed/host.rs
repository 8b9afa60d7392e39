//! A `BareMetalHost` as its site reports it.

use std::{collections::BTreeMap, net::IpAddr, time::SystemTime};

use placement::{ClusterName, HostId, NetworkId, OperationalStatus, RoleName, SipLabels};

/// Bytes of an item of a list beside its text.
const ITEM: usize = 64;

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

    /// About how many bytes it takes here.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let placement::Host {
            id,
            labels,
            networks: _,
            problem: _,
            consumer: _,
            sip_labels: _,
            provisioning: _,
            operational: _,
            paused: _,
            detached: _,
            deleting: _,
            powered_on: _,
            inspected: _,
            cordoned: _,
            marked_failed: _,
            replace_requested: _,
            write_refused: _,
        } = &self.facts;
        let Details {
            named: _,
            addresses,
            bmc_address,
            release_mark: _,
            error_message,
            error_since: _,
            consumer_api_version,
            problems,
        } = &self.details;
        let name = id.name.namespace().as_str().len() + id.name.name().len() + id.uid.as_str().len();
        let labels = labels
            .iter()
            .map(|(key, value)| ITEM + key.as_str().len() + value.as_str().len());
        let addresses = addresses.keys().map(|network| ITEM + network.as_str().len());
        let problems = problems.iter().map(|problem| ITEM + problem.len());
        let texts = bmc_address.len() + error_message.len() + consumer_api_version.len();
        size_of::<Self>() + name + texts + labels.chain(addresses).chain(problems).sum::<usize>()
    }

    /// The release mark that it shows; 0 for none.
    #[must_use]
    pub fn release_mark(&self) -> u64 {
        self.details.release_mark
    }

    /// What its labels say to a cluster.
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

    /// Whether metal3 says that it is in error.
    #[must_use]
    pub fn is_in_error(&self) -> bool {
        self.facts.operational == OperationalStatus::Error
    }

    /// Sets why it is not eligible whatever else it shows.
    pub(crate) fn set_problem(&mut self, problem: Option<String>) {
        self.facts.problem = problem;
    }
}
