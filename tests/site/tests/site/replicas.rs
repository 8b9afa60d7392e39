//! Several replicas of an agent: one acts, and another goes on when it ends, however it ends.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use sandbox::region::{AGENTS_NAMESPACE, Agent, AgentProcess, Replica, SiteConfig};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::{
    faults::{ApiProxy, Call, Fault},
    fixtures::{Cluster, PATIENCE, Role, Stage, cluster, fleet},
};

/// Short enough to wait for it, long enough for a busy machine.
const LEASE: Duration = Duration::from_secs(6);

fn shop(name: &str) -> Cluster {
    cluster("replicas", name)
        .role(Role::ControlPlane, 1)
        .role(Role::Worker, 1)
}

fn config(stage: &Stage) -> SiteConfig {
    let mut config = stage.region.site_config(&stage.site);
    config.not_installed.push("loadBalancer".to_owned());
    config
}

async fn replica(stage: &Stage, name: &str) -> AgentProcess {
    let config = config(stage);
    let started = stage
        .region
        .start_replica(&stage.site, Agent::Cluster, &config, name, LEASE);
    let mut replica = started.await.unwrap();
    replica.is_ready().await.unwrap();
    replica
}

async fn lease(stage: &Stage) -> LeaseSpec {
    let leases: Api<Lease> = Api::namespaced(stage.site.client(), AGENTS_NAMESPACE);
    leases.get(Agent::Cluster.program()).await.unwrap().spec.unwrap()
}

/// Who holds the Lease, and at which election.
async fn holder(stage: &Stage) -> (String, i32) {
    let spec = lease(stage).await;
    let holder = spec.holder_identity.unwrap_or_default();
    (holder, spec.lease_transitions.unwrap_or_default())
}

async fn is_held_by(stage: &Stage, name: &str) -> i32 {
    let held = async {
        loop {
            match holder(stage).await {
                (holder, transitions) if holder == name => return transitions,
                _ => sleep(Duration::from_millis(50)).await,
            }
        }
    };
    timeout(PATIENCE, held).await.unwrap()
}

async fn becomes_ready(stage: &Stage, name: &str) {
    stage.create(&shop(name)).await;
    stage.ready(&shop(name)).await;
}

#[tokio::test]
async fn one_replica_acts_and_another_takes_over() {
    let stage = Stage::start("site-a", &[]).await;
    stage.load(&fleet("replicas", 3, 2, 2)).await;
    stage.site.create_tenant_namespace("replicas").await.unwrap();

    let mut first = replica(&stage, "first").await;
    let mut second = replica(&stage, "second").await;
    becomes_ready(&stage, "one").await;
    assert_eq!(holder(&stage).await, ("first".to_owned(), 0));

    // Killed: nobody says so, and the Lease has to end.
    first.process().kill9().await.unwrap();
    let elected = is_held_by(&stage, "second").await;
    assert_eq!(elected, 1);
    becomes_ready(&stage, "two").await;

    // Paused past its time: on its return it finds that another acts, and ends without having acted.
    let mut third = replica(&stage, "third").await;
    second.process().pause().unwrap();
    assert_eq!(is_held_by(&stage, "third").await, 2);
    becomes_ready(&stage, "three").await;
    second.process().resume().unwrap();
    let ended = async {
        loop {
            if let Some(status) = second.process().ended().await.unwrap() {
                return status;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let status = timeout(PATIENCE, ended).await.unwrap();
    assert!(!status.success(), "it was not asked to end");
    // The last it prints is one sentence, and no backtrace, also where RUST_BACKTRACE is set.
    let last = second.process().log_tail(1);
    let sentence = "error: the Lease sip-system/sip-cluster-agent ";
    assert!(last.starts_with(sentence) && last.lines().count() == 1, "{last}");

    // Stopped: it gives the Lease up, and nobody waits for its end.
    let mut fourth = replica(&stage, "fourth").await;
    let stopped = third.process().stop(PATIENCE).await.unwrap();
    assert!(stopped.unwrap().success(), "{}", third.process().log_tail(200));
    let (left, _) = holder(&stage).await;
    assert!(left.is_empty() || left == "fourth", "it was left to {left}");
    is_held_by(&stage, "fourth").await;
    fourth.is_ready().await.unwrap();
    stage.delete(&shop("one")).await;
    stage.gone(&shop("one")).await;
    stage.nothing_was_forbidden();
}

/// Why a replica is not ready, if it answers that. A client of the API server would repeat the request.
async fn unready(replica: &AgentProcess) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", replica.health_port()))
        .await
        .ok()?;
    let request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 503").then(|| body.to_owned())
}

#[tokio::test]
async fn a_standby_is_not_ready_before_it_has_checked_the_ledger() {
    let mut stage = Stage::start("site-a", &[]).await;
    let _first = replica(&stage, "first").await;
    stage.region_mut().scheduler().kill9().await.unwrap();
    let config = config(&stage);
    let started = stage
        .region
        .start_replica(&stage.site, Agent::Cluster, &config, "second", LEASE);
    let mut second = started.await.unwrap();
    let stands_by = async {
        while !unready(&second)
            .await
            .is_some_and(|why| why.contains("ledger has not been checked"))
        {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, stands_by).await.unwrap();
    assert_eq!(holder(&stage).await.0, "first");
    stage.region_mut().scheduler().restart().await.unwrap();
    second.is_ready().await.unwrap();
    assert_eq!(holder(&stage).await.0, "first");
}

#[tokio::test]
async fn a_lease_outlasts_a_slow_check_after_the_election() {
    let stage = Stage::start("site-a", &[]).await;
    let proxy = ApiProxy::to(&stage.site).await;
    // The agent checks host namespaces before its election and after it; the second list takes longer than the Lease.
    let lists = |call: &Call| call.verb == "list" && call.resource == "sipclusters";
    let slow = proxy.inject(lists, 1, Fault::HeldBefore);
    let config = config(&stage);
    let first = Replica {
        name: "first",
        lease: LEASE,
        api_server: proxy.url(),
    };
    let started = stage.region.start_as(&stage.site, Agent::Cluster, &config, first);
    let mut first = started.await.unwrap();
    slow.happens().await;
    let _second = replica(&stage, "second").await;
    let renewed = async {
        loop {
            let spec = lease(&stage).await;
            let (acquired, renewed) = (spec.acquire_time.unwrap().0, spec.renew_time.unwrap().0);
            if renewed.duration_since(acquired).unsigned_abs() > LEASE {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        renewed = timeout(PATIENCE, renewed) => renewed.expect("renewed during the check"),
        ended = first.process().ended() => panic!("the agent has ended: {ended:?}"),
    }
    slow.open();
    first.is_ready().await.unwrap();
    assert_eq!(holder(&stage).await, ("first".to_owned(), 0));
}
