//! Changes as the region makes them, and what a ledger holds after each.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use futures::FutureExt as _;
use placement::{ClusterName, HostId, HostName, MemberState, RoleName, Uid};
use proto::placement::v1 as api;
use rand::{Rng as _, rngs::StdRng, seq::IndexedRandom as _};
use scheduler::{
    convert,
    ledger::{
        Change, Commit, Contents, Decision, Fence, History, Ledger, RecordKey, Refusal, SiteFence,
        SitePosition, commit, position::Cause, redb::Redb,
    },
    record::{ClusterId, Member, Record},
    spec::Spec,
};

use crate::disk::Disk;

/// Most changes in one batch.
const BATCH: usize = 6;

/// A workload: what is submitted, batch by batch.
pub(crate) struct Submitted {
    changes: Vec<Change>,
    batches: Vec<usize>,
}

/// How far a run came.
#[derive(Debug)]
pub(crate) struct Log {
    /// Changes that the committer has called durable.
    pub(crate) acknowledged: usize,
}

impl Submitted {
    pub(crate) fn random(rng: &mut StdRng, count: usize) -> Self {
        let mut commit = Commit::NONE;
        let mut changes = Vec::new();
        let mut batches = Vec::new();
        for _ in 0..count {
            let batch = rng.random_range(1..=BATCH);
            batches.push(batch);
            for _ in 0..batch {
                commit = commit.next();
                changes.push(change(rng, commit));
            }
        }
        Self { changes, batches }
    }

    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Opens a ledger on the disk and submits every batch, until the power is cut or all is done.
    pub(crate) fn run(&self, disk: &Disk) -> Log {
        let mut log = Log { acknowledged: 0 };
        let Ok(ledger) = Redb::on(disk.clone()) else {
            return log;
        };
        let Ok(mut durable) = ledger.load() else {
            return log;
        };
        let (committer, writer) = commit::committer(durable.commit);
        let mut writing = pin!(writer.run(&ledger, &mut durable, &no_refusal));
        let mut context = Context::from_waker(Waker::noop());
        let mut rest = &self.changes[..];
        for batch in &self.batches {
            let (now, later) = rest.split_at(*batch);
            rest = later;
            for change in now {
                let permit = committer.reserve().now_or_never().unwrap().unwrap();
                permit.stage(|_| change.clone()).unwrap();
            }
            let stopped = matches!(writing.as_mut().poll(&mut context), Poll::Ready(Err(_)));
            let durable = *committer.watch().borrow();
            log.acknowledged = self.changes.partition_point(|change| change.commit() <= durable);
            if stopped || disk.is_cut() {
                break;
            }
        }
        log
    }

    /// After how many changes a ledger would hold what this one does.
    pub(crate) fn find(&self, ledger: &Redb, context: &str) -> usize {
        let contents = ledger.load().unwrap_or_else(|error| panic!("{context}: {error}"));
        let found = contents.commit;
        let count = self.changes.partition_point(|change| change.commit() <= found);
        let (expected, decisions) = replay(&self.changes[..count]);
        assert_eq!(found, expected.commit, "{context}: no such commit was submitted");
        assert!(
            contents == expected,
            "{context}: at {found} the contents differ:\n{contents:?}\n{expected:?}"
        );
        let log = ledger.decisions(Commit::MAX, usize::MAX, &|_| true).unwrap();
        assert!(
            log.into_iter().rev().eq(decisions),
            "{context}: at {found} the log of decisions differs"
        );
        count
    }
}

/// A file takes every change that fits on its disk.
fn no_refusal(refusal: &Refusal<'_>) -> Commit {
    panic!("{refusal:?}");
}

