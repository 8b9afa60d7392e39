//! The scheduler is killed between its promise and the labels: it keeps what it has promised.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use sandbox::{
    region::{Agent, HOSTS_NAMESPACE},
    sip_clusters::{CLUSTER_NAME, holder},
};

use crate::fixtures::{AGENTS, Cluster, Member, Role, Stage, cluster, fleet, held, members, sip_labels};

fn shop(name: &str, port: u16) -> Cluster {
    cluster("killed", name)
        .role(Role::ControlPlane, 2)
        .role(Role::Worker, 3)
        .balanced(port)
}

async fn claimed(stage: &Stage, cluster: &Cluster) -> Vec<Member> {
    let object = stage
        .until(cluster, "hold five hosts", |object| members(object).len() == 5)
        .await;
    members(&object)
}

async fn kill_and_restart(stage: &mut Stage) {
    stage.region_mut().scheduler().kill9().await.unwrap();
    stage.region_mut().scheduler().restart().await.unwrap();
    stage.region_mut().scheduler_is_ready().await.unwrap();
}

/// Each cluster has exactly the hosts, by uid, that it was promised; so no host is in two clusters.
async fn promises_were_kept(stage: &Stage, promises: &BTreeMap<String, Vec<Member>>) {
    let hosts = stage.hosts_of("killed").await;
    let mut uids = BTreeSet::new();
    for (name, promised) in promises {
        let whole = format!("killed/{name}");
        let of: BTreeMap<String, String> = hosts
            .iter()
            .filter_map(|host| Some((host, holder(host)?)))
            .filter(|(_, (of, _))| *of == whole)
            .map(|(host, (_, role))| (host.uid().unwrap(), role))
            .collect();
        let expected = promised
            .iter()
            .map(|member| (member.uid.clone(), member.role.clone()))
            .collect();
        assert_eq!(of, expected, "{whole}");
        for uid in of.into_keys() {
            assert!(uids.insert(uid), "a host is in two clusters");
        }
    }
}

/// How often each host was labelled, as the API server has it.
fn labellings(stage: &Stage) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for entry in stage.asked_by_agents() {
        let named = entry
            .request_object
            .pointer("/metadata/labels")
            .is_some_and(|labels| labels[CLUSTER_NAME].is_string());
        let object = entry.object_ref.unwrap_or_default();
        let is_host = object.resource == "baremetalhosts";
        if is_host && entry.verb == "patch" && entry.response_status.code == 200 && named {
            *counts.entry(object.name).or_default() += 1;
        }
    }
    counts
}

#[tokio::test]
async fn a_scheduler_killed_before_labels_keeps_its_choice() {
    // Without load balancers the labels wait, so that there is time to kill.
    let mut stage = Stage::start("site-a", &[Agent::Cluster]).await;
    stage.load(&fleet("killed", 4, 2, 3)).await;
    stage.site.create_tenant_namespace("killed").await.unwrap();
    let first = shop("first", 30_410);
    stage.create(&first).await;
    let promised = claimed(&stage, &first).await;
    assert!(
        promised.iter().all(|member| member.state == "Claimed"),
        "{promised:?}"
    );

    stage.region_mut().scheduler().kill9().await.unwrap();
    // Asked for while nobody can answer: it must get others.
    let second = shop("second", 30_420);
    stage.create(&second).await;
    kill_and_restart(&mut stage).await;

    let others = claimed(&stage, &second).await;
    assert_eq!(held(&claimed(&stage, &first).await), held(&promised));
    for host in stage.hosts_of("killed").await {
        assert!(sip_labels(&host).is_empty());
    }
    stage.start_agent(Agent::LoadBalancer, &[HOSTS_NAMESPACE]).await;
    stage.ready(&first).await;
    stage.ready(&second).await;

    let promises = BTreeMap::from([("first".to_owned(), promised), ("second".to_owned(), others)]);
    promises_were_kept(&stage, &promises).await;
    let labellings = labellings(&stage);
    assert_eq!(labellings.len(), 10, "{labellings:?}");
    assert!(labellings.values().all(|times| *times == 1), "{labellings:?}");
    stage.nothing_was_forbidden();
}

#[tokio::test]
async fn a_scheduler_killed_at_any_time_breaks_no_promise() {
    let mut stage = Stage::start("site-a", &AGENTS).await;
    stage.load(&fleet("killed", 4, 2, 3)).await;
    stage.site.create_tenant_namespace("killed").await.unwrap();
    let mut promises = BTreeMap::new();
    for (name, port) in [("first", 30_430), ("second", 30_440), ("third", 30_450)] {
        let shop = shop(name, port);
        stage.create(&shop).await;
        // The status holds the promise; the labels are under way.
        promises.insert(name.to_owned(), claimed(&stage, &shop).await);
        kill_and_restart(&mut stage).await;
    }
    for (name, port) in [("first", 30_430), ("second", 30_440), ("third", 30_450)] {
        stage.ready(&shop(name, port)).await;
    }
    promises_were_kept(&stage, &promises).await;
    stage.nothing_was_forbidden();
}
