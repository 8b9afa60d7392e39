//! What is due in a site without a call or a report: who waits, who has failed, what is released.

use std::time::SystemTime;

use ::placement::{ClusterName, MemberState};

use super::{
    decide::{self, DecisionInput},
    failures,
    requested_releases::is_request,
    settle::settle,
    state::Site,
    view::View,
};
use crate::{error::Error, observed::Labels, record::Record, spec::Spec};

impl Site {
    /// Clusters that wait, in the order in which they are served: replacements, then growth, then new ones; among equals
    /// the older `SIPCluster` first, then by name. `sipctl plan` has the same order. Those whose refusal cannot have changed since it was
    /// decided are not among them.
    #[must_use]
    pub fn waiting(&self, now: SystemTime) -> Vec<ClusterName> {
        let view = self.view();
        let due = self
            .records()
            .values()
            .filter(|record| decide::is_due(view, record) && !self.is_refusal_current(record));
        let mut order: Vec<_> = due.map(|record| decide::priority(view, record, now)).collect();
        order.sort();
        order.into_iter().map(|waiting| waiting.cluster).collect()
    }

    /// Whether a cluster is refused at present: a decision for it may then decide some older ones too.
    #[must_use]
    pub fn is_refused(&self, cluster: &ClusterName) -> bool {
        self.claims
            .get(cluster)
            .is_some_and(|record| record.refusal.is_some())
    }

    /// Whether nothing has changed since a cluster was refused. When members are to be replaced depends on the time too.
    pub(super) fn is_refusal_current(&self, record: &Record) -> bool {
        let mut members = record.members.iter();
        let waits_for_growth = members.all(|(id, member)| {
            if member.state == MemberState::Releasing {
                !is_request(self.view(), &record.cluster, id, member)
            } else {
                member.failed_since.is_none() && !member.is_beside()
            }
        });
        waits_for_growth && self.refused.is_current(&record.cluster)
    }

    /// What is to be decided for a shape, with a copy of the site's hosts: deciding it claims nothing, and needs no lock.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it wants more than a status has room for.
    pub fn decision_input(
        &self,
        cluster: &ClusterName,
        spec: Spec,
        now: SystemTime,
    ) -> Result<DecisionInput, Error> {
        let known = self.record(cluster);
        let members = spec.require_members(known.map(|known| &known.spec), "spec");
        members.map_err(|violation| Error::Invalid(vec![violation]))?;
        let mut record = match known {
            Some(known) => Record {
                spec,
                ..Record::clone(known)
            },
            None => Record::new(cluster.clone(), String::new(), None, 0, spec),
        };
        settle(self.view(), &mut record, now, usize::MAX);
        Ok(decide::decision_input(self.view(), &record, now))
    }

    /// When the next member fails, if the site continues as it is.
    #[must_use]
    pub fn next_failure(&self) -> Option<SystemTime> {
        failures::next(self.view())
    }

    /// Clusters with a member that has failed meanwhile.
    #[must_use]
    pub fn failed_meanwhile(&self, now: SystemTime) -> Vec<ClusterName> {
        failures::failed(self.view(), now)
    }

    /// When the next record is to be forgotten, if the site continues without its `SIPCluster`.
    #[must_use]
    pub fn next_forgotten(&self, now: SystemTime) -> Option<SystemTime> {
        let view = self.view();
        if !view.synced {
            return None;
        }
        if forgettable(view, now).next().is_some() {
            return Some(now);
        }
        self.existence.next_overdue(now)
    }

    /// Clusters whose `SIPCluster` the site has not shown for [`UNOBSERVED_LIMIT`](super::UNOBSERVED_LIMIT), and which use no host.
    #[must_use]
    pub fn forgotten(&self, now: SystemTime) -> Vec<ClusterName> {
        forgettable(self.view(), now).cloned().collect()
    }
}

fn forgettable(view: View<'_>, now: SystemTime) -> impl Iterator<Item = &ClusterName> {
    let overdue = view.existence.overdue(now);
    overdue.filter(move |name| {
        let record = view.claims.get(name).filter(|_| view.synced);
        record.is_some_and(|record| !record.releasing && !is_used(view, record))
    })
}

/// Whether a host has come as far as its labels: what runs there is for a person to judge.
fn is_used(view: View<'_>, record: &Record) -> bool {
    let is_labelled = |id| {
        let host = view.reported(id);
        host.is_some_and(|host| host.labels_for(&record.cluster) != Labels::None)
    };
    let mut members = record.members.iter();
    members.any(|(id, member)| member.state == MemberState::Bound || is_labelled(id))
        || view.inventory.labelled(&record.cluster).next().is_some()
}
