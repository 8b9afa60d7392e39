//! Stable names of what is decided, the same wherever they are shown: gRPC, files of `sipctl plan`, logs. They are part of
//! the contract with callers; a variant may get a new sentence, never a new name.

use crate::decision::{RefusalKind, ReleaseReason, ReportKind};
use crate::ineligible::Ineligible;
use crate::request::FailReason;

impl Ineligible {
    /// The reason's stable name, e.g. `no-topology-label`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::Selector(_) => "selector",
            Self::NoTopologyLabel(_) => "no-topology-label",
            Self::EmptyTopologyLabel(_) => "empty-topology-label",
            Self::Problem(_) => "problem",
            Self::Deleting => "deleting",
            Self::Paused => "paused",
            Self::Detached => "detached",
            Self::InError => "in-error",
            Self::Servicing => "servicing",
            Self::UnknownStatus(_) => "unknown-status",
            Self::State(_) => "state",
            Self::MarkedFailed => "marked-failed",
            Self::ReplaceRequested => "replace-requested",
            Self::WriteRefused => "write-refused",
            Self::Cordoned => "cordoned",
            Self::CordonedDomain(_) => "cordoned-domain",
            Self::NoAddress(_) => "no-address",
            Self::Consumed(_) => "consumed",
            Self::Orphaned => "orphaned",
            Self::PartialLabels => "labels-partial",
            Self::Labelled(_) => "labelled",
            Self::FormerMember(_) => "former-member",
            Self::Held {
                cluster: _,
                role: _,
                state: _,
            } => "held",
        }
    }
}

impl ReportKind {
    /// The report's stable name; for a member that would not be taken that of the reason.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::HostMissing => "host-missing",
            Self::WouldNotBeTaken(reason) => reason.kind(),
            Self::SharesDomain { domain: _ } => "topology-shared",
            Self::DomainChanged { was: _, now: _ } => "domain-changed",
            Self::ReplacementWaits { reason: _, limit: _ } => "replacement-waits",
            Self::NoReplacement { reason: _ } => "no-replacement",
            Self::BeingReplaced { by: _ } => "being-replaced",
            Self::StateUnknown => "state-unknown",
            Self::SpansNamespaces { namespaces: _ } => "spans-namespaces",
        }
    }
}

impl RefusalKind {
    /// The refusal's stable name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NoFit => "no-fit",
            Self::Quota {
                namespace: _,
                limit: _,
                others: _,
                wanted: _,
                moving: _,
            } => "quota",
            Self::ReplacementLimit => "replacement-limit",
        }
    }
}

impl ReleaseReason {
    /// The release's stable name. A member that was moved off is released as a failed one is: it has a replacement.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Surplus => "surplus",
            Self::Failed(FailReason::Gone) => "gone",
            Self::Failed(
                FailReason::MarkedFailed
                | FailReason::InError
                | FailReason::UsedBeforeLabelled
                | FailReason::WriteRefused
                | FailReason::MoveRequested,
            )
            | Self::Moved => "failed",
        }
    }
}
