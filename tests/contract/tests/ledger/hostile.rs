//! One site's change that etcd does not take ends nobody's term and hinders no other site.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use placement::ClusterName;
use proto::inventory::v1 as wire;
use runtime::readiness::Readiness;
use scheduler::{
    error::Error,
    ledger::{Commit, Fence, etcd::EtcdArgs},
    policy::Policies,
    region::{DurablePlacement, Region, Reporter},
    site::Apply,
    term::{Elected, Standing, Supervisor, Terms},
};
use tokio::{sync::watch, task::AbortHandle};

use crate::backends::{Cluster, arguments};

const PATIENCE: Duration = Duration::from_secs(30);

/// A scheduler without its port, on a real etcd.
struct Stage {
    terms: Terms,
    supervised: AbortHandle,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.supervised.abort();
    }
}

impl Stage {
    async fn start(cluster: &Cluster, arguments: EtcdArgs) -> Self {
        let backend = Elected::new(cluster.endpoints.clone(), arguments, "one:1".to_owned());
        let gate = Readiness::default().gate("ledger");
        let policies = watch::channel(Policies::new()).1;
        let (supervisor, terms) = Supervisor::new(Arc::new(backend), policies, gate);
        let supervised = tokio::spawn(supervisor.run(tokio_util::sync::CancellationToken::new()));
        let mut standing = terms.watch();
        let serving = tokio::time::timeout(PATIENCE, standing.wait_for(Standing::serves)).await;
        drop(serving.unwrap().unwrap());
        Self {
            terms,
            supervised: supervised.abort_handle(),
        }
    }

    fn region(&self) -> Region {
        self.terms.region().unwrap()
    }

    /// Whether the term is still the one of before.
    fn serves_as(&self, commit: u64) -> bool {
        self.region().committer().staged() >= Commit::new(commit)
            && !self.region().committer().ending().is_cancelled()
    }
}

fn fence(lease: &str) -> Fence {
    Fence {
        lease: lease.to_owned(),
        transitions: 1,
    }
}

fn host(index: usize) -> wire::Host {
    wire::Host {
        r#ref: Some(wire::HostRef {
            namespace: "metal".to_owned(),
            name: format!("h{index}"),
            uid: format!("uid-{index}-{}", "x".repeat(200)),
        }),
        provisioning_state: wire::ProvisioningState::Available.into(),
        operational_status: wire::OperationalStatus::Ok.into(),
        // A record is larger by it, and the status of a SIPCluster is not.
        bmc_address: format!("redfish://192.0.2.1/{}", "x".repeat(1_000)),
        ..wire::Host::default()
    }
}

async fn report(region: &Region, site: &str, hosts: usize) -> Reporter {
    let reporter = region
        .open_session(site, &fence("lease"), None, "test")
        .await
        .unwrap();
    let changes = wire::HostChanges {
        hosts: (0..hosts).map(host).collect(),
        ..wire::HostChanges::default()
    };
    let session = &reporter.session().id;
    region
        .report(site, session, scheduler::convert::changes(site, changes))
        .await
        .unwrap();
    region.complete_snapshot(site, session).await.unwrap();
    reporter
}

async fn apply(region: &Region, site: &str, name: &str, workers: u32) -> Result<DurablePlacement, Error> {
    let spec = wire::ClusterSpec {
        roles: vec![wire::Role {
            name: "Worker".to_owned(),
            label_selector: Some(wire::LabelSelector::default()),
            active: workers,
            ..wire::Role::default()
        }],
        network_ids: Vec::new(),
        other_bytes: 0,
    };
    let apply = Apply {
        cluster: ClusterName::new("tenant", name).unwrap(),
        uid: format!("uid-{name}"),
        generation: 1,
        created: None,
        spec: scheduler::convert::parse_spec(spec, "spec").unwrap(),
    };
    region.apply(site, apply, "test").await
}

#[test]
fn a_hello_with_a_huge_lease_uid_ends_no_term() {
    let cluster = Cluster::start(1);
    cluster.runtime.block_on(async {
        let stage = Stage::start(&cluster, arguments("/hello")).await;
        let region = stage.region();
        let _other = report(&region, "b", 3).await;

        let long = "x".repeat(2 << 20);
        for lease in [long.as_str(), "", "with\nnewline", &"y".repeat(129)] {
            let refused = region
                .open_session("a", &fence(lease), None, "test")
                .await
                .map(drop);
            let error = refused.expect_err("no Lease has such a uid");
            assert!(matches!(error, Error::Invalid(_)), "{error}");
            assert!(
                error.to_string().len() < 1000,
                "{} bytes",
                error.to_string().len()
            );
        }
        let refused = region.open_session(&long, &fence("lease"), None, "test").await;
        assert!(matches!(refused.map(drop), Err(Error::Invalid(_))));

        apply(&region, "b", "one", 1).await.unwrap();
        assert!(stage.serves_as(1), "the term goes on");
    });
}

