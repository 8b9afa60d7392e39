//! What the decision reads of a `BareMetalHost`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use smol_str::SmolStr;
use vocabulary::{HostId, LabelKey, LabelValue, NetworkId, OperationalStatus, ProvisioningState, SipLabels};

/// What the decision reads of a `BareMetalHost` and its networkData. Never a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent facts about one host, as metal3 reports them"
)]
pub struct Host {
    /// Namespace, name and uid.
    pub id: HostId,
    /// `metadata.labels`.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// `status.provisioning.state`.
    pub provisioning: ProvisioningState,
    /// `status.operationalStatus`.
    pub operational: OperationalStatus,
    /// Annotation `baremetalhost.metal3.io/paused` is present.
    pub paused: bool,
    /// Annotation `baremetalhost.metal3.io/detached` is present.
    pub detached: bool,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `status.poweredOn`. A preference only.
    pub powered_on: bool,
    /// The condition `Healthy` is `False`: the BMC reports a fault. A preference only.
    pub unhealthy: bool,
    /// `status.hardware` is present. A preference only.
    pub inspected: bool,
    /// Annotation `sip.airshipit.org/cordoned` is present: no new claim, never a failure.
    pub cordoned: bool,
    /// Annotation `capm3.metal3.io/unhealthy` or `sip.airshipit.org/failed` is present: a member is replaced.
    pub marked_failed: bool,
    /// Annotation `sip.airshipit.org/replace` is present: a member is moved off, and no new claim.
    pub replace_requested: bool,
    /// The site's API server refuses every write of it: no new claim, and a claimed member is replaced.
    pub write_refused: bool,
    /// `spec.consumerRef`.
    pub consumer: Option<Consumer>,
    /// The networks for which the networkData has an address.
    pub networks: BTreeSet<NetworkId>,
    /// Why the host's data could not be read, if so; then it is not eligible, for this reason.
    pub problem: Option<String>,
    /// What SIP's three labels on the host state. Who holds it is told by [`crate::Site::hold`].
    pub sip_labels: SipLabels,
}

impl Host {
    /// A host that is available, without labels, addresses, consumer or any flag; powered on, healthy and inspected.
    #[must_use]
    pub fn available(id: HostId) -> Self {
        Self {
            id,
            labels: BTreeMap::new(),
            provisioning: ProvisioningState::Available,
            operational: OperationalStatus::Ok,
            paused: false,
            detached: false,
            deleting: false,
            powered_on: true,
            unhealthy: false,
            inspected: true,
            cordoned: false,
            marked_failed: false,
            replace_requested: false,
            write_refused: false,
            consumer: None,
            networks: BTreeSet::new(),
            problem: None,
            sip_labels: SipLabels::None,
        }
    }
}

/// `spec.consumerRef`: who provisions the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Consumer {
    /// E.g. `Metal3Machine`.
    pub kind: SmolStr,
    /// The consumer's namespace; may be empty.
    pub namespace: SmolStr,
    /// The consumer's name.
    pub name: SmolStr,
}

impl fmt::Display for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        if namespace.is_empty() {
            write!(f, "{kind} {name}")
        } else {
            write!(f, "{kind} {namespace}/{name}")
        }
    }
}

/// Whether a host in this state can be claimed.
pub(crate) fn is_claimable(state: &ProvisioningState) -> bool {
    match state {
        ProvisioningState::Ready | ProvisioningState::Available | ProvisioningState::NotReported => true,
        ProvisioningState::None
        | ProvisioningState::Unmanaged
        | ProvisioningState::Registering
        | ProvisioningState::MatchProfile
        | ProvisioningState::Preparing
        | ProvisioningState::Provisioning
        | ProvisioningState::Provisioned
        | ProvisioningState::ExternallyProvisioned
        | ProvisioningState::Deprovisioning
        | ProvisioningState::Inspecting
        | ProvisioningState::Deleting
        | ProvisioningState::PoweringOffBeforeDelete
        | ProvisioningState::Unknown(_) => false,
    }
}
