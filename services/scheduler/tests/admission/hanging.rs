//! Calls that do not end.

use std::time::{Duration, Instant};

use proto::{
    inventory::v1::Revision,
    placement::v1::{GetPlacementRequest, PlanClusterRequest},
};
use tokio::{task::JoinSet, time::timeout};

use crate::fixtures::{Served, agent, cluster, operator, reader, spec};

/// How long another identity's call may take.
const GOAL: Duration = Duration::from_secs(2);
/// How long the calls may take to be answered, on a machine that does something else.
const PATIENCE: Duration = Duration::from_secs(30);
/// More calls than the scheduler once served at once, for all identities together.
const CALLS: usize = 2_100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_for_ever_do_not_refuse_others() {
    let _alone = crate::ALONE.lock().await;
    let served = Served::start().await;
    let _site = served.report("b").await;
    let connection = || served.placements(&agent("a", "load-balancer"));
    let clients = [connection(), connection(), connection()];
    let mut calls = JoinSet::new();
    for mut client in clients.into_iter().cycle().take(CALLS) {
        calls.spawn(async move {
            let request = GetPlacementRequest {
                site: "a".to_owned(),
                cluster: Some(cluster("one")),
                at_least: Some(Revision {
                    epoch: 1,
                    revision: 1 << 63,
                }),
            };
            client.get_placement(request).await.unwrap_err()
        });
    }
    // They have come, or been answered.
    let mut answered = 0;
    let all = async {
        while calls.join_next().await.is_some() {
            answered += 1;
        }
    };
    let _ = timeout(PATIENCE, all).await;
    println!("{answered} of {CALLS} calls for revision 2^63 were answered");

    for caller in [operator("ana"), reader("ben"), agent("b", "cluster")] {
        let request = PlanClusterRequest {
            site: "b".to_owned(),
            cluster: Some(cluster("planned")),
            spec: Some(spec(3)),
        };
        let started = Instant::now();
        let planned = timeout(GOAL, async {
            served.placements(&caller).plan_cluster(request).await
        });
        planned
            .await
            .unwrap()
            .unwrap_or_else(|status| panic!("{caller}: {status}"));
        println!("beside them PlanCluster of {caller} took {:?}", started.elapsed());
    }
    assert_eq!(
        answered, CALLS,
        "no revision of the ledger is that high: nobody waits for it"
    );
}
