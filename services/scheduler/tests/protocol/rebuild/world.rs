//! A site's API server and its agent, whose scheduler loses its ledger at any time.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use placement::MemberState::{Bound, Releasing};
use prop::collection::vec;
use proptest::{prelude::*, test_runner::RngSeed};
use proto::inventory::v1 as wire;
use scheduler::{
    convert,
    error::Error,
    ledger::{Contents, Ledger},
    record::Record,
    site::SessionId,
};

use super::{lost, restored, seen};
use crate::fixtures::{
    CALLER, SITE, Stage, cluster, host, labelled, members, observed, released, with_status,
};

/// What a person or an agent does, or what befalls the ledger.
#[derive(Clone, Debug)]
enum Step {
    /// The agent declares a cluster, and writes the answer into its status.
    Apply { name: usize, workers: u32 },
    /// The agent writes hosts as the status says, reports them and confirms.
    Act { name: usize },
    /// The cluster is deleted: its agent asks for the release, and writes the answer into its status.
    Delete { name: usize },
    /// A backup is made.
    Backup,
    /// The scheduler decides again for all that wait.
    Retry,
    /// The ledger is lost; what there is of it is the backup.
    Lose { backup: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..2usize;
    prop_oneof![
        5 => (name.clone(), 0..4u32).prop_map(|(name, workers)| Step::Apply { name, workers }),
        5 => name.clone().prop_map(|name| Step::Act { name }),
        2 => name.prop_map(|name| Step::Delete { name }),
        3 => Just(Step::Backup),
        1 => Just(Step::Retry),
        2 => prop::bool::weighted(0.8).prop_map(|backup| Step::Lose { backup }),
    ]
}

/// A site's API server with its agent.
struct World {
    stage: Stage,
    session: SessionId,
    hosts: BTreeMap<String, wire::Host>,
    clusters: BTreeMap<String, Cluster>,
    backup: Contents,
    generation: i64,
    /// How many `SIPCluster`s there were: each has a uid of its own.
    made: u32,
}

/// A `SIPCluster`.
struct Cluster {
    uid: String,
    workers: u32,
    deleting: bool,
    status: wire::ObservedCluster,
}

impl World {
    async fn new() -> Self {
        let stage = Stage::empty();
        let hosts: BTreeMap<_, _> = (0..3)
            .map(|i| (format!("h{i}"), host(&format!("h{i}"))))
            .collect();
        let session = stage.sync(&hosts.values().cloned().collect::<Vec<_>>()).await;
        Self {
            backup: stage.ledger.load().unwrap(),
            stage,
            session,
            hosts,
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
            Step::Lose { backup } => {
                let ledger = if backup { restored(&self.backup) } else { lost() };
                self.rebuild(ledger).await;
            }
        }
    }

    async fn apply(&mut self, name: &str, workers: u32) {
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
            }
        });
        if cluster.deleting {
            return;
        }
        cluster.workers = workers;
        cluster.status.generation = self.generation;
        let uid = cluster.uid.clone();
        // Refused while a record of this very SIPCluster is being released.
        if let Ok(record) = self.stage.apply_as(name, &uid, self.generation, workers).await {
            self.write_status(&record);
        }
        self.report_cluster(name).await;
    }

    async fn delete(&mut self, name: &str) {
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
    async fn act(&mut self, name: &str) {
        let Some(known) = self.clusters.get(name) else {
            return;
        };
        let uid = known.uid.clone();
        let mut confirmed = BTreeMap::new();
        for member in &known.status.members {
            let wanted = member.host.clone().unwrap_or_default();
            let host = self.hosts.get_mut(&wanted.name).unwrap();
            let ours = host
                .labels
                .get(vocabulary::labels::CLUSTER_NAME)
                .is_none_or(|named| named == name);
            if !ours {
                continue;
            }
            if member.state() == wire::MemberState::Releasing {
                if host.release_mark < member.revision
                    || host.labels.contains_key(vocabulary::labels::CLUSTER_NAME)
                {
                    *host = released(&wanted.name, member.revision);
                }
                confirmed.insert(convert::host_id(&wanted).unwrap(), member.revision);
            } else {
                let mark = host.release_mark;
                *host = labelled(&wanted.name, name);
                host.release_mark = mark;
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

    /// The scheduler starts on another ledger, and the agent reports all there is.
    async fn rebuild(&mut self, ledger: Arc<dyn Ledger>) {
        self.stage = Stage::on(ledger);
        let hosts: Vec<_> = self.hosts.values().cloned().collect();
        let clusters: Vec<_> = self
            .clusters
            .values()
            .map(|cluster| cluster.status.clone())
            .collect();
        self.session = self.stage.sync_with(&hosts, &clusters, seen(&clusters)).await;
        let promised = self.promised();
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
                let taken: BTreeSet<_> = thief.members.keys().map(|id| id.name.name().to_owned()).collect();
                let lost: Vec<_> = promised.keys().filter(|name| taken.contains(*name)).collect();
                assert!(lost.is_empty(), "promised to others: {lost:?}");
                break;
            }
        }
        if let Some(releasing) = self.stage.release("thief").await {
            for id in releasing.members.keys() {
                let marked = released(id.name.name(), releasing.revision);
                self.hosts.insert(id.name.name().to_owned(), marked);
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
            self.apply(&name, workers).await;
            let Some(record) = self.stage.record(&name).await else {
                continue;
            };
            for (host, holder) in &promised {
                let held = record.members.keys().any(|id| id.name.name() == host);
                assert_eq!(
                    held,
                    *holder == name,
                    "{host} was promised to {holder}; {name} holds it: {held}"
                );
            }
            let promised = promised.values().filter(|holder| **holder == name).count();
            let stay = members(&record)
                .into_iter()
                .filter(|(_, state)| *state != Releasing);
            let wanted = promised.min(usize::try_from(workers).unwrap());
            assert!(
                stay.count() >= wanted,
                "{name} gives back what it wants: {record:?}"
            );
        }
    }

    /// Hosts that a status says are claimed or bound, with the cluster.
    fn promised(&self) -> BTreeMap<String, String> {
        let clusters = self.clusters.iter().filter(|(_, cluster)| !cluster.deleting);
        let members = clusters.flat_map(|(name, cluster)| {
            let kept = cluster.status.members.iter();
            kept.filter(|member| member.state() != wire::MemberState::Releasing)
                .map(move |member| (member.host.clone().unwrap_or_default().name, name.clone()))
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

    fn check(&self) {
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

    /// Everybody does what is left to do.
    async fn settle(&mut self) {
        for _ in 0..6 {
            for name in ["c0", "c1", "c2"] {
                match self
                    .clusters
                    .get(name)
                    .map(|cluster| (cluster.deleting, cluster.workers))
                {
                    Some((true, _)) => self.delete(name).await,
                    Some((false, workers)) => self.apply(name, workers).await,
                    None => {}
                }
                self.act(name).await;
                self.check();
            }
        }
        let records = self.stage.ledger.load().unwrap().records;
        for record in records.values() {
            let left: Vec<_> = members(record)
                .into_iter()
                .filter(|(_, state)| *state != Bound)
                .collect();
            assert_eq!(left, [], "{}: releases end and claims are bound", record.cluster);
        }
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
            }
            world.settle().await;
        });
    }
}