/// The naive ledger.
fn replay(changes: &[Change]) -> (Contents, Vec<api::Decision>) {
    let mut contents = Contents::default();
    let mut decisions = Vec::new();
    for change in changes {
        contents.commit = change.commit();
        match change.clone() {
            Change::Raise {
                site,
                history,
                decision,
                commit: _,
            } => {
                contents.histories.insert(site, history);
                decisions.push(convert::decision(&decision));
            }
            Change::Fence {
                site,
                fence,
                decision,
                commit: _,
            } => {
                match fence {
                    Some(fence) => contents.fences.insert(site, fence),
                    None => contents.fences.remove(&site),
                };
                decisions.push(convert::decision(&decision));
            }
            Change::Record {
                key,
                record,
                decision,
                commit,
            } => {
                contents.records.remove(&key);
                match record {
                    Some(record) => drop(contents.records.insert(key, record)),
                    None => drop(contents.removals.insert(key.site, commit)),
                }
                decisions.push(convert::decision(&decision));
            }
        }
    }
    (contents, decisions)
}

fn change(rng: &mut StdRng, commit: Commit) -> Change {
    if rng.random_ratio(1, 25) {
        let shown = SitePosition::new(rng.random_range(1..4), rng.random_range(1..1000));
        return Change::Raise {
            site: ["a", "b"].choose(rng).map(|site| (*site).to_owned()).unwrap(),
            history: History::default().raise(shown, Cause::Lost { known: 3 }, commit),
            decision: Box::new(Decision {
                commit,
                action: "raise".to_owned(),
                ..Decision::default()
            }),
            commit,
        };
    }
    let revision = commit.number();
    if rng.random_ratio(1, 25) {
        return fence(rng, commit);
    }
    let cluster = ClusterName::new("tenant", format!("c{}", rng.random_range(0..8))).unwrap();
    let reference = ClusterId {
        name: cluster.clone(),
        uid: format!("uid-{revision}"),
    };
    let record = rng
        .random_ratio(4, 5)
        .then(|| Arc::new(record(rng, cluster.clone(), revision)));
    Change::Record {
        key: RecordKey {
            site: ["a", "b"].choose(rng).map(|site| (*site).to_owned()).unwrap(),
            cluster,
        },
        record,
        decision: Box::new(Decision {
            position: Some(SitePosition::new(1, revision)),
            commit,
            caller: "site/a/agent/cluster".to_owned(),
            site: "a".to_owned(),
            cluster: Some(reference),
            action: "apply".to_owned(),
            reason: "r".repeat(rng.random_range(0..300)),
            ..Decision::default()
        }),
        commit,
    }
}

fn fence(rng: &mut StdRng, commit: Commit) -> Change {
    let fence = SiteFence {
        highest: Fence {
            lease: format!("lease-{commit}"),
            transitions: rng.random_range(0..100),
        },
        retired: (0..rng.random_range(0..3))
            .map(|index| format!("retired-{index}"))
            .collect(),
    };
    Change::Fence {
        site: ["a", "b"].choose(rng).map(|site| (*site).to_owned()).unwrap(),
        fence: rng.random_ratio(4, 5).then_some(fence),
        decision: Box::new(Decision {
            commit,
            action: "fence".to_owned(),
            ..Decision::default()
        }),
        commit,
    }
}

/// From a record that fits a page to one that takes several.
fn record(rng: &mut StdRng, cluster: ClusterName, revision: u64) -> Record {
    let generation = i64::try_from(revision).unwrap();
    let mut record = Record::new(
        cluster,
        format!("uid-{revision}"),
        None,
        generation,
        Spec::default(),
    );
    record.revision = revision;
    for index in 0..*[0, 3, 3, 40].choose(rng).unwrap() {
        let id = HostId {
            name: HostName::new("metal", format!("h{index}")).unwrap(),
            uid: Uid::new(format!("uid-{index}")).unwrap(),
        };
        let member = Member {
            role: RoleName::new("Worker").unwrap(),
            ordinal: Some(index),
            domain: None,
            state: *[MemberState::Claimed, MemberState::Bound, MemberState::Releasing]
                .choose(rng)
                .unwrap(),
            revision,
            addresses: BTreeMap::new(),
            bmc_address: "redfish://192.0.2.1/redfish/v1/Systems/1".repeat(rng.random_range(0..5)),
            failed_since: None,
            move_requested: false,
            unwell_since: None,
            suspended: false,
            replaces: None,
            release_reason: None,
            confirmed: rng.random(),
        };
        record.members.insert(id, member);
    }
    record
}
