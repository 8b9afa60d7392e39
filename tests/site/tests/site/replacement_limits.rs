//! How many hosts are replaced at once, and from when the time of grace is counted.

use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams};
use sandbox::region::Agent;
use serde_json::{Value, json};

use crate::fixtures::{
    AGENTS, Role, Stage, cluster, fleet, held, host, members, on_shared_site, written_statuses,
};

const WORKERS: u32 = 20;
/// A tenth of them.
const AT_ONCE: usize = 2;

#[test]
fn twenty_failed_workers_are_replaced_two_at_a_time() {
    on_shared_site("tenth", async |stage| {
        stage.load(&fleet("tenth", WORKERS, 0, 1)).await;
        let shop = cluster("tenth", "shop")
            .role(Role::Worker, WORKERS)
            .balanced(31_060);
        stage.create(&shop).await;
        let before = held(&members(&stage.ready(&shop).await));
        let spares: Vec<_> = (0..WORKERS)
            .map(|at| host("tenth", "worker", &format!("s{at}"), &format!("s{at}")))
            .collect();
        stage.load(&spares).await;
        let failed = Patch::Merge(json!({"metadata": {"annotations": {"sip.airshipit.org/failed": ""}}}));
        for name in before.keys() {
            let patched = stage.hosts().patch(name, &PatchParams::default(), &failed).await;
            patched.unwrap();
        }

        stage
            .until(&shop, "hold only others, all of them bound", |object| {
                let members = members(object);
                members.len() == before.len()
                    && members
                        .iter()
                        .all(|member| member.state == "Bound" && !before.contains_key(&member.name))
            })
            .await;

        let pending = |status: &Vec<Value>| {
            let claimed = |member: &&Value| member["state"] == "Claimed" && member["replaces"].is_string();
            status.iter().filter(claimed).count()
        };
        let most = written_statuses(stage, &shop).iter().map(pending).max();
        assert_eq!(most, Some(AT_ONCE));
    });
}

/// How long the cluster bears an error.
const GRACE: Duration = Duration::from_secs(10);
/// Everything is started anew this long after the error.
const RESTART: Duration = Duration::from_secs(7);

#[tokio::test]
async fn the_grace_time_survives_restarts() {
    let mut stage = Stage::start("site-a", &AGENTS).await;
    stage.load(&fleet("grace", 2, 0, 1)).await;
    stage.site.create_tenant_namespace("grace").await.unwrap();
    let shop = cluster("grace", "shop")
        .role(Role::Worker, 1)
        .with(
            "/nodes/Worker/replaceAfterError",
            json!(format!("{}s", GRACE.as_secs())),
        )
        .balanced(31_070);
    stage.create(&shop).await;
    let before = held(&members(&stage.ready(&shop).await))
        .into_keys()
        .next()
        .unwrap();
    let error = Patch::Merge(json!({"status": {"operationalStatus": "error", "errorMessage": "power"}}));
    let since = Instant::now();
    stage
        .hosts()
        .patch_status(&before, &PatchParams::default(), &error)
        .await
        .unwrap();

    tokio::time::sleep(RESTART.saturating_sub(since.elapsed())).await;
    stage.region_mut().scheduler().kill9().await.unwrap();
    for agent in AGENTS {
        stage.agent(agent).kill9().await.unwrap();
    }
    stage.region_mut().scheduler().restart().await.unwrap();
    stage.region_mut().scheduler_is_ready().await.unwrap();
    for agent in [Agent::Cluster, Agent::LoadBalancer] {
        stage.agent(agent).restart().await.unwrap();
    }
    let again = Instant::now();

    stage
        .until(&shop, "hold the other host", |object| {
            // The old one leaves later: a new agent first makes sure that no late claim can take it.
            members(object)
                .iter()
                .any(|member| member.name != before && member.state == "Bound")
        })
        .await;
    assert!(
        since.elapsed() >= GRACE,
        "it was replaced after {:?}",
        since.elapsed()
    );
    assert!(
        again.elapsed() < GRACE,
        "the time of grace began anew: replaced {:?} after the restart",
        again.elapsed()
    );
}
