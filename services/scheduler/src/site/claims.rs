//! How a record changes: the protocol of claims.
//!
//! Every step is a function of the record, the inventory and the request. It is applied to a copy, and only if the copy
//! differs is it staged: so every call is idempotent, and repeating one costs no commit.
//!
//! ```text
//!          decide               labels observed            surplus, failed, deleted
//! (free) ─────────▶ claimed ─────────────────────▶ bound ───────────────────────────▶ releasing ──▶ (free)
//!                      └──────────────────────────────────────────────────────────────▶   when the agent has
//!                                                              confirmed its write and the inventory shows it
//! ```

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use super::Site;
use crate::{
    error::Error,
    ledger::{Commit, commit::Permit},
    record::{Member, Record, ReleaseReason},
    spec::Spec,
};
use ::placement::{ClusterName, HostId, MemberState};

/// Revision of a claim or release that is decided and gets its number when it is staged.
pub(super) const UNNUMBERED: u64 = 0;

/// What an agent declares of a cluster.
#[derive(Clone, Debug)]
pub struct Apply {
    /// Which cluster.
    pub cluster: ClusterName,
    /// uid of the `SIPCluster`.
    pub uid: String,
    /// Its generation.
    pub generation: i64,
    /// When it was created.
    pub created: Option<SystemTime>,
    /// The whole wanted shape.
    pub spec: Spec,
}

/// Who acts, for the audit log.
#[derive(Clone, Debug)]
pub struct Author<'a> {
    /// SPIFFE path of the caller, or `scheduler`.
    pub caller: &'a str,
    /// What is done.
    pub action: &'static str,
    /// When.
    pub now: SystemTime,
}

/// The state after a step; it may be told when its commit is durable.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The record; `None` when the cluster holds nothing any more.
    pub record: Option<Arc<Record>>,
    /// Commit that must be durable before anyone is told.
    pub commit: Commit,
}

impl Outcome {
    /// Nothing is held. It may be so only since a change that is staged, so it is told after that.
    fn nothing(permit: &Permit) -> Self {
        Self {
            record: None,
            commit: permit.reached(),
        }
    }
}

impl Site {
    /// Declares a cluster's shape, and decides.
    ///
    /// # Errors
    /// [`Error::NotSynced`], [`Error::StaleGeneration`], [`Error::Releasing`], [`Error::TooLarge`]; [`Error::Superseded`] when the site has
    /// the `SIPCluster` that the record is of, and not the one with this uid; [`Error::ClusterGone`] when it had that one.
    pub fn apply(&mut self, apply: Apply, author: &Author<'_>, permit: Permit) -> Result<Outcome, Error> {
        self.require_synced()?;
        let Apply {
            cluster,
            uid,
            generation,
            created,
            spec,
        } = apply;
        self.require_not_gone(&cluster, &uid, created)?;
        let mut record = match self.records.get(&cluster) {
            None => Record::new(cluster.clone(), uid, created, generation, spec),
            // An agent that was paused, or a call that was late, may speak for the one before.
            Some(known)
                if known.uid != uid
                    && (is_older(created, known.created) || self.is_observed(&cluster, &known.uid)) =>
            {
                return Err(superseded(known, &uid));
            }
            Some(known) if known.uid != uid => {
                // The SIPCluster was made again: its hosts stay, what was on its way out goes on.
                Record {
                    uid,
                    created,
                    generation,
                    spec,
                    releasing: false,
                    ..Record::clone(known)
                }
            }
            Some(known) if known.releasing => {
                return Err(Error::Releasing {
                    cluster: cluster.to_string(),
                });
            }
            Some(known) if generation < known.generation => {
                return Err(Error::StaleGeneration {
                    cluster: cluster.to_string(),
                    asked: generation,
                    applied: known.generation,
                });
            }
            Some(known) => Record {
                created,
                generation,
                spec,
                ..Record::clone(known)
            },
        };
        self.declared(&record, author.now);
        self.settle_record(&mut record, author.now);
        self.decide_record(&mut record, author.now);
        let cluster = record.cluster.clone();
        let outcome = self.store(record, author, permit)?;
        // Whatever its status promised is its own now, or somebody else's.
        self.withdraw_promises(&cluster);
        Ok(outcome)
    }

