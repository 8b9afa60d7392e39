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

use ::placement::{ClusterName, HostId, MemberState, Withheld};

use super::{
    cluster_existence::is_older,
    decide::{is_due, report, withheld},
    precedence::{Precedence, Trigger},
    staging::{Author, step_entry},
    state::Site,
};
use crate::{
    error::Error,
    ledger::{Change, Commit, commit::Permit},
    record::{ClusterId, Record, ReleaseReason, ordinals},
    spec::Spec,
};

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

/// The state after a step. Callers may get it once its commit is durable.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The record; `None` when the cluster holds nothing now.
    pub record: Option<Arc<Record>>,
    /// Commit that must be durable before the caller gets it.
    pub commit: Commit,
}

impl Outcome {
    /// The cluster holds nothing. A staged change may have caused that, so the caller gets it after that change is durable.
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
    /// [`Error::NotSynced`], [`Error::StaleGeneration`], [`Error::Releasing`], [`Error::Invalid`] when it wants more than a status has room
    /// for, [`Error::TooLarge`], [`Error::SiteFull`]; [`Error::Superseded`] when the site has
    /// the `SIPCluster` that the record is of, and not the one with this uid; [`Error::ClusterGone`] when it had that one.
    pub fn apply(&mut self, apply: Apply, author: &Author<'_>, permit: Permit) -> Result<Outcome, Error> {
        self.require_synced()?;
        let record = self.declared(apply)?;
        let before = self.claims.get(&record.cluster).map(|known| &known.spec);
        let members = record.spec.require_members(before, "spec");
        members.map_err(|violation| Error::Invalid(vec![violation]))?;
        self.existence.declare(&record.id(), author.now);
        let cluster = record.cluster.clone();
        let room = self.step_room(&cluster, permit.largest());
        let record = self.settled(record, room, author.now);
        let mut decided = self.decide_without(withheld(&record), &record, room, author.now);
        // One that waits is served in its turn, however often it is declared.
        let Precedence {
            must_wait,
            without_hosts,
        } = if self.is_refused(&cluster) {
            self.precedence(&record, &decided, room, Trigger::Declared, author.now)
        } else {
            Precedence::default()
        };
        if must_wait {
            decided = self.decide_later(&record, room, author.now);
        }
        let has_room = room.require_growth(&record, &decided).map_err(Error::from);
        let has_room = has_room.and_then(|()| self.require_room_for_record(&decided));
        self.refused.get_nothing(&without_hosts);
        let stored = has_room.and_then(|()| self.store(decided, author, permit));
        let outcome = stored.inspect_err(|_| {
            // Nothing is recorded of who was refused.
            if !self.claims.contains(&cluster) {
                self.existence.forget(&cluster);
            }
        })?;
        if let Some(record) = outcome.record.as_deref().filter(|_| !must_wait) {
            self.refused.decided(record);
        }
        // Whatever its status promised is its own now, or somebody else's.
        self.withdraw_promises(&cluster);
        Ok(outcome)
    }

