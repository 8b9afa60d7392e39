//! The ledger as data: what is on disk, and what is queued for it.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex},
};

use placement::MemberState;
use proto::ledger::v1 as disk;
use scheduler::{
    ledger::{self, Change, Contents, History},
    record::Record,
};

use crate::{
    messages::Placement,
    world::{self, Member},
};

/// A record of the ledger.
#[derive(Clone, PartialEq)]
pub(crate) struct Held(pub(crate) Arc<Record>);

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members: Vec<_> = self
            .0
            .members
            .iter()
            .map(|(id, member)| {
                let confirmed = if member.confirmed { ", confirmed" } else { "" };
                format!(
                    "{id} {:?} {} at {:?}{confirmed}",
                    member.state,
                    member.revision,
                    member.addresses.values()
                )
            })
            .collect();
        let releasing = if self.0.releasing { ", releasing" } else { "" };
        write!(
            f,
            "{} generation {} at {}{releasing} {members:?}",
            self.0.uid, self.0.generation, self.0.revision
        )
    }
}

impl Hash for Held {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Record {
            cluster: _,
            uid,
            created: _,
            generation,
            spec,
            members,
            refusal,
            reports,
            conflicts,
            releasing,
            revision,
        } = &*self.0;
        (uid, generation, spec.roles().first().map(|role| role.want)).hash(state);
        (releasing, revision).hash(state);
        (refusal, reports, conflicts).hash(state);
        for (id, member) in members {
            (id, member.state as u8, member.revision, member.confirmed).hash(state);
            (member.failed_since, member.move_requested, &member.replaces).hash(state);
            (member.unwell_since, member.suspended, &member.addresses).hash(state);
        }
    }
}

impl Held {
    /// Its members.
    pub(crate) fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.0.members.iter().map(|(id, member)| {
            let address = member.addresses.values().next().copied();
            Member {
                host: world::host_key(id),
                revision: member.revision,
                releasing: member.state == MemberState::Releasing,
                address: address.map(world::address),
            }
        })
    }

    /// What `GetPlacement` answers, with the uid of the cluster.
    pub(crate) fn placement(&self, epoch: u64) -> (u8, Placement) {
        let placement = Placement {
            epoch,
            revision: self.0.revision,
            members: self.members().collect(),
        };
        (world::uid_of(&self.0.uid), placement)
    }
}

/// Records by cluster.
pub(crate) type Records = BTreeMap<u8, Held>;

/// What is on disk.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(crate) struct Ledger {
    /// Number of the last commit.
    pub(crate) revision: u64,
    pub(crate) history: History,
    /// Commit of the last removal of a record.
    pub(crate) removed: u64,
    pub(crate) records: Records,
    pub(crate) fence: Option<i64>,
}

/// A change that is queued for the disk.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) enum Staged {
    Record {
        cluster: u8,
        record: Option<Held>,
        revision: u64,
    },
    Fence {
        transitions: Option<i64>,
        revision: u64,
    },
    Raise {
        history: History,
        revision: u64,
    },
}

impl Ledger {
    /// Clusters that release hosts.
    pub(crate) fn releasing(&self) -> impl Iterator<Item = u8> + '_ {
        let releasing = |held: &Held| held.members().any(|member| member.releasing);
        let records = self.records.iter().filter(move |(_, held)| releasing(held));
        records.map(|(cluster, _)| *cluster)
    }

    /// Makes one change durable.
    pub(crate) fn commit(&mut self, change: Staged) {
        match change {
            Staged::Record {
                cluster,
                record,
                revision,
            } => {
                self.revision = revision;
                self.records.remove(&cluster);
                if record.is_none() {
                    self.removed = revision;
                }
                self.records.extend(record.map(|record| (cluster, record)));
            }
            Staged::Fence {
                transitions,
                revision,
            } => {
                self.revision = revision;
                self.fence = transitions;
            }
            Staged::Raise { history, revision } => {
                self.revision = revision;
                self.history = history;
            }
        }
    }
}

/// Takes what the writer would store.
#[derive(Debug, Default)]
pub(crate) struct Queue(Mutex<Vec<Change>>);

impl Queue {
    /// What was to be stored.
    pub(crate) fn take(self) -> impl Iterator<Item = Staged> {
        self.0.into_inner().unwrap().into_iter().map(staged)
    }
}

impl ledger::Ledger for Queue {
    fn load(&self) -> Result<Contents, ledger::Error> {
        Ok(Contents::default())
    }

    fn commit(&self, batch: &[Change]) -> Result<(), ledger::Error> {
        self.0.lock().unwrap().extend_from_slice(batch);
        Ok(())
    }

    fn read_log(&self, _query: ledger::Query<'_>) -> Result<ledger::Page, ledger::Error> {
        Ok(ledger::Page::default())
    }

    fn export(
        &self,
        _take: &mut dyn FnMut(disk::Entry) -> Result<(), ledger::Error>,
    ) -> Result<(), ledger::Error> {
        unreachable!("the model has no operator")
    }

    fn import(
        &self,
        _entries: &mut dyn Iterator<Item = Result<disk::Entry, ledger::Error>>,
    ) -> Result<(), ledger::Error> {
        unreachable!("the model has no operator")
    }
}

fn staged(change: Change) -> Staged {
    match change {
        Change::Record {
            key,
            record,
            decision: _,
            commit,
        } => Staged::Record {
            cluster: world::cluster_index(&key.cluster),
            record: record.map(Held),
            revision: commit.number(),
        },
        Change::Fence {
            site: _,
            fence,
            decision: _,
            commit,
        } => Staged::Fence {
            transitions: fence.map(|fence| fence.highest.transitions),
            revision: commit.number(),
        },
        Change::Raise {
            site: _,
            history,
            decision: _,
            commit,
        } => Staged::Raise {
            history,
            revision: commit.number(),
        },
    }
}