    /// Begins to give everything back. Without a record, nothing is known of the cluster, so nothing is held. Before the site is
    /// synced a record may be older than what the cluster's status says, so it is not touched.
    ///
    /// # Errors
    /// [`Error::NotSynced`]; [`Error::Superseded`] when a `SIPCluster` with another uid has the record now.
    pub fn release(
        &mut self,
        cluster: &ClusterName,
        uid: &str,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<Outcome, Error> {
        self.require_synced()?;
        let mut record = match self.records.get(cluster) {
            Some(known) if known.uid != uid && !self.is_observed(cluster, uid) => {
                return Err(superseded(known, uid));
            }
            Some(known) => Record {
                uid: uid.to_owned(),
                ..Record::clone(known)
            },
            None if self.gone.contains(cluster, uid) => return Ok(Outcome::nothing(&permit)),
            None => {
                // Hosts may carry its labels or be named by its status though the ledger was lost: they are given back
                // too.
                let spec = Spec::default();
                Record::new(cluster.clone(), uid.to_owned(), None, 0, spec)
            }
        };
        self.settle_record(&mut record, author.now);
        if record.members.is_empty() && !self.records.contains_key(cluster) {
            return Ok(Outcome::nothing(&permit));
        }
        record.releasing = true;
        record.refusal = None;
        record.reports.clear();
        for member in record.members.values_mut() {
            begin_release(member, ReleaseReason::Deleted);
        }
        self.settle_record(&mut record, author.now);
        let outcome = self.store(record, author, permit)?;
        self.withdraw_promises(cluster);
        Ok(outcome)
    }

    /// Takes in that the agent has written releases to the API server.
    ///
    /// # Errors
    /// [`Error::NotSynced`]; [`Error::Superseded`] when a `SIPCluster` with another uid has the record now.
    pub fn confirm(
        &mut self,
        cluster: &ClusterName,
        uid: &str,
        released: &BTreeMap<HostId, u64>,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<Outcome, Error> {
        self.require_synced()?;
        let Some(known) = self.records.get(cluster) else {
            return Ok(Outcome::nothing(&permit));
        };
        if known.uid != uid {
            return Err(superseded(known, uid));
        }
        let mut record = Record::clone(known);
        for (id, revision) in released {
            if let Some(member) = record.members.get_mut(id)
                && member.state == MemberState::Releasing
                && member.revision == *revision
            {
                member.confirmed = true;
            }
        }
        self.settle_record(&mut record, author.now);
        self.store(record, author, permit)
    }

    /// Compares a record with the inventory and the policy, and says what people should know of its members as they are
    /// now. Whether another decision is due is told by [`Site::waiting`].
    ///
    /// Its agent may have declared the cluster before this was reported, and asks again only when the record changes.
    pub fn settle(&mut self, cluster: &ClusterName, author: &Author<'_>, permit: Permit) {
        let Some(known) = self.records.get(cluster) else {
            return;
        };
        let mut record = Record::clone(known);
        self.settle_record(&mut record, author.now);
        self.report_record(&mut record, author.now);
        self.store_alone(record, author, permit);
    }

    /// Decides again for a cluster that waits.
    pub fn retry(&mut self, cluster: &ClusterName, author: &Author<'_>, permit: Permit) {
        if self.require_synced().is_err() {
            return;
        }
        let Some(known) = self.records.get(cluster) else {
            return;
        };
        if !self.is_due(known) {
            return;
        }
        let mut record = Record::clone(known);
        self.settle_record(&mut record, author.now);
        self.decide_record(&mut record, author.now);
        self.store_alone(record, author, permit);
    }

    /// Clusters that wait, in the order in which they are served: replacements, then growth, then new ones; among equals
    /// the older `SIPCluster` first, then by name. `sipctl plan` has the same order.
    #[must_use]
    pub fn waiting(&self, now: SystemTime) -> Vec<ClusterName> {
        let due = self.records.values().filter(|record| self.is_due(record));
        let mut turns: Vec<_> = due.map(|record| self.turn(record, now)).collect();
        turns.sort();
        turns.into_iter().map(|turn| turn.cluster).collect()
    }

    /// The decision for a shape, claiming nothing.
    #[must_use]
    pub fn plan(&self, cluster: &ClusterName, spec: Spec, now: SystemTime) -> ::placement::Decision {
        let mut record = match self.records.get(cluster) {
            Some(known) => Record {
                spec,
                ..Record::clone(known)
            },
            None => Record::new(cluster.clone(), String::new(), None, 0, spec),
        };
        self.settle_record(&mut record, now);
        self.decision(&record, now)
    }
}

pub(super) fn begin_release(member: &mut Member, reason: ReleaseReason) {
    if member.state != MemberState::Releasing {
        member.state = MemberState::Releasing;
        member.revision = UNNUMBERED;
        member.release_reason = Some(reason);
        member.confirmed = false;
    }
}

/// Whether a `SIPCluster` was made before another one.
pub(super) fn is_older(this: Option<SystemTime>, other: Option<SystemTime>) -> bool {
    this.zip(other).is_some_and(|(this, other)| this < other)
}

fn superseded(known: &Record, uid: &str) -> Error {
    Error::Superseded {
        what: format!("{} with uid {uid}", known.cluster),
        by: format!("uid {}", known.uid),
    }
}