    /// The record of a cluster with what is declared of it.
    fn declared(&self, apply: Apply) -> Result<Record, Error> {
        let Apply {
            cluster: name,
            uid,
            generation,
            created,
            spec,
        } = apply;
        let cluster = ClusterId { name, uid };
        self.existence.require_not_deleted(&cluster, created)?;
        let ClusterId { name, uid } = cluster;
        Ok(match self.claims.get(&name) {
            None => Record::new(name, uid, created, generation, spec),
            // An agent that was paused, or a call that was late, may speak for the one before.
            Some(known)
                if known.uid != uid
                    && (is_older(created, known.created) || self.existence.has_uid(&name, &known.uid)) =>
            {
                return Err(superseded(known, &uid));
            }
            Some(known) if known.uid != uid => {
                // The SIPCluster was made again: its hosts stay, what was releasing continues.
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
                    cluster: name.to_string(),
                });
            }
            Some(known) if generation < known.generation => {
                return Err(Error::StaleGeneration {
                    cluster: name.to_string(),
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
        })
    }

    /// Begins to release everything. Without a record, nothing is known of the cluster, so nothing is held. Before the site is
    /// synced a record may be older than what the cluster's status states, so it is not touched.
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
        let id = ClusterId {
            name: cluster.clone(),
            uid: uid.to_owned(),
        };
        let record = match self.claims.get(cluster) {
            Some(known) if known.uid != uid && !self.existence.has_uid(cluster, uid) => {
                return Err(superseded(known, uid));
            }
            Some(known) => Record {
                uid: id.uid,
                ..Record::clone(known)
            },
            None if self.existence.is_deleted(&id) => return Ok(Outcome::nothing(&permit)),
            // Hosts may carry its labels or be named by its status though the ledger was lost: they are released too.
            None => Record::new(id.name, id.uid, None, 0, Spec::default()),
        };
        let room = self.step_room(cluster, permit.largest());
        let mut record = self.settled(record, room, author.now);
        if record.members.is_empty() && !self.claims.contains(cluster) {
            return Ok(Outcome::nothing(&permit));
        }
        begin_release(&mut record, ReleaseReason::Deleted);
        let record = self.settled(record, room, author.now);
        let outcome = self.store(record, author, permit)?;
        self.withdraw_promises(cluster);
        Ok(outcome)
    }

    /// Records that the agent has written releases to the API server.
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
        let Some(known) = self.claims.get(cluster) else {
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
        let room = self.step_room(cluster, permit.largest());
        let record = self.settled(record, room, author.now);
        self.store(record, author, permit)
    }

    /// Compares a record with the inventory and the policy, and says what people should know of its members as they are
    /// now. [`Site::waiting`] returns the clusters for which another decision is due. While the site is not synced nothing changes, since
    /// a lost ledger may have issued the next revision already: the end of the snapshot settles every record.
    ///
    /// Its agent may have declared the cluster before this was reported, and asks again only when the record changes.
    pub fn settle(&mut self, cluster: &ClusterName, author: &Author<'_>, permit: Permit) {
        if self.require_synced().is_err() {
            return;
        }
        let Some(known) = self.claims.get(cluster) else {
            return;
        };
        let room = self.step_room(cluster, permit.largest());
        let mut record = self.settled(Record::clone(known), room, author.now);
        report(self.view(), &mut record, author.now);
        self.store_alone(record, author, permit);
    }

    /// Decides again for a cluster that waits.
    pub fn retry(&mut self, cluster: &ClusterName, author: &Author<'_>, permit: Permit) {
        if self.require_synced().is_err() {
            return;
        }
        let Some(known) = self.claims.get(cluster) else {
            return;
        };
        if !is_due(self.view(), known) || self.is_refusal_current(known) {
            return;
        }
        let room = self.step_room(cluster, permit.largest());
        let record = self.settled(Record::clone(known), room, author.now);
        let mut decided = self.decide_without(withheld(&record), &record, room, author.now);
        if let Err(error) = room.require_growth(&record, &decided) {
            if let Some(withheld) = self.lines.growth.line() {
                tracing::warn!(site = self.name, %cluster, %error, withheld, "the cluster gets no further hosts: its record would be too large");
            }
            decided = self.decide_without(Withheld::GROWTH, &record, room, author.now);
        }
        // Hosts may have changed since this cluster's turn began.
        let Precedence {
            must_wait,
            without_hosts,
        } = self.precedence(&record, &decided, room, Trigger::Retried, author.now);
        if must_wait {
            decided = self.decide_later(&record, room, author.now);
        }
        self.refused.get_nothing(&without_hosts);
        let Some(outcome) = self.store_alone(decided, author, permit) else {
            // It holds up nobody until something changes.
            self.refused.get_nothing(std::slice::from_ref(cluster));
            return;
        };
        if let Some(record) = outcome.record.as_deref().filter(|_| !must_wait) {
            self.refused.decided(record);
        }
    }

