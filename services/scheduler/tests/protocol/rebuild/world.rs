//! A site's API server and its agent, whose scheduler loses its ledger at any time.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use placement::{HostId, MemberState::Bound};
use prop::collection::vec;
use proptest::{prelude::*, test_runner::RngSeed};
use proto::inventory::v1 as wire;
use scheduler::{
    convert,
    error::Error,
    ledger::{Contents, Ledger},
    record::{Record, ReleaseReason},
    site::SessionId,
};

use super::{
    lost, people, restored, seen,
    steps::{HOSTS, Step, step},
};
use crate::{
    fixtures::{CALLER, SITE, Stage, cluster, host, labelled, observed, spec, with_status},
    replacement::{GRACE, report},
};

/// A site's API server with its agent.
pub(super) struct World {
    pub(super) stage: Stage,
    pub(super) session: SessionId,
    pub(super) hosts: BTreeMap<String, wire::Host>,
    /// Hosts that are not there.
    pub(super) away: BTreeMap<String, wire::Host>,
    /// How many of them came back under another uid.
    pub(super) restored: u32,
    pub(super) clusters: BTreeMap<String, Cluster>,
    backup: Contents,
    generation: i64,
    /// How many `SIPCluster`s there were: each has a uid of its own.
    made: u32,
}

/// A `SIPCluster`.
pub(super) struct Cluster {
    uid: String,
    pub(super) workers: u32,
    pub(super) deleting: bool,
    pub(super) status: wire::ObservedCluster,
    /// What the scheduler has answered last: a status names each host once, and an answer all incarnations of it.
    answered: Vec<wire::ObservedMember>,
}

impl World {
    async fn new() -> Self {
        let stage = Stage::empty();
        let hosts: BTreeMap<_, _> = (0..HOSTS)
            .map(|i| (format!("h{i}"), host(&format!("h{i}"))))
            .collect();
        let session = stage.sync(&hosts.values().cloned().collect::<Vec<_>>()).await;
        Self {
            backup: stage.ledger.load().unwrap(),
            stage,
            session,
            hosts,
            away: BTreeMap::new(),
            restored: 0,
            clusters: BTreeMap::new(),
            generation: 0,
            made: 0,
        }
    }

    async fn take(&mut self, step: &Step) {
        match *step {
            Step::Apply { name, workers } => self.apply(&format!("c{name}"), workers).await,
            Step::Act { name } => self.act(&format!("c{name}")).await,
            Step::Delete { name } => self.delete(&format!("c{name}")).await,
            Step::Backup => self.backup = self.stage.ledger.load().unwrap(),
            Step::Retry => self.stage.retry().await,
            Step::Pass => {
                self.stage.pass(GRACE);
                report(&self.stage).await;
            }
            Step::Touch { host, touch } => self.touch(host, touch).await,
            Step::Lose { backup } => {
                if backup {
                    self.rebuild(restored(&self.backup), &[], &[]).await;
                } else {
                    let (moved, absent) = (self.moved_off(), self.absent());
                    self.rebuild(lost(), &moved, &absent).await;
                }
            }
        }
    }

    pub(super) async fn apply(&mut self, name: &str, workers: u32) {
        self.generation += 1;
        self.made += 1;
        let uid = format!("uid-{}", self.made);
        let cluster = self.clusters.entry(name.to_owned()).or_insert_with(|| {
            let mut status = observed(name);
            status.r#ref.as_mut().unwrap().uid.clone_from(&uid);
            Cluster {
                uid,
                workers,
                deleting: false,
                status,
                answered: Vec::new(),
            }
        });
        if cluster.deleting {
            return;
        }
        cluster.workers = workers;
        cluster.status.generation = self.generation;
        let uid = cluster.uid.clone();
        // Refused while a record of this very SIPCluster is being released.
        let mut spec = spec(workers);
        spec.roles[0].replace_after_error = Some(GRACE.try_into().unwrap());
        let told = self.stage.apply_spec(name, &uid, self.generation, spec).await;
        if let Ok(record) = told {
            self.write_status(&record);
        }
        self.report_cluster(name).await;
    }

    pub(super) async fn delete(&mut self, name: &str) {
        let Some(cluster) = self.clusters.get_mut(name) else {
            return;
        };
        cluster.deleting = true;
        let uid = cluster.uid.clone();
        let told = self
            .stage
            .region
            .release(SITE, &self::cluster(name), &uid, CALLER)
            .await;
        if let Some(record) = told.unwrap().record {
            self.write_status(&record);
            self.report_cluster(name).await;
            return;
        }
        let gone = self.clusters.remove(name).unwrap();
        let changes = wire::HostChanges {
            deleted_clusters: gone.status.r#ref.into_iter().collect(),
            ..wire::HostChanges::default()
        };
        self.stage
            .region
            .report(SITE, &self.session, scheduler::convert::changes(SITE, changes))
            .await
            .unwrap();
    }

