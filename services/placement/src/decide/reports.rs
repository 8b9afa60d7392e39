//! What people should know about members that stay, and about what is taken.

use std::collections::{BTreeMap, BTreeSet};

use vocabulary::{HostId, LabelValue, Namespace, ProvisioningState};

use super::located_member::{LocatedMember, last_known};
use super::role_needs::{ClusterNeeds, RoleNeeds};
use super::solution::Solution;
use crate::decision::{Decision, Report, ReportKind};
use crate::ineligible::{Ineligible, all_reasons};
use crate::policy::Domain;
use crate::request::{FailReason, Member, Request};
use crate::site::Site;

/// Of a decision.
pub(crate) fn add(
    site: &Site,
    request: &Request,
    needs: &ClusterNeeds<'_>,
    members: &[Member],
    solution: &Solution,
    decision: &mut Decision,
) {
    let mut reports = Vec::new();
    let moving = needs
        .roles
        .iter()
        .any(|role_needs| !role_needs.outgoing.is_empty())
        || solution.found.iter().any(|found| found.moved > 0);
    for (role_needs, found) in needs.roles.iter().zip(&solution.found) {
        about_members(site, request, role_needs, &mut reports);
        being_replaced(role_needs, &mut reports);
        lost(role_needs, found.replaced, decision, &mut reports);
        leaving(role_needs, moving, decision, &mut reports);
    }
    for take in &decision.take {
        let state = site
            .slot_of(&take.host)
            .and_then(|slot| site.row(slot))
            .map(|row| &row.provisioning);
        if state == Some(&ProvisioningState::NotReported) {
            let (role, host) = (Some(take.role.clone()), Some(take.host.name.clone()));
            reports.push(Report {
                role,
                host,
                kind: ReportKind::StateUnknown,
            });
        }
    }
    let kept = decision.keep.iter().map(|keep| &keep.host);
    reports.extend(spans(kept.chain(decision.take.iter().map(|take| &take.host))));
    debug_assert!(members.len() >= decision.keep.len());
    decision.reports = reports;
}

/// Of the members alone.
pub(crate) fn of_members(site: &Site, request: &Request, needs: &ClusterNeeds<'_>) -> Vec<Report> {
    let mut reports = Vec::new();
    for role_needs in &needs.roles {
        about_members(site, request, role_needs, &mut reports);
        being_replaced(role_needs, &mut reports);
    }
    let members = needs.roles.iter().flat_map(RoleNeeds::staying);
    reports.extend(spans(members.map(|known| &known.member.host)));
    reports.sort();
    reports
}

fn about_members(site: &Site, request: &Request, role_needs: &RoleNeeds<'_>, reports: &mut Vec<Report>) {
    for known in role_needs.staying() {
        about_member(site, request, role_needs, known, reports);
    }
    shared_domains(role_needs, role_needs.staying(), reports);
}

fn report(known: &LocatedMember<'_>, kind: ReportKind) -> Report {
    Report {
        role: Some(known.member.role.clone()),
        host: Some(known.member.host.name.clone()),
        kind,
    }
}

/// Reports each reason for which the member could not be claimed today; it stays nevertheless. That it is held and has a consumer is normal for a
/// member.
fn about_member(
    site: &Site,
    request: &Request,
    role_needs: &RoleNeeds<'_>,
    known: &LocatedMember<'_>,
    reports: &mut Vec<Report>,
) {
    let Some(row) = known.slot.and_then(|slot| site.row(slot)) else {
        reports.push(report(known, ReportKind::HostMissing));
        return;
    };
    let host = row.host(site);
    for reason in all_reasons(&host, None, site, request, role_needs.role) {
        let expected = match &reason {
            Ineligible::Consumed(_)
            | Ineligible::Labelled(_)
            | Ineligible::Held { .. }
            | Ineligible::Orphaned
            | Ineligible::MarkedFailed
            | Ineligible::ReplaceRequested
            | Ineligible::WriteRefused
            | Ineligible::NotFound => true,
            // A member passes through these states while it is in use; all other states are reported.
            Ineligible::State(state) => {
                matches!(
                    state,
                    ProvisioningState::Provisioning | ProvisioningState::Provisioned
                )
            }
            Ineligible::Selector(_)
            | Ineligible::NoTopologyLabel(_)
            | Ineligible::EmptyTopologyLabel(_)
            | Ineligible::Problem(_)
            | Ineligible::Deleting
            | Ineligible::Paused
            | Ineligible::Detached
            | Ineligible::InError
            | Ineligible::Servicing
            | Ineligible::UnknownStatus(_)
            | Ineligible::Cordoned
            | Ineligible::CordonedDomain(_)
            | Ineligible::NoAddress(_)
            | Ineligible::PartialLabels
            | Ineligible::FormerMember(_) => false,
        };
        if !expected {
            reports.push(report(known, ReportKind::WouldNotBeTaken(reason)));
        }
    }
    let key = role_needs.role.topology_key.as_ref();
    let was = key.and_then(|key| last_known(known.member, key));
    if was.is_some() && was != known.domain {
        let now = known.domain.clone();
        reports.push(report(known, ReportKind::DomainChanged { was, now }));
    }
}

