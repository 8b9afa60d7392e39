//! Decisions as callers see them.

use ::placement::{
    self as decision, ClusterName, Decision, HostId, MAX_REPORTS, Member, MemberState, Namespace, Request,
};
use proto::{inventory::v1 as inventory, placement::v1 as api};

use crate::{
    convert,
    error::{Error, Violation},
    record::ReleaseReason,
    spec::Spec,
};

/// Most domains of a tight set in an answer.
const DOMAINS: usize = 16;

/// Why a member is given back, as the ledger keeps it.
#[must_use]
pub fn release_reason(reason: decision::ReleaseReason) -> ReleaseReason {
    match reason {
        decision::ReleaseReason::Surplus => ReleaseReason::Surplus,
        decision::ReleaseReason::Failed(decision::FailReason::Gone) => ReleaseReason::Gone,
        decision::ReleaseReason::Failed(
            decision::FailReason::Marked
            | decision::FailReason::InError
            | decision::FailReason::Taken
            | decision::FailReason::ReplaceRequested,
        )
        | decision::ReleaseReason::Moved => ReleaseReason::Failed,
    }
}

/// Why a cluster does not get all that it wants.
#[must_use]
pub fn refusal(refusal: &decision::Refusal) -> api::Refusal {
    api::Refusal {
        kind: refusal.kind.kind().to_owned(),
        roles: refusal
            .roles
            .iter()
            .map(|(role, funnel)| api::Funnel {
                role: role.as_str().to_owned(),
                wanted: funnel.want,
                matched: funnel.matched,
                with_topology: funnel.with_topology,
                eligible: funnel.eligible,
                free: funnel.free,
                domains: funnel.domains,
                short: funnel.short,
            })
            .collect(),
        tight_roles: refusal.tight.roles.iter().map(ToString::to_string).collect(),
        tight_domains: refusal
            .tight
            .domains
            .iter()
            .take(DOMAINS)
            .map(|(_, domain)| domain.to_string())
            .collect(),
        helps: refusal
            .helps
            .iter()
            .map(|help| refusal.help_message(help))
            .collect(),
        message: refusal.message(),
    }
}

/// What people should know.
#[must_use]
pub fn reports(reports: &[decision::Report]) -> Vec<api::Report> {
    let report = |report: &decision::Report| api::Report {
        kind: report.kind.kind().to_owned(),
        host: report.host.as_ref().map(|host| inventory::HostRef {
            namespace: host.namespace().as_str().to_owned(),
            name: host.name().to_owned(),
            uid: String::new(),
        }),
        role: report.role.as_ref().map(ToString::to_string).unwrap_or_default(),
        message: sentence(report),
    };
    reports.iter().take(MAX_REPORTS).map(report).collect()
}

fn sentence(report: &decision::Report) -> String {
    match &report.host {
        Some(host) => format!("{host}: {}", report.kind),
        None => report.kind.to_string(),
    }
}

/// A decision that claims nothing.
#[must_use]
pub fn plan(decision: &Decision) -> api::PlanClusterResponse {
    let planned =
        |host: &HostId, role: &decision::RoleName, domain: Option<String>, change: &str| api::PlannedMember {
            host: Some(convert::host_ref(host)),
            role: role.as_str().to_owned(),
            domain: domain.unwrap_or_default(),
            change: change.to_owned(),
        };
    let text =
        |domain: &Option<decision::LabelValue>| domain.as_ref().map(|domain| domain.as_str().to_owned());
    let keep = decision
        .keep
        .iter()
        .map(|kept| planned(&kept.host, &kept.role, text(&kept.domain), "keep"));
    let take = decision
        .take
        .iter()
        .map(|taken| planned(&taken.host, &taken.role, text(&taken.domain), "take"));
    let release = decision
        .release
        .iter()
        .map(|given| planned(&given.host, &given.role, None, "release"));
    let mut members: Vec<_> = keep.chain(take).chain(release).collect();
    members.sort_by(|a, b| host_name(a).cmp(&host_name(b)));
    api::PlanClusterResponse {
        members,
        refusal: decision.refusal.as_ref().map(refusal),
        reports: reports(&decision.reports),
    }
}

/// By what planned members are sorted.
fn host_name(member: &api::PlannedMember) -> Option<(&str, &str)> {
    let host = member.host.as_ref();
    host.map(|host| (&*host.namespace, &*host.name))
}

/// The name of a cluster that is only asked about.
///
/// # Errors
/// When the namespace cannot hold clusters.
pub(crate) fn probe(namespace: &Namespace, copy: u32) -> Result<ClusterName, Error> {
    ClusterName::new(namespace.as_str(), format!("capacity-{copy}"))
        .map_err(|error| Error::Invalid(vec![Violation::new("namespace", error)]))
}

/// How many copies of a cluster fit one after the other, and why not one more.
///
/// # Errors
/// When the namespace cannot hold clusters.
pub fn capacity(
    mut model: decision::Site,
    spec: &Spec,
    namespace: &Namespace,
    most: u32,
) -> Result<(u32, String), Error> {
    for copy in 0..most {
        let cluster = probe(namespace, copy)?;
        let request = Request {
            cluster: cluster.clone(),
            roles: spec.roles().to_vec(),
            networks: spec.networks().clone(),
        };
        let none: [Member; 0] = [];
        let decision = decision::decide(&model, &request, &none);
        if let Some(refusal) = decision.refusal {
            return Ok((copy, refusal.message()));
        }
        for taken in decision.take {
            let state = MemberState::Claimed;
            model.hold(
                &taken.host,
                decision::Holder::Cluster {
                    cluster: cluster.clone(),
                    role: taken.role,
                    state,
                },
            );
        }
    }
    Ok((most, String::new()))
}
