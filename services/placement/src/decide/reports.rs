//! What people should know about members that stay, and about what is taken.

use std::collections::{BTreeMap, BTreeSet};

use vocabulary::{HostId, LabelValue, Namespace, ProvisioningState};

use super::known::{Known, last_known};
use super::role_needs::{Account, Accounts};
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
    accounts: &Accounts<'_>,
    members: &[Member],
    solution: &Solution,
    decision: &mut Decision,
) {
    let mut reports = Vec::new();
    let moving = accounts.roles.iter().any(|account| !account.outgoing.is_empty())
        || solution.found.iter().any(|found| found.moved > 0);
    for (account, found) in accounts.roles.iter().zip(&solution.found) {
        about_members(site, request, account, &mut reports);
        being_replaced(account, &mut reports);
        lost(account, found.replaced, decision, &mut reports);
        leaving(account, moving, decision, &mut reports);
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
pub(crate) fn of_members(site: &Site, request: &Request, accounts: &Accounts<'_>) -> Vec<Report> {
    let mut reports = Vec::new();
    for account in &accounts.roles {
        about_members(site, request, account, &mut reports);
        being_replaced(account, &mut reports);
    }
    let members = accounts.roles.iter().flat_map(Account::staying);
    reports.extend(spans(members.map(|known| &known.member.host)));
    reports.sort();
    reports
}

fn about_members(site: &Site, request: &Request, account: &Account<'_>, reports: &mut Vec<Report>) {
    for known in account.staying() {
        about_member(site, request, account, known, reports);
    }
    shared_domains(account, account.staying(), reports);
}

fn report(known: &Known<'_>, kind: ReportKind) -> Report {
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
    account: &Account<'_>,
    known: &Known<'_>,
    reports: &mut Vec<Report>,
) {
    let Some(row) = known.slot.and_then(|slot| site.row(slot)) else {
        reports.push(report(known, ReportKind::HostMissing));
        return;
    };
    let host = row.host(site);
    for reason in all_reasons(&host, None, site, request, account.role) {
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
    let key = account.role.topology_key.as_ref();
    let was = key.and_then(|key| last_known(known.member, key));
    if was.is_some() && was != known.domain {
        let now = known.domain.clone();
        reports.push(report(known, ReportKind::DomainChanged { was, now }));
    }
}

fn shared_domains<'a>(
    account: &Account<'_>,
    staying: impl Iterator<Item = &'a Known<'a>>,
    reports: &mut Vec<Report>,
) {
    let Some(key) = &account.role.topology_key else {
        return;
    };
    let mut by_domain: BTreeMap<&LabelValue, Vec<&Known<'_>>> = BTreeMap::new();
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

fn being_replaced(account: &Account<'_>, reports: &mut Vec<Report>) {
    for (known, by) in &account.outgoing {
        reports.push(report(known, ReportKind::BeingReplaced { by: by.name.clone() }));
    }
}

fn replacement<'a>(known: &Known<'_>, decision: &'a Decision) -> Option<&'a HostId> {
    let host = &known.member.host;
    let takes = decision.take.iter();
    takes
        .filter(|take| take.replaces.as_ref().is_some_and(|old| old.host() == host))
        .map(|take| &take.host)
        .next()
}

/// Failed members that are kept, and why.
fn lost(account: &Account<'_>, replaced: u32, decision: &Decision, reports: &mut Vec<Report>) {
    for known in &account.lost {
        let Some(reason) = known.failed else { continue };
        if replacement(known, decision).is_some() {
            continue;
        }
        let kind = if account.may_be_replaced(known) && replaced < account.replaceable {
            ReportKind::NoReplacement { reason }
        } else {
            ReportKind::ReplacementWaits {
                reason,
                limit: account.limit,
            }
        };
        reports.push(report(known, kind));
    }
}

/// Members that are to be moved: whether they are, and why not. `moving`: a move of the cluster is under way.
fn leaving(account: &Account<'_>, moving: bool, decision: &Decision, reports: &mut Vec<Report>) {
    let reason = FailReason::MoveRequested;
    let waits = |limit| ReportKind::ReplacementWaits { reason, limit };
    for known in &account.leaving {
        let kind = match replacement(known, decision) {
            Some(by) => ReportKind::BeingReplaced { by: by.name.clone() },
            None if moving => waits(1),
            None if account.may_move => ReportKind::NoReplacement { reason },
            None => waits(account.limit),
        };
        reports.push(report(known, kind));
    }
    reports.extend(account.postponed().map(|known| report(known, waits(1))));
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
