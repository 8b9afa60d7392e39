//! Stable names of what the decision says, the same as the scheduler's.

use placement::{Ineligible, RefusalKind, ReportKind};

/// The name of a report's kind.
pub(super) fn report(kind: &ReportKind) -> &'static str {
    match kind {
        ReportKind::HostMissing => "host-missing",
        ReportKind::WouldNotBeTaken(reason) => ineligible(reason),
        ReportKind::SharesDomain { domain: _ } => "topology-shared",
        ReportKind::DomainChanged { was: _, now: _ } => "domain-changed",
        ReportKind::ReplacementWaits { reason: _, limit: _ } => "replacement-waits",
        ReportKind::NoReplacement { reason: _ } => "no-replacement",
        ReportKind::BeingReplaced { by: _ } => "being-replaced",
        ReportKind::StateUnknown => "state-unknown",
        ReportKind::SpansNamespaces { namespaces: _ } => "spans-namespaces",
    }
}

/// The name of a reason why a host cannot be claimed.
fn ineligible(reason: &Ineligible) -> &'static str {
    match reason {
        Ineligible::NotFound => "not-found",
        Ineligible::Selector(_) => "selector",
        Ineligible::NoTopologyLabel(_) => "no-topology-label",
        Ineligible::EmptyTopologyLabel(_) => "empty-topology-label",
        Ineligible::Problem(_) => "problem",
        Ineligible::Deleting => "deleting",
        Ineligible::Paused => "paused",
        Ineligible::Detached => "detached",
        Ineligible::InError => "in-error",
        Ineligible::Servicing => "servicing",
        Ineligible::UnknownStatus(_) => "unknown-status",
        Ineligible::State(_) => "state",
        Ineligible::MarkedFailed => "marked-failed",
        Ineligible::Cordoned => "cordoned",
        Ineligible::CordonedDomain(_) => "cordoned-domain",
        Ineligible::NoAddress(_) => "no-address",
        Ineligible::Consumed(_) => "consumed",
        Ineligible::Orphaned => "orphaned",
        Ineligible::PartialLabels => "partial-labels",
        Ineligible::Labelled(_) => "labelled",
        Ineligible::Held {
            cluster: _,
            role: _,
            state: _,
        } => "held",
    }
}

/// The name of a refusal's kind.
pub(super) fn refusal(kind: &RefusalKind) -> &'static str {
    match kind {
        RefusalKind::NoFit => "no-fit",
        RefusalKind::Quota {
            namespace: _,
            limit: _,
            others: _,
            wanted: _,
        } => "quota",
        RefusalKind::ReplacementLimit => "replacement-limit",
    }
}