    fn write_status(&mut self, record: &Record) {
        let site = self.stage.region.site(SITE).unwrap();
        let epoch = site.read().history().epoch();
        if let Some(cluster) = self.clusters.get_mut(record.cluster.name()) {
            cluster.status = wire::ObservedCluster {
                generation: cluster.status.generation,
                ..with_status(record, epoch)
            };
            cluster.answered.clone_from(&cluster.status.members);
            people::name_each_once(&mut cluster.status);
        }
    }

    async fn report_cluster(&self, name: &str) {
        let changes = wire::HostChanges {
            clusters: self
                .clusters
                .get(name)
                .map(|cluster| cluster.status.clone())
                .into_iter()
                .collect(),
            ..wire::HostChanges::default()
        };
        self.stage
            .region
            .report(SITE, &self.session, scheduler::convert::changes(SITE, changes))
            .await
            .unwrap();
    }

    /// What the agent's host writes do, and nothing that they would not: see `agents/cluster/src/reconcile/hosts.rs`.
    pub(super) async fn act(&mut self, name: &str) {
        let Some(known) = self.clusters.get(name) else {
            return;
        };
        let uid = known.uid.clone();
        let mut confirmed = BTreeMap::new();
        for member in &known.answered {
            let wanted = member.host.clone().unwrap_or_default();
            let releasing = member.state() == wire::MemberState::Releasing;
            let host = self.hosts.get_mut(&wanted.name);
            let Some(host) = host.filter(|host| people::is_same(host, &wanted)) else {
                if releasing {
                    confirmed.insert(convert::host_id(&wanted).unwrap(), member.revision);
                }
                continue;
            };
            let labels = host.labels.get(vocabulary::labels::CLUSTER_NAME);
            let (is_labelled, is_used) = (labels.is_some(), host.consumer.is_some());
            if labels.is_some_and(|named| named != name) {
                continue;
            }
            if releasing {
                if is_labelled && is_used {
                    continue;
                }
                if host.release_mark < member.revision || is_labelled {
                    people::unlabel(host, member.revision);
                }
                confirmed.insert(convert::host_id(&wanted).unwrap(), member.revision);
            } else if !is_used && host.release_mark < member.revision {
                people::label(host, &labelled(&wanted.name, name));
            }
        }
        let hosts: Vec<_> = self.hosts.values().cloned().collect();
        self.stage.report(&self.session, &hosts).await;
        // One that has not declared itself yet does not speak for the record of an earlier one of the name.
        let confirmed = self
            .stage
            .region
            .confirm(SITE, &cluster(name), &uid, &confirmed, CALLER)
            .await;
        assert!(
            matches!(confirmed, Ok(_) | Err(Error::Superseded { .. })),
            "{confirmed:?}"
        );
    }

