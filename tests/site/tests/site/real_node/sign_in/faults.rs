//! Faults while people log in: pods that end without a warning, and a directory that takes the next bind password only.

use std::time::Duration;

use api::conditions::AUTH_READY;
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt as _, api::DeleteParams, runtime::watcher};
use sandbox::{node, wait};

use super::{
    BIND_PASSWORDS, LOGINS, Scene, finish, form, is_accepted, is_ready,
    load::{Failed, Load},
    requested_logins, tenant,
};
use crate::fixtures::{PATIENCE, metrics_at};

/// After the pods are ready, until every node routes to these only: a second or two on an idle machine.
const ROUTED: Duration = Duration::from_secs(5);
/// Logins that succeed between two faults, so that none is taken for the other.
const BETWEEN: u64 = 20;
/// Where pods tell what whoever scrapes them reads.
const METRICS_PORT: u16 = 5558;

/// Waits until the containers of so many pods were started again, and every pod is ready.
async fn started_again(scene: &Scene, count: usize) {
    let restarted = |pod: &&&Pod| {
        let status = pod.status.as_ref();
        let containers = status.and_then(|status| status.container_statuses.as_ref());
        let mut containers = containers.into_iter().flatten();
        containers.any(|container| container.restart_count > 0)
    };
    let complete = |pods: &[&Pod]| {
        pods.iter().filter(restarted).count() == count && pods.iter().all(|pod| is_ready(pod))
    };
    let what = "a container to start again";
    wait::until_all(scene.api(), watcher::Config::default(), what, PATIENCE, complete)
        .await
        .unwrap();
}

/// What a pod of a provider tells of itself.
async fn is_scraped(pod: &Pod) {
    let address = pod.status.as_ref().unwrap().pod_ip.as_ref().unwrap();
    let metrics = metrics_at(&format!("{address}:{METRICS_PORT}")).await;
    assert!(metrics.contains("\nhttp_requests_total{"), "{metrics}");
}

/// A time, as the load counts it, in which logins may fail.
struct Fault {
    what: &'static str,
    from: Duration,
    to: Duration,
}

/// The pods are complete after a fault: nodes have learned of them before the next one.
async fn over(load: &Load, what: &'static str, from: Duration) -> Fault {
    load.report(what);
    let to = load.elapsed() + ROUTED;
    while load.elapsed() < to {
        load.go_on(1).await;
    }
    load.go_on(BETWEEN).await;
    Fault { what, from, to }
}

/// Logins that ended at another time have not failed.
fn failed_only_in(faults: &[Fault], failed: &[Failed]) {
    let mut others: Vec<&Failed> = failed.iter().collect();
    for Fault { what, from, to } in faults {
        let (of_it, rest): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|failed| (*from..*to).contains(&failed.at));
        println!("{what}: {} logins failed", of_it.len());
        for Failed { at, why } in &of_it {
            assert!(!why.contains("a token of another"), "{why}");
            let (later, why) = (
                at.saturating_sub(*from),
                why.chars().take(160).collect::<String>(),
            );
            println!("  {:.1} s later {why}", later.as_secs_f64());
        }
        others = rest;
    }
    assert!(others.is_empty(), "{others:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_fail_only_until_a_fault_is_noticed() {
    if let Some(why) = node::obstacle() {
        println!("not shown here: {why}");
        return;
    }
    let logins = requested_logins().unwrap_or(LOGINS);
    let people = usize::try_from(logins).unwrap() * 2 + 1;
    let mut scene = Box::pin(Scene::start(people)).await;
    let shop = scene.shop();
    scene.stage.create(&shop).await;
    let provider = scene.provider(&shop).await;
    let tenant = tenant(&scene).await;
    let (name, password) = scene.people.names(0);
    let person = (name.as_str(), password.as_str());
    let first = finish(&provider, &form(&provider).await, person).await;
    is_scraped(&scene.pods().await[0]).await;
    let load = Load::start(&provider, &scene.people, logins, 0.5);
    load.go_on(BETWEEN).await;
    let mut faults = Vec::new();

    for (number, pod) in (1..).zip(scene.pods().await) {
        let from = load.elapsed();
        scene.kill(pod);
        started_again(&scene, number).await;
        faults.push(over(&load, "a pod whose process is killed", from).await);
    }
    for pod in scene.pods().await {
        let (pods, from) = (scene.api::<Pod>(), load.elapsed());
        let (name, at_once) = (pod.name_any(), DeleteParams::default().grace_period(0));
        pods.delete(&name, &at_once).await.unwrap();
        scene.complete(&name).await;
        faults.push(over(&load, "a pod that is deleted without grace", from).await);
    }

    // The account that searches has the next password at once, and the pods have the first one. Connections to pods before may be dead.
    let provider = provider.anew().unwrap();
    let (before, began) = (scene.hashes().await, form(&provider).await);
    let from = load.elapsed();
    let next = &BIND_PASSWORDS[1..];
    let people = scene.people.clone();
    scene
        .directory
        .set_bind_passwords(&people.all(), next)
        .await
        .unwrap();
    let condition = AUTH_READY.as_str();
    scene
        .stage
        .condition_is(&shop, condition, "False", "DirectoryRefusesBind")
        .await;
    scene.set_bind_password(next[0]).await;
    let what = "a directory that takes the next password only";
    scene.rolled_out(&before, what).await;
    faults.push(over(&load, what, from).await);
    finish(&provider, &began, person).await;
    scene.stage.ready(&shop).await;

    failed_only_in(&faults, &load.end().await);
    // What was issued before is good until it expires.
    for token in [first, finish(&provider, &form(&provider).await, person).await] {
        is_accepted(&tenant, &token).await;
    }
    scene.stage.nothing_was_forbidden();
}
