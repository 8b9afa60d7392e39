//! What people should know about members that stay, and about what is taken.

use std::collections::{BTreeMap, BTreeSet};

use super::account::{Account, Accounts, Known};
use super::solution::Solution;
use super::solve::to_usize;
use crate::decision::{Decision, Report, ReportKind};
use crate::host::Provisioning;
use crate::ineligible::{Ineligible, all_reasons};
use crate::names::{HostId, LabelValue, Namespace};
use crate::policy::Domain;
use crate::request::{Member, Request};
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
    for (account, found) in accounts.roles.iter().zip(&solution.found) {
        about_members(site, request, account, &mut reports);
        waiting(account, found.replaced, decision, &mut reports);
    }
    for take in &decision.take {
        let state = site
            .slot_of(&take.host)
            .and_then(|slot| site.row(slot))
            .map(|row| &row.provisioning);
        if state == Some(&Provisioning::NotReported) {
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
    let members = accounts.roles.iter().flat_map(staying);
    reports.extend(spans(members.map(|known| &known.member.host)));
    reports.sort();
    reports
}

/// Members that are kept until somebody decides otherwise.
fn staying<'a>(account: &'a Account<'_>) -> impl Iterator<Item = &'a Known<'a>> {
    account
        .present
        .iter()
        .chain(&account.failed)
        .chain(account.outgoing.iter().map(|(old, _)| old))
}

fn about_members(site: &Site, request: &Request, account: &Account<'_>, reports: &mut Vec<Report>) {
    staying(account).for_each(|known| about_member(site, request, account, known, reports));
    shared_domains(account, staying(account), reports);
}

fn report(known: &Known<'_>, kind: ReportKind) -> Report {
    Report {
        role: Some(known.member.role.clone()),
        host: Some(known.member.host.name.clone()),
        kind,
    }
}

/// A member stays whatever its host is like now, and each thing that would keep it from being taken today is said; that
/// it is held and consumed is as it should be.
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
    for reason in all_reasons(&host, None, site.policy(), request, account.role) {
        let expected = match &reason {
            Ineligible::Consumed(_)
            | Ineligible::Labelled(_)
            | Ineligible::Held { .. }
            | Ineligible::Orphaned
            | Ineligible::MarkedFailed
            | Ineligible::ReplaceRequested
            | Ineligible::NotFound => true,
            // A member goes through these states while it is used; the others are worth a word.
            Ineligible::State(state) => {
                matches!(state, Provisioning::Provisioning | Provisioning::Provisioned)
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
            | Ineligible::PartialLabels => false,
        };
        if !expected {
            reports.push(report(known, ReportKind::WouldNotBeTaken(reason)));
        }
    }
    let (was, now) = (&known.member.domain, &known.domain);
    if account.role.topology_key.is_some() && was.is_some() && was != now {
        reports.push(report(
            known,
            ReportKind::DomainChanged {
                was: was.clone(),
                now: now.clone(),
            },
        ));
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

/// Failed members that are kept, and why.
fn waiting(account: &Account<'_>, replaced: u32, decision: &Decision, reports: &mut Vec<Report>) {
    being_replaced(account, reports);
    let candidates = account.candidates().count();
    for (index, known) in account.failed.iter().enumerate() {
        let Some(reason) = known.failed else { continue };
        let by = decision
            .take
            .iter()
            .find(|take| take.replaces.as_ref() == Some(&known.member.host));
        if let Some(take) = by {
            if reason == crate::request::FailReason::ReplaceRequested {
                reports.push(report(
                    known,
                    ReportKind::BeingReplaced {
                        by: take.host.name.clone(),
                    },
                ));
            }
        } else if index < candidates && replaced < account.replaceable {
            reports.push(report(known, ReportKind::NoReplacement { reason }));
        } else {
            reports.push(report(
                known,
                ReportKind::ReplacementWaits {
                    reason,
                    limit: account.limit,
                },
            ));
        }
    }
    debug_assert!(to_usize(replaced) <= account.failed.len());
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