    /// Begins to release what was claimed for a `SIPCluster` that does not exist.
    pub fn forget(&mut self, cluster: &ClusterName, author: &Author<'_>, permit: Permit) -> Option<Outcome> {
        if !self.forgotten(author.now).contains(cluster) {
            return None;
        }
        let mut record = Record::clone(self.claims.get(cluster)?);
        if let Some(withheld) = self.lines.forgotten.line() {
            tracing::warn!(
                site = self.name,
                %cluster,
                uid = record.uid,
                withheld,
                "the site has no such SIPCluster; what was claimed for it is released"
            );
        }
        self.existence.set_missing(cluster);
        begin_release(&mut record, ReleaseReason::Orphaned);
        let room = self.step_room(cluster, permit.largest());
        let record = self.settled(record, room, author.now);
        self.store_alone(record, author, permit)
    }

    /// Begins to release a host whose labels name a `SIPCluster` that does not exist, or that is held for one; or, where the host
    /// has been made again, the members of such a cluster that it was. The
    /// watch shows its release; the cluster agent writes and confirms it, and only then the host is free.
    ///
    /// # Errors
    /// [`Error::NotSynced`], [`Error::NotFound`]; [`Error::NotOrphaned`] says why the host is none.
    pub fn release_orphan(
        &mut self,
        id: &HostId,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<Outcome, Error> {
        self.require_synced()?;
        let (mut record, released) = match self.former_record(id) {
            Some(former) => former,
            None => (self.orphaned_record(id)?, vec![id.clone()]),
        };
        record.releasing = true;
        record.refusal = None;
        record.reports.clear();
        for id in &released {
            if let Some(member) = record.members.get_mut(id) {
                member.begin_release(ReleaseReason::Orphaned);
            }
        }
        self.existence.set_missing(&record.cluster);
        let room = self.step_room(&record.cluster, permit.largest());
        let record = self.settled(record, room, author.now);
        self.store(record, author, permit)
    }

    /// [`Site::store`] for a step that no caller requested: one that is too large is not made, and the log says so.
    fn store_alone(&mut self, record: Record, author: &Author<'_>, permit: Permit) -> Option<Outcome> {
        let stored = self.store(record, author, permit);
        stored
            .inspect_err(|error| {
                if let Some(withheld) = self.lines.undone.line() {
                    tracing::error!(site = self.name, action = author.action, %error, withheld, "a change was dropped: it is too large");
                }
            })
            .ok()
    }

    /// Stages the record if it differs from the one before, and returns what the caller may get, and when.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    fn store(&mut self, mut record: Record, author: &Author<'_>, permit: Permit) -> Result<Outcome, Error> {
        ordinals::assign(&mut record.members);
        let known = self.claims.get(&record.cluster);
        if let Some(known) = known
            && **known == record
        {
            return Ok(Outcome {
                commit: self.history().commit(known.revision),
                record: Some(Arc::clone(known)),
            });
        }
        let before = known.map(|known| &**known);
        self.step_room(&record.cluster, permit.largest())
            .require(&record)?;
        let cluster = record.id();
        let is_over = record.releasing && record.members.is_empty();
        let key = self.key(&cluster.name);
        let entry = step_entry(&self.name, before, &record, author);
        let history = *self.history();
        let mut staged = None;
        let commit = permit.stage(|commit| {
            let at = history.at(commit);
            number(&mut record, at.revision());
            staged = Some(record).filter(|_| !is_over).map(Arc::new);
            Change::Record {
                key,
                record: staged.clone(),
                decision: Box::new(entry.placed(at, commit)),
                commit,
            }
        })?;
        let revision = history.at(commit).revision();
        self.positions.issue(revision);
        self.install(&cluster, staged.clone(), revision);
        Ok(Outcome {
            record: staged,
            commit,
        })
    }
}

/// Begins to release all that a record holds.
fn begin_release(record: &mut Record, reason: ReleaseReason) {
    record.releasing = true;
    record.refusal = None;
    record.reports.clear();
    for member in record.members.values_mut() {
        member.begin_final_release(reason);
    }
}

/// Gives the step's number to the record and to every claim and release that it began.
fn number(record: &mut Record, revision: u64) {
    record.revision = revision;
    for member in record.members.values_mut() {
        member.number(revision);
    }
}

fn superseded(known: &Record, uid: &str) -> Error {
    Error::Superseded {
        what: format!("{} with uid {uid}", known.cluster),
        by: format!("uid {}", known.uid),
    }
}
