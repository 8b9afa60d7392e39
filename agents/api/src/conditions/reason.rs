//! Reasons of conditions, and what each means for each type.

use std::fmt;

use super::ConditionType;

/// The status of a condition that has a reason.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// `True`.
    True,
    /// `False`.
    False,
}

impl Status {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
        }
    }
}

/// What a reason means for one type of condition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Meaning {
    /// The reason.
    pub reason: Reason,
    /// The status that it comes with.
    pub status: Status,
    /// For people, as sentences.
    pub text: &'static str,
}

macro_rules! reasons {
    ($($variant:ident,)+) => {
        /// Why a condition has its status. The name of the variant is what is written.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[expect(missing_docs, reason = "what a reason means depends on the type: see `ConditionType::reasons`")]
        pub enum Reason {
            $($variant,)+
        }

        impl Reason {
            /// Every reason, in the order of the alphabet.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// `reason` as it is written.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }
        }
    };
}

reasons! {
    Available,
    BadTemplate,
    Blocked,
    Deleting,
    ImagePull,
    InfraServiceFailure,
    InvalidSpec,
    Labeled,
    NameConflict,
    NetworkAttachmentMissing,
    NoAddress,
    NoReachableBackend,
    NotInstalled,
    Placed,
    PodsFail,
    PortConflict,
    Progressing,
    ReconciliationSucceeded,
    Refused,
    Removed,
    UnableToApplyLabels,
    UnableToDecommission,
    Unschedulable,
    Waiting,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A condition of an object has its reason as text.
impl PartialEq<Reason> for String {
    fn eq(&self, other: &Reason) -> bool {
        self == other.as_str()
    }
}

/// Reasons of [`super::READY`], those of SIP.
pub mod ready {
    use super::Reason;

    /// Work is going on.
    pub const PROGRESSING: Reason = Reason::Progressing;
    /// No hosts can be found for every role.
    pub const UNSCHEDULABLE: Reason = Reason::Unschedulable;
    /// A load balancer, jump host or identity provider is not as asked.
    pub const INFRA_SERVICE_FAILURE: Reason = Reason::InfraServiceFailure;
    /// A member could not be labelled.
    pub const UNABLE_TO_APPLY_LABELS: Reason = Reason::UnableToApplyLabels;
    /// The cluster is being deleted, and that is held up.
    pub const UNABLE_TO_DECOMMISSION: Reason = Reason::UnableToDecommission;
    /// All is as asked.
    pub const RECONCILIATION_SUCCEEDED: Reason = Reason::ReconciliationSucceeded;
}

/// Reasons of [`super::LOAD_BALANCER_READY`], besides [`ready::PROGRESSING`] and [`super::REMOVED`].
pub mod load_balancer {
    use super::Reason;

    /// All is as asked.
    pub const AVAILABLE: Reason = Reason::Available;
    /// All is as asked, and no member answers, as HAProxy sees it: mostly since nothing runs on them yet. The condition is
    /// True: a cluster is Ready before anybody can provision it.
    pub const NO_REACHABLE_BACKEND: Reason = Reason::NoReachableBackend;
    /// Somebody else has node ports that the spec asks for, or asked for them earlier.
    pub const PORT_CONFLICT: Reason = Reason::PortConflict;
    /// Somebody else has an object of a name that is needed.
    pub const NAME_CONFLICT: Reason = Reason::NameConflict;
    /// The API server refuses an object.
    pub const REFUSED: Reason = Reason::Refused;
    /// A member has no address in the network that the entry names.
    pub const NO_ADDRESS: Reason = Reason::NoAddress;
    /// A pod's image cannot be had.
    pub const IMAGE_PULL: Reason = Reason::ImagePull;
    /// Pods end or cannot be started.
    pub const PODS_FAIL: Reason = Reason::PodsFail;
    /// The site's template cannot be used, and the last one that could still is.
    pub const BAD_TEMPLATE: Reason = Reason::BadTemplate;
    /// A `NetworkAttachmentDefinition` does not exist, or a pod has not joined its network.
    pub const NETWORK_ATTACHMENT_MISSING: Reason = Reason::NetworkAttachmentMissing;
}

const fn yes(reason: Reason, text: &'static str) -> Meaning {
    Meaning {
        reason,
        status: Status::True,
        text,
    }
}

const fn no(reason: Reason, text: &'static str) -> Meaning {
    Meaning {
        reason,
        status: Status::False,
        text,
    }
}

const READY: &[Meaning] = &[
    yes(Reason::ReconciliationSucceeded, "All is as asked."),
    no(
        Reason::Progressing,
        "Work is going on; the message states what is awaited.",
    ),
    no(
        Reason::Unschedulable,
        "The scheduler refuses the cluster, or the spec is not valid. What runs is left as it is.",
    ),
    no(
        Reason::InfraServiceFailure,
        "A load balancer, jump host or identity provider is not as asked, or its agent does not answer.",
    ),
    no(
        Reason::UnableToApplyLabels,
        "A member cannot be labelled; the message names the host and the cause.",
    ),
    no(
        Reason::UnableToDecommission,
        "The cluster is being deleted, and something holds that up.",
    ),
];

const SCHEDULED: &[Meaning] = &[
    yes(
        Reason::Placed,
        "Every role has its hosts. The message lists what the scheduler reports about them.",
    ),
    no(
        Reason::Unschedulable,
        "The scheduler refuses the cluster. The message states what is short, where, and what would help.",
    ),
    no(
        Reason::InvalidSpec,
        "The spec is not valid; the message lists every fault. What runs is left as it is.",
    ),
    no(Reason::Deleting, "The cluster is being deleted."),
];

const HOSTS_LABELED: &[Meaning] = &[
    yes(Reason::Labeled, "Every member carries the labels."),
    no(
        Reason::Waiting,
        "Members wait to be labelled or released; the message names hosts and what each waits for.",
    ),
    no(
        Reason::Blocked,
        "A host is not as the placement needs it, for example used by another cluster. A person has to act.",
    ),
    no(Reason::Refused, "The API server refuses to write a host."),
];

const SERVICES_SKIPPED: &[Meaning] = &[yes(
    Reason::NotInstalled,
    "The site's configuration states that it does not have these agents.",
)];

const LOAD_BALANCER_READY: &[Meaning] = &[
    yes(Reason::Available, "All is as asked."),
    yes(
        Reason::NoReachableBackend,
        "All is as asked, and no member answers, as HAProxy sees it: mostly since nothing runs on them yet.",
    ),
    no(
        Reason::Progressing,
        "Work is going on; the message states what is awaited.",
    ),
    no(
        Reason::PortConflict,
        "Somebody else has node ports that the spec asks for, or asked for them earlier.",
    ),
    no(
        Reason::NameConflict,
        "Somebody else has an object of a name that is needed.",
    ),
    no(Reason::Refused, "The API server refuses an object."),
    no(
        Reason::NoAddress,
        "A member has no address in the network that the entry names.",
    ),
    no(Reason::ImagePull, "A pod's image cannot be pulled."),
    no(Reason::PodsFail, "Pods end or cannot be started."),
    no(
        Reason::BadTemplate,
        "The site's template cannot be used. The load balancer still runs with the last one that could.",
    ),
    no(
        Reason::NetworkAttachmentMissing,
        "A `NetworkAttachmentDefinition` does not exist, or a pod has not joined its network.",
    ),
    no(
        Reason::Removed,
        "The cluster is being deleted, and every object that was made for it is removed.",
    ),
];

impl ConditionType {
    /// The reasons that its owner gives; none for a type whose agent is not part of this version.
    #[must_use]
    pub fn reasons(self) -> &'static [Meaning] {
        match self {
            Self::Ready => READY,
            Self::Scheduled => SCHEDULED,
            Self::HostsLabeled => HOSTS_LABELED,
            Self::ServicesSkipped => SERVICES_SKIPPED,
            Self::LoadBalancerReady => LOAD_BALANCER_READY,
            Self::JumpHostReady | Self::AuthReady => &[],
        }
    }

    /// The reason that a condition of this type has, by its text.
    #[must_use]
    pub fn reason(self, text: &str) -> Option<Reason> {
        let mut reasons = self.reasons().iter().map(|meaning| meaning.reason);
        reasons.find(|reason| reason.as_str() == text)
    }
}