#[test]
fn a_change_that_etcd_refuses_is_refused_alone() {
    let cluster = Cluster::start(1);
    cluster.runtime.block_on(async {
        // The scheduler was told more than etcd takes: what is weighed and found good is refused.
        let told = EtcdArgs {
            etcd_max_request_bytes: 64 << 20,
            etcd_max_txn_ops: 100_000,
            ..arguments("/refused")
        };
        let stage = Stage::start(&cluster, told).await;
        let region = stage.region();
        let first = report(&region, "a", 2_000).await;
        let _other = report(&region, "b", 200).await;
        apply(&region, "a", "before", 3).await.unwrap();

        let mut others = tokio::task::JoinSet::new();
        for number in 0..40 {
            let region = region.clone();
            others.spawn(async move {
                let name = format!("c{number}");
                let told = apply(&region, "b", &name, 2).await.unwrap();
                (name, told.record.unwrap())
            });
        }
        let (huge, on_top) = tokio::join!(
            apply(&region, "a", "huge", 1_480),
            apply(&region, "a", "on-top", 1)
        );

        let error = huge.map(drop).expect_err("etcd does not take it");
        println!("{error}");
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        if let Err(error) = on_top {
            assert!(
                matches!(error, Error::SiteReset { .. } | Error::NotSynced { .. }),
                "{error}"
            );
        }
        let promised: BTreeMap<_, _> = others.join_all().await.into_iter().collect();
        assert_eq!(promised.len(), 40);

        // The site's agent is cut off and reports again; what was durable is as it was.
        assert!(first.session().superseded.is_cancelled());
        let begun = Instant::now();
        let _again = report(&region, "a", 2_000).await;
        println!("reported again in {:?}", begun.elapsed());
        let kept = apply(&region, "a", "before", 3).await.unwrap();
        assert_eq!(kept.record.unwrap().members.len(), 3);
        let after = apply(&region, "a", "after", 10).await.unwrap();
        assert_eq!(after.record.unwrap().members.len(), 10);

        // All of that is what a next scheduler finds.
        let ledger = stage.terms.ledger().unwrap();
        let contents = tokio::task::spawn_blocking(move || ledger.load())
            .await
            .unwrap()
            .unwrap();
        for (name, record) in &promised {
            let mut stored = contents.records.iter().filter(|(key, _)| key.site == "b");
            assert!(
                stored.any(|(_, stored)| stored == record),
                "{name} is not stored as promised"
            );
        }
        let of_a = contents.records.keys().filter(|key| key.site == "a");
        let names: Vec<_> = of_a.map(|key| key.cluster.name().to_owned()).collect();
        assert!(!names.contains(&"huge".to_owned()), "{names:?}");
        assert!(stage.serves_as(1), "the term goes on");
        let ledger = stage.terms.ledger().unwrap();
        let log = tokio::task::spawn_blocking(move || {
            ledger.decisions(Commit::MAX, 1000, &|entry| entry.action == "refused")
        })
        .await
        .unwrap()
        .unwrap();
        assert!(log.iter().all(|entry| entry.site == "a"), "{log:?}");
        assert!(log[log.len() - 1].reason.contains("apply"), "{log:?}");
    });
}

#[test]
fn a_batch_with_too_many_operations_is_stored_in_smaller_ones() {
    let cluster = Cluster::start(1);
    cluster.runtime.block_on(async {
        let told = EtcdArgs {
            etcd_max_txn_ops: 60_000,
            ..arguments("/operations")
        };
        let stage = Stage::start(&cluster, told).await;
        let region = stage.region();
        let _reporter = report(&region, "a", 400).await;
        let mut applying = tokio::task::JoinSet::new();
        for number in 0..200 {
            let region = region.clone();
            applying.spawn(async move { apply(&region, "a", &format!("c{number}"), 2).await.map(drop) });
        }
        for applied in applying.join_all().await {
            applied.unwrap();
        }
        assert!(stage.serves_as(200), "the term goes on");
    });
}
