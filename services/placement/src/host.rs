//! What the decision reads of a `BareMetalHost`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use smol_str::SmolStr;

use crate::names::{ClusterName, HostId, LabelKey, LabelValue, NetworkId, RoleName};

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
    pub provisioning: Provisioning,
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
    /// `status.hardware` is present. A preference only.
    pub inspected: bool,
    /// Annotation `sip.airshipit.org/cordoned` is present: no new claim, never a failure.
    pub cordoned: bool,
    /// Annotation `capm3.metal3.io/unhealthy` or `sip.airshipit.org/failed` is present: a member is replaced.
    pub marked_failed: bool,
    /// Annotation `sip.airshipit.org/replace` is present: a member is moved off, and no new claim.
    pub replace_requested: bool,
    /// `spec.consumerRef`.
    pub consumer: Option<Consumer>,
    /// The networks for which the networkData has an address.
    pub networks: BTreeSet<NetworkId>,
    /// Why the host's data could not be read, if so; then it is not eligible, for this reason.
    pub problem: Option<String>,
    /// What SIP's three labels on the host say.
    pub sip_labels: SipLabels,
}

impl Host {
    /// A host that is available, without labels, addresses, consumer or any flag; powered on and inspected.
    #[must_use]
    pub fn available(id: HostId) -> Self {
        Self {
            id,
            labels: BTreeMap::new(),
            provisioning: Provisioning::Available,
            operational: OperationalStatus::Ok,
            paused: false,
            detached: false,
            deleting: false,
            powered_on: true,
            inspected: true,
            cordoned: false,
            marked_failed: false,
            replace_requested: false,
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

/// What the labels `sip.airshipit.org/{cluster-namespace,cluster-name,node-type}` of a host say. Who holds the host is
/// said by [`crate::Site::hold`]; a host that nobody holds is free only when it has none of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SipLabels {
    /// None of the three is there.
    #[default]
    None,
    /// Some are there, or a value is not valid: neither a member nor free.
    Partial,
    /// All three are there.
    Complete {
        /// The cluster that they name; it may not exist.
        cluster: ClusterName,
        /// The role that they name.
        role: RoleName,
    },
}

macro_rules! reported_state {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ } $($(#[$edoc:meta])* $extra:ident = $etext:literal,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
            $($(#[$edoc])* $extra,)*
            /// A state that this crate does not know.
            Unknown(SmolStr),
        }

        impl $name {
            /// Reads metal3's text; never fails, so that a new state of metal3 is only [`Self::Unknown`].
            #[must_use]
            pub fn parse(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)+
                    other => Self::Unknown(SmolStr::new(other)),
                }
            }

            /// The text that metal3 uses.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    $(Self::$extra => $etext,)*
                    Self::Unknown(text) => text,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.as_str() {
                    "" => f.write_str("none"),
                    text => f.write_str(text),
                }
            }
        }
    };
}

reported_state!(
    /// `status.provisioning.state` of metal3's `BareMetalHost` v1alpha1.
    Provisioning {
        /// Nothing known yet (the empty state).
        None = "",
        /// Not enough is known to register it.
        Unmanaged = "unmanaged",
        /// Its BMC is being checked.
        Registering = "registering",
        /// A hardware profile is being matched (older metal3).
        MatchProfile = "match profile",
        /// Firmware and RAID are being set.
        Preparing = "preparing",
        /// Can be consumed (metal3's older name).
        Ready = "ready",
        /// Can be consumed.
        Available = "available",
        /// An image is being written.
        Provisioning = "provisioning",
        /// An image is on it.
        Provisioned = "provisioned",
        /// An image is on it that metal3 did not write.
        ExternallyProvisioned = "externally provisioned",
        /// Its image is being removed.
        Deprovisioning = "deprovisioning",
        /// Its hardware is being inspected.
        Inspecting = "inspecting",
        /// It is being deleted.
        Deleting = "deleting",
        /// It is being powered off before its deletion.
        PoweringOffBeforeDelete = "powering off before delete",
    }
    /// The source has no status at all (files, not a live site): eligible, and reported. A live site without a
    /// status is [`Provisioning::None`].
    NotReported = "not reported",
);

impl Provisioning {
    /// Whether a host in this state can be claimed.
    #[must_use]
    pub fn is_claimable(&self) -> bool {
        match self {
            Self::Ready | Self::Available | Self::NotReported => true,
            Self::None
            | Self::Unmanaged
            | Self::Registering
            | Self::MatchProfile
            | Self::Preparing
            | Self::Provisioning
            | Self::Provisioned
            | Self::ExternallyProvisioned
            | Self::Deprovisioning
            | Self::Inspecting
            | Self::Deleting
            | Self::PoweringOffBeforeDelete
            | Self::Unknown(_) => false,
        }
    }
}

reported_state!(
    /// `status.operationalStatus` of metal3's `BareMetalHost` v1alpha1.
    OperationalStatus {
        /// Nothing reported.
        None = "",
        /// Well.
        Ok = "OK",
        /// Only discovered: BMC details are missing.
        Discovered = "discovered",
        /// In error.
        Error = "error",
        /// An operation waits for capacity of the provisioner.
        Delayed = "delayed",
        /// Not managed at present.
        Detached = "detached",
        /// Firmware is being changed while an image is on it.
        Servicing = "servicing",
    }
);
