//! Where the ledger and the site contradict each other: the reports of the reconciliation table
//! (`docs/reconciliation.md`). Nothing is decided here.

use std::fmt;

use ::placement::{ClusterName, Holder, HostId, MemberState};
use proto::{inventory::v1 as wire, placement::v1 as api};

use super::{Site, labels::Labels};
use crate::{
    convert,
    record::{Member, Record},
};

/// Most conflicts that a record keeps.
const MOST: usize = 64;

impl Site {
    /// Every contradiction between a record and what the site shows, in the order of hosts. While the site is not
    /// synced nothing new is known.
    pub(super) fn conflicts(&self, record: &Record) -> Vec<api::Report> {
        if !self.session.synced() {
            return record.conflicts.clone();
        }
        let mut found = Vec::new();
        if self.absent.contains(&record.cluster) {
            let why = "there is no SIPCluster of this name in the site, and its hosts are held; an operator may \
                       release each by `sipctl release-orphan`";
            found.push(report("cluster-missing", None, "", &why));
        }
        for (id, member) in &record.members {
            found.extend(self.of_member(&record.cluster, id, member));
        }
        found.extend(self.of_labels(record));
        found.extend(self.of_status(record));
        found.truncate(MOST);
        found
    }

    fn of_member(&self, cluster: &ClusterName, id: &HostId, member: &Member) -> Option<api::Report> {
        let conflict = |kind, why: &dyn fmt::Display| Some(report(kind, Some(id), member.role.as_str(), why));
        let Some(host) = self.reported(id) else {
            return conflict("host-missing", &"its BareMetalHost is gone");
        };
        match (member.state, Labels::of(host, cluster)) {
            (MemberState::Bound, Labels::None) => conflict(
                "labels-missing",
                &"is bound and has lost its labels; it stays, and they are put back",
            ),
            (MemberState::Releasing, Labels::None) => match &host.consumer {
                Some(consumer) if host.release_mark >= member.revision => conflict(
                    "used-after-release",
                    &format_args!(
                        "is unlabelled and still used by {} {}/{}",
                        consumer.kind, consumer.namespace, consumer.name
                    ),
                ),
                Some(_) | None => None,
            },
            (MemberState::Releasing, Labels::Ours(_)) if member.confirmed => conflict(
                "labels-back",
                &"was confirmed as released, and has the labels again; it is not free",
            ),
            (MemberState::Claimed, Labels::None) | (MemberState::Releasing, Labels::Ours(_)) => None,
            (MemberState::Claimed | MemberState::Bound, Labels::Ours(role)) if role == member.role => None,
            (MemberState::Claimed | MemberState::Bound, Labels::Ours(role)) => conflict(
                "labels-of-another-role",
                &format_args!("is held as {}, and its labels say {role}", member.role),
            ),
            (_, Labels::Partial) => conflict(
                "labels-partial",
                &"has some of the labels, or one that is not valid",
            ),
            (_, Labels::Others(other)) => conflict(
                "labels-of-another",
                &format_args!("is held by this cluster, and its labels name {other}"),
            ),
        }
    }

    /// Hosts whose labels name the cluster and that are not its members.
    fn of_labels<'a>(&'a self, record: &'a Record) -> impl Iterator<Item = api::Report> + 'a {
        let named = self.labelled.get(&record.cluster).into_iter().flatten();
        let strange = named.filter(|id| !record.members.contains_key(*id));
        strange.filter_map(|id| {
            let labels = Labels::of(self.reported(id)?, &record.cluster);
            match (self.other_holder(id, &record.cluster), labels) {
                (Some(other), _) => Some(report(
                    "held-by-another",
                    Some(id),
                    "",
                    &format_args!("has labels of this cluster, and {other} holds it"),
                )),
                (None, Labels::Partial) => Some(report(
                    "labels-partial",
                    Some(id),
                    "",
                    &"has some labels of this cluster, which does not hold it; it is not free",
                )),
                (None, Labels::None | Labels::Ours(_) | Labels::Others(_)) => None,
            }
        })
    }

    /// Hosts that the cluster's status claims from before the ledger was lost, and that somebody else has.
    fn of_status<'a>(&'a self, record: &'a Record) -> impl Iterator<Item = api::Report> + 'a {
        let observed = self.clusters.get(&record.cluster);
        let older = observed.filter(|observed| observed.revision.is_some_and(|at| at.epoch < self.epoch));
        let claimed = older.into_iter().flat_map(|observed| &observed.members);
        claimed.filter_map(|member| {
            let id = convert::host_id(member.host.as_ref()?).ok()?;
            let host = self.reported(&id)?;
            let labelled = match Labels::of(host, &record.cluster) {
                Labels::Others(other) => Some(other),
                Labels::None | Labels::Partial | Labels::Ours(_) => None,
            };
            let other = self.other_holder(&id, &record.cluster).cloned().or(labelled)?;
            (member.state() != wire::MemberState::Releasing && !record.members.contains_key(&id)).then(|| {
                report(
                    "promised-to-another",
                    Some(&id),
                    &member.role,
                    &format_args!(
                        "is in this cluster's status from before the ledger was lost, and {other} has it"
                    ),
                )
            })
        })
    }

    /// Another cluster that holds the host.
    pub(super) fn other_holder(&self, id: &HostId, ours: &ClusterName) -> Option<&ClusterName> {
        match self.model.holder(id)? {
            Holder::Cluster {
                cluster,
                role: _,
                state: _,
            } => Some(cluster).filter(|cluster| *cluster != ours),
            Holder::Orphaned => None,
        }
    }
}

fn report(kind: &str, host: Option<&HostId>, role: &str, why: &dyn fmt::Display) -> api::Report {
    api::Report {
        kind: kind.to_owned(),
        host: host.map(convert::host_ref),
        role: role.to_owned(),
        message: match host {
            Some(host) => format!("{}: {why}", host.name),
            None => why.to_string(),
        },
    }
}
