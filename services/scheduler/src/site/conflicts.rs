//! Where the ledger and the site contradict each other: the reports of the reconciliation table
//! (`docs/reconciliation.md`). Nothing is decided here.

use std::fmt;

use ::placement::{ClusterName, Consumer, HostId, MemberState, RoleName};

use super::{changed_addresses, conflict_kind::ConflictKind as Kind, view::View};
use crate::{
    ledger::SitePosition,
    observed::{self, Labels},
    record::{Member, Record, Report},
};

/// Maximum number of conflicts of a record.
const MAX_CONFLICTS: usize = 64;

/// Every contradiction between a record and what the site shows, in the order of hosts. While the site is not
/// synced nothing new is known.
pub(super) fn conflicts(view: View<'_>, record: &Record) -> Vec<Report> {
    if !view.synced {
        return record.conflicts.clone();
    }
    let mut found = Vec::new();
    if view.existence.is_missing(&record.cluster) {
        let why = "there is no SIPCluster of this name in the site, and its hosts are held; an operator may \
                   release each by `sipctl release-orphan`";
        found.push(report(Kind::ClusterMissing, None, None, &why));
    }
    for (id, member) in &record.members {
        found.extend(member_conflict(view, &record.cluster, id, member));
    }
    found.extend(label_conflicts(view, record));
    found.extend(status_conflicts(view, record));
    found.truncate(MAX_CONFLICTS);
    found
}

fn member_conflict(view: View<'_>, cluster: &ClusterName, id: &HostId, member: &Member) -> Option<Report> {
    let conflict = |kind, why: &dyn fmt::Display| Some(report(kind, Some(id), Some(&member.role), why));
    let Some(host) = view.reported(id) else {
        let is_there = |now| changed_addresses::is_former(id, now);
        // A former address of a host that is there.
        if view.inventory.incarnation(&id.name).is_some_and(is_there) {
            return None;
        }
        return conflict(Kind::HostMissing, &"its BareMetalHost is gone");
    };
    match (member.state, host.labels_for(cluster)) {
        (MemberState::Bound, Labels::None) => conflict(
            Kind::LabelsMissing,
            &"is bound and has lost its labels; the member is kept, and the agent restores the labels",
        ),
        (MemberState::Releasing, Labels::None) => match &host.facts().consumer {
            Some(consumer) if host.release_mark() >= member.revision => conflict(
                Kind::UsedAfterRelease,
                &format_args!(
                    "is unlabelled and still used by {}",
                    described_consumer(consumer, cluster)
                ),
            ),
            Some(_) | None => None,
        },
        (MemberState::Releasing, Labels::Ours(_)) if member.confirmed => conflict(
            Kind::LabelsBack,
            &"was confirmed as released, and has the labels again; it is not free",
        ),
        (MemberState::Claimed, Labels::None) | (MemberState::Releasing, Labels::Ours(_)) => None,
        (MemberState::Claimed | MemberState::Bound, Labels::Ours(role)) if *role == member.role => None,
        (MemberState::Claimed | MemberState::Bound, Labels::Ours(role)) => conflict(
            Kind::LabelsOfAnotherRole,
            &format_args!("is held as {}, and its labels name {role}", member.role),
        ),
        (_, Labels::Partial) => conflict(
            Kind::LabelsPartial,
            &"has some of the labels, or one that is not valid",
        ),
        (_, Labels::Others(other)) => conflict(
            Kind::LabelsOfAnother,
            &format_args!(
                "is held by this cluster, and its labels name {}",
                described(other, cluster)
            ),
        ),
    }
}

/// Hosts whose labels name the cluster and that are not its members.
fn label_conflicts<'a>(view: View<'a>, record: &'a Record) -> impl Iterator<Item = Report> + 'a {
    let named = view.inventory.labelled(&record.cluster);
    let others = named.filter(|id| !record.members.contains_key(*id));
    others.filter_map(move |id| {
        let labels = view.reported(id)?.labels_for(&record.cluster);
        match (view.inventory.other_holder(id, &record.cluster), labels) {
            (Some(other), _) => Some(report(
                Kind::HeldByAnother,
                Some(id),
                None,
                &format_args!(
                    "has labels of this cluster, and {} holds it",
                    described(other, &record.cluster)
                ),
            )),
            (None, Labels::Partial) => Some(report(
                Kind::LabelsPartial,
                Some(id),
                None,
                &"has some labels of this cluster, which does not hold it; it is not free",
            )),
            (None, Labels::None | Labels::Ours(_) | Labels::Others(_)) => None,
        }
    })
}

/// Hosts that the cluster's status claims from before the ledger was lost, and that another cluster has.
fn status_conflicts<'a>(view: View<'a>, record: &'a Record) -> impl Iterator<Item = Report> + 'a {
    let observed = view.existence.get(&record.cluster);
    let epoch = view.positions.synced_epoch();
    let is_older = move |at: SitePosition| at.epoch() < epoch;
    let older = observed.filter(|observed| observed.position().is_some_and(is_older));
    let named = older.into_iter().flat_map(observed::Cluster::members);
    named.filter_map(move |member| {
        let id = &member.host;
        let labelled = match view.reported(id)?.labels_for(&record.cluster) {
            Labels::Others(other) => Some(other),
            Labels::None | Labels::Partial | Labels::Ours(_) => None,
        };
        let other = view.inventory.other_holder(id, &record.cluster).or(labelled)?;
        let claims = member.state != Some(MemberState::Releasing) && !record.members.contains_key(id);
        claims.then(|| {
            report(
                Kind::PromisedToAnother,
                Some(id),
                member.role.as_ref(),
                &format_args!(
                    "is in the status of this cluster from before the ledger was lost, but {} holds it",
                    described(other, &record.cluster)
                ),
            )
        })
    })
}

/// Another cluster, for the tenant of `own`, whose condition has the reports: one of another namespace may be another tenant's and is not named.
/// `ExplainHost` names it.
fn described(other: &ClusterName, own: &ClusterName) -> String {
    if other.namespace() == own.namespace() {
        other.to_string()
    } else {
        "a SIPCluster of another namespace".to_owned()
    }
}

/// A consumer, for the same tenant: a late claim may be another tenant's.
fn described_consumer(consumer: &Consumer, own: &ClusterName) -> String {
    if consumer.namespace == own.namespace().as_str() {
        consumer.to_string()
    } else {
        "a consumer of another namespace".to_owned()
    }
}

fn report(kind: Kind, host: Option<&HostId>, role: Option<&RoleName>, why: &dyn fmt::Display) -> Report {
    Report {
        kind: kind.as_str().into(),
        host: host.map(Into::into),
        role: role.cloned(),
        message: match host {
            Some(host) => format!("{}: {why}", host.name),
            None => why.to_string(),
        },
    }
}
