//! Changes as a scheduler makes them, and the plainest ledger there is.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use placement::{ClusterName, HostId, HostName, MemberState, RoleName, Uid};
use proto::{inventory::v1 as inventory, placement::v1 as api};
use rand::{Rng as _, rngs::StdRng};
use scheduler::{
    convert,
    ledger::{
        Change, Commit, Contents, Decision, Fence, History, RecordKey, SiteFence, SitePosition,
        position::Cause,
    },
    record::{Member, Record},
};

/// When every log begins.
const BEGUN: Duration = Duration::from_hours(500_000);

/// A ledger as two maps and a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    commit: Commit,
    histories: BTreeMap<String, History>,
    records: BTreeMap<RecordKey, Arc<Record>>,
    removals: BTreeMap<String, Commit>,
    fences: BTreeMap<String, SiteFence>,
    pub(crate) log: Vec<api::Decision>,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The last commit.
    pub(crate) fn last(&self) -> Commit {
        self.commit
    }

    /// What it holds after a migration from a version in which every site had the same epoch.
    pub(crate) fn divided(&self, epoch: u64) -> Contents {
        let mut contents = self.contents();
        let sites = contents.removals.keys().cloned();
        let sites = sites.chain(contents.records.keys().map(|key| key.site.clone()));
        let sites: BTreeSet<String> = sites.chain(contents.fences.keys().cloned()).collect();
        contents.histories = sites
            .into_iter()
            .map(|site| (site, History::of_region(epoch)))
            .collect();
        contents
    }

    pub(crate) fn take(&mut self, change: &Change) {
        self.commit = change.commit();
        match change.clone() {
            Change::Raise {
                site,
                history,
                decision,
                commit: _,
            } => {
                self.histories.insert(site, history);
                self.log.push(convert::decision(&decision));
            }
            Change::Record {
                key,
                record,
                decision,
                commit,
            } => {
                self.records.remove(&key);
                match record {
                    Some(record) => drop(self.records.insert(key, record)),
                    None => drop(self.removals.insert(key.site, commit)),
                }
                self.log.push(convert::decision(&decision));
            }
            Change::Fence {
                site,
                fence,
                decision,
                commit: _,
            } => {
                self.fences.remove(&site);
                self.fences.extend(fence.map(|fence| (site, fence)));
                self.log.push(convert::decision(&decision));
            }
        }
    }

    pub(crate) fn contents(&self) -> Contents {
        Contents {
            commit: self.commit,
            histories: self.histories.clone(),
            records: self.records.clone(),
            removals: self.removals.clone(),
            fences: self.fences.clone(),
        }
    }
}

/// A cluster's name in site `a`.
pub(crate) fn key(name: &str) -> RecordKey {
    RecordKey {
        site: "a".to_owned(),
        cluster: ClusterName::new("tenant", name).unwrap(),
    }
}

/// A record with so many hosts, as of a revision.
pub(crate) fn record(name: &str, revision: u64, hosts: usize) -> Record {
    let wire = inventory::ClusterSpec {
        network_ids: vec![format!("net{}", revision % 3)],
        ..inventory::ClusterSpec::default()
    };
    let mut record = Record::new(
        key(name).cluster,
        format!("uid-{name}"),
        Some(SystemTime::UNIX_EPOCH + BEGUN),
        i64::try_from(revision).unwrap(),
        convert::parse_spec(wire, "spec").unwrap(),
    );
    record.revision = revision;
    for index in 0..hosts {
        let id = HostId {
            name: HostName::new("metal", format!("{name}-{index}")).unwrap(),
            uid: Uid::new(format!("uid-{index}")).unwrap(),
        };
        let member = Member {
            role: RoleName::new("Worker").unwrap(),
            ordinal: u32::try_from(index).ok(),
            domain: None,
            state: if index % 2 == 0 {
                MemberState::Bound
            } else {
                MemberState::Claimed
            },
            revision,
            addresses: BTreeMap::new(),
            bmc_address: format!("redfish://192.0.2.{}/redfish/v1/Systems/1", index % 256),
            failed_since: None,
            move_requested: false,
            unwell_since: None,
            suspended: false,
            replaces: None,
            release_reason: None,
            confirmed: index % 3 == 0,
        };
        record.members.insert(id, member);
    }
    record
}

/// Time goes by, and never so much that an entry is too old.
fn age(commit: Commit) -> Duration {
    Duration::from_secs(commit.number() % 1000)
}

/// The entry of a step, `age` after the log's beginning.
pub(crate) fn entry(commit: Commit, site: &str, age: Duration, bytes: usize) -> Decision {
    Decision {
        time: Some(SystemTime::UNIX_EPOCH + BEGUN + age),
        position: Some(SitePosition::new(1, commit.number())),
        commit,
        caller: "site/a/agent/cluster".to_owned(),
        site: site.to_owned(),
        action: "apply".to_owned(),
        reason: "r".repeat(bytes),
        ..Decision::default()
    }
}

/// A record of site `a` put (`Some`) or removed, on top of a model.
pub(crate) fn put(model: &Model, name: &str, hosts: Option<usize>) -> Change {
    put_in(model, "a", name, hosts)
}

/// The same in another site.
pub(crate) fn put_in(model: &Model, site: &str, name: &str, hosts: Option<usize>) -> Change {
    let commit = model.last().next();
    Change::Record {
        key: RecordKey {
            site: site.to_owned(),
            ..key(name)
        },
        record: hosts.map(|hosts| Arc::new(record(name, commit.number(), hosts))),
        decision: Box::new(Decision {
            cluster: Some(record(name, commit.number(), 0).id()),
            ..entry(commit, site, age(commit), 10)
        }),
        commit,
    }
}

/// Any change.
pub(crate) fn random(rng: &mut StdRng, model: &Model) -> Change {
    let commit = model.last().next();
    let decision = Box::new(entry(
        commit,
        if rng.random() { "a" } else { "b" },
        age(commit),
        rng.random_range(0..200),
    ));
    match rng.random_range(0..20) {
        0 => Change::Raise {
            site: format!("site-{}", rng.random_range(0..3)),
            history: History::default().raise(
                SitePosition::new(rng.random_range(1..4), rng.random_range(0..5000)),
                Cause::Lost { known: 3 },
                commit,
            ),
            decision,
            commit,
        },
        1 | 2 => Change::Fence {
            site: format!("site-{}", rng.random_range(0..3)),
            fence: rng.random_ratio(4, 5).then(|| SiteFence {
                highest: Fence {
                    lease: format!("lease-{commit}"),
                    transitions: rng.random_range(0..9),
                },
                retired: (0..rng.random_range(0..3))
                    .map(|index| format!("lease-{index}"))
                    .collect::<BTreeSet<_>>(),
            }),
            decision,
            commit,
        },
        _ => {
            let name = format!("c{}", rng.random_range(0..12));
            let hosts = [0, 1, 3, 7, 300][rng.random_range(0..5)];
            let mut key = key(&name);
            if rng.random_ratio(1, 3) {
                "b/with a slash".clone_into(&mut key.site);
            }
            Change::Record {
                key,
                record: rng
                    .random_ratio(4, 5)
                    .then(|| Arc::new(record(&name, commit.number(), hosts))),
                decision,
                commit,
            }
        }
    }
}