fn shared_domains<'a>(
    role_needs: &RoleNeeds<'_>,
    staying: impl Iterator<Item = &'a LocatedMember<'a>>,
    reports: &mut Vec<Report>,
) {
    let Some(key) = &role_needs.role.topology_key else {
        return;
    };
    let mut by_domain: BTreeMap<&LabelValue, Vec<&LocatedMember<'_>>> = BTreeMap::new();
    for known in staying.filter(|known| known.failed.is_none()) {
        if let Some(domain) = &known.domain {
            by_domain.entry(domain).or_default().push(known);
        }
    }
    for (value, members) in by_domain.into_iter().filter(|(_, members)| members.len() > 1) {
        let domain = Domain {
            key: key.clone(),
            value: value.clone(),
        };
        reports.extend(members.into_iter().map(|known| {
            report(
                known,
                ReportKind::SharesDomain {
                    domain: domain.clone(),
                },
            )
        }));
    }
}

fn being_replaced(role_needs: &RoleNeeds<'_>, reports: &mut Vec<Report>) {
    for (known, by) in &role_needs.outgoing {
        reports.push(report(known, ReportKind::BeingReplaced { by: by.name.clone() }));
    }
}

fn replacement<'a>(known: &LocatedMember<'_>, decision: &'a Decision) -> Option<&'a HostId> {
    let host = &known.member.host;
    let takes = decision.take.iter();
    takes
        .filter(|take| take.replaces.as_ref().is_some_and(|old| old.host() == host))
        .map(|take| &take.host)
        .next()
}

/// Failed members that are kept, and why.
fn lost(role_needs: &RoleNeeds<'_>, replaced: u32, decision: &Decision, reports: &mut Vec<Report>) {
    for known in &role_needs.lost {
        let Some(reason) = known.failed else { continue };
        if replacement(known, decision).is_some() {
            continue;
        }
        let kind = if role_needs.may_be_replaced(known) && replaced < role_needs.replaceable {
            ReportKind::NoReplacement { reason }
        } else {
            ReportKind::ReplacementWaits {
                reason,
                limit: role_needs.limit,
            }
        };
        reports.push(report(known, kind));
    }
}

/// Members that are to be moved: whether they are, and why not. `moving`: a move of the cluster is under way.
fn leaving(role_needs: &RoleNeeds<'_>, moving: bool, decision: &Decision, reports: &mut Vec<Report>) {
    let reason = FailReason::MoveRequested;
    let waits = |limit| ReportKind::ReplacementWaits { reason, limit };
    for known in &role_needs.leaving {
        let kind = match replacement(known, decision) {
            Some(by) => ReportKind::BeingReplaced { by: by.name.clone() },
            None if moving => waits(1),
            None if role_needs.may_move => ReportKind::NoReplacement { reason },
            None => waits(role_needs.limit),
        };
        reports.push(report(known, kind));
    }
    reports.extend(role_needs.postponed().map(|known| report(known, waits(1))));
}

fn spans<'a>(hosts: impl Iterator<Item = &'a HostId>) -> Option<Report> {
    let namespaces: BTreeSet<&Namespace> = hosts.map(|host| host.name.namespace()).collect();
    (namespaces.len() > 1).then(|| Report {
        role: None,
        host: None,
        kind: ReportKind::SpansNamespaces {
            namespaces: namespaces.into_iter().cloned().collect(),
        },
    })
}