    /// The scheduler starts on another ledger, and the agent reports all there is. `moved`: members that must stay, since
    /// their replacements are not bound. `absent`: members that must keep their places though their hosts are not there. A backup may be
    /// of a time when one of these had failed.
    async fn rebuild(
        &mut self,
        ledger: Arc<dyn Ledger>,
        moved: &[(String, HostId)],
        absent: &[(String, HostId)],
    ) {
        self.stage = Stage::on(ledger);
        let hosts: Vec<_> = self.hosts.values().cloned().collect();
        let clusters: Vec<_> = self
            .clusters
            .values()
            .map(|cluster| cluster.status.clone())
            .collect();
        self.session = self.stage.sync_with(&hosts, &clusters, seen(&clusters)).await;
        // Of those that are there: a backup that is restored may know of a later release of one that is not.
        let mut promised = self.promised();
        promised.retain(|id, _| {
            let host = self.hosts.get(id.name.name());
            host.is_some_and(|host| people::is_same(host, &convert::host_ref(id)))
        });
        let mut places = BTreeMap::new();
        for name in self.clusters.keys() {
            let own = promised.iter().filter(|(_, holder)| *holder == name);
            let own: Vec<&HostId> = own.map(|(id, _)| id).collect();
            places.insert(name.clone(), self.places(name, &own));
        }
        // It may be quicker than the agents.
        self.stage.retry().await;

        // A stranger takes all it can get, and that is nothing that was promised.
        let most = u32::try_from(self.hosts.len()).unwrap();
        for want in (1..=most).rev() {
            let thief = self
                .stage
                .apply("thief", i64::from(most - want) + 1, want)
                .await
                .unwrap();
            if !thief.members.is_empty() {
                let taken: BTreeSet<_> = thief.members.keys().collect();
                let lost: Vec<_> = promised.keys().filter(|id| taken.contains(id)).collect();
                assert!(lost.is_empty(), "promised to others: {lost:?}");
                break;
            }
        }
        if let Some(releasing) = self.stage.release("thief").await {
            for id in releasing.members.keys() {
                if let Some(host) = self.hosts.get_mut(id.name.name()) {
                    people::unlabel(host, releasing.revision);
                }
            }
            let hosts: Vec<_> = self.hosts.values().cloned().collect();
            self.stage.report(&self.session, &hosts).await;
            self.stage.confirm(&releasing).await;
        }

        // Who declares itself again keeps what it was promised.
        let names: Vec<(String, u32)> = self
            .clusters
            .iter()
            .filter(|(_, cluster)| !cluster.deleting)
            .map(|(name, cluster)| (name.clone(), cluster.workers))
            .collect();
        for (name, workers) in names {
            let reasons = self.reasons(&name);
            self.apply(&name, workers).await;
            let Some(record) = self.stage.record(&name).await else {
                continue;
            };
            for (id, reason) in &reasons {
                let now = record.members.get(id).and_then(|member| member.release_reason);
                let now = now.map(ReleaseReason::as_str);
                assert_eq!(now, Some(&**reason), "why {name} gives {id} back");
            }
            for (host, holder) in &promised {
                let held = record.members.contains_key(host);
                assert_eq!(
                    held,
                    *holder == name,
                    "{host} was promised to {holder}; {name} holds it: {held}"
                );
            }
            for (_, old) in moved.iter().filter(|(holder, _)| *holder == name) {
                let state = record.members.get(old).map(|member| member.state);
                assert_eq!(state, Some(Bound), "{old} goes before its replacement is bound");
            }
            for (_, host) in absent.iter().filter(|(holder, _)| *holder == name) {
                assert!(
                    record.members.contains_key(host),
                    "{name} forgets {host}: {record:?}"
                );
            }
            let wanted = places.get(&name).copied().unwrap_or_default();
            let wanted = wanted.min(usize::try_from(workers).unwrap());
            assert!(
                people::staying(&record) >= wanted,
                "{name} releases what it wants: {record:?}"
            );
        }
    }

    /// Members whose hosts are not there under any uid, with their clusters.
    fn absent(&self) -> Vec<(String, HostId)> {
        let promised = self.promised().into_iter();
        let absent = promised.filter(|(id, _)| !self.hosts.contains_key(id.name.name()));
        absent.map(|(id, name)| (name, id)).collect()
    }

    /// Hosts that a status says are claimed or bound, with the cluster.
    fn promised(&self) -> BTreeMap<HostId, String> {
        let clusters = self.clusters.iter().filter(|(_, cluster)| !cluster.deleting);
        let members = clusters.flat_map(|(name, cluster)| {
            let kept = cluster.status.members.iter();
            kept.filter(|member| member.state() != wire::MemberState::Releasing)
                .map(move |member| {
                    let host = member.host.clone().unwrap_or_default();
                    (convert::host_id(&host).unwrap(), name.clone())
                })
        });
        let mut promised = BTreeMap::new();
        for (host, name) in members {
            assert_eq!(
                promised.insert(host.clone(), name),
                None,
                "{host} is in two statuses"
            );
        }
        promised
    }

    pub(super) fn check(&self) {
        let records = self.stage.ledger.load().unwrap().records;
        let mut held: Vec<_> = records
            .values()
            .flat_map(|record| record.members.keys())
            .collect();
        let all = held.len();
        held.sort();
        held.dedup();
        assert_eq!(held.len(), all, "a host is held twice");
        self.promised();
    }
}

/// So many as `SOAK_REBUILDS` says, or a few; their seed is printed.
fn histories() -> ProptestConfig {
    let given = ProptestConfig::default();
    let seed = match given.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one("histories"),
    };
    let soak = std::env::var("SOAK_REBUILDS").ok();
    let cases = soak.and_then(|cases| cases.parse().ok()).unwrap_or(300);
    println!("{cases} histories, PROPTEST_RNG_SEED={seed}");
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..given
    }
}

proptest! {
    #![proptest_config(histories())]

    #[test]
    fn a_lost_ledger_loses_and_doubles_no_promise(steps in vec(step(), 1..30)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new().await;
            for step in &steps {
                world.take(step).await;
                world.check();
                world.check_failures().await;
            }
            world.settle().await;
        });
    }
}
