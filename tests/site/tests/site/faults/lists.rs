//! Lists and watches that fail: what an agent has seen stays what it knows, and nothing is taken for gone.

use kube::api::{Patch, PatchParams};
use sandbox::region::Agent;
use serde_json::json;

use super::{Call, Fault, cells::Faulty};
use crate::fixtures::{AGENTS, Role, cluster, fleet, host, members};

const LISTED: [&str; 3] = ["baremetalhosts", "secrets", "sipclusters"];

fn asks(verb: &'static str, resource: &'static str) -> impl Fn(&Call) -> bool + Send + Sync {
    move |call| call.verb == verb && call.resource == resource
}

#[tokio::test]
async fn defect_11_a_list_that_fails_is_no_empty_list() {
    let mut site = Faulty::start(&AGENTS).await;
    site.stage.load(&fleet("lists", 4, 1, 1)).await;
    site.stage.site.create_tenant_namespace("lists").await.unwrap();
    let shop = cluster("lists", "shop")
        .role(Role::ControlPlane, 2)
        .role(Role::Worker, 2);
    site.stage.create(&shop).await;
    let before = members(&site.stage.ready(&shop).await);

    // A new process has to list everything, and is refused several times; meanwhile more is asked for.
    site.stage.agent(Agent::Cluster).kill9().await.unwrap();
    let refused: Vec<_> = LISTED
        .into_iter()
        .flat_map(|resource| {
            [
                Fault::Refused(500),
                Fault::Refused(429),
                Fault::Refused(410),
                Fault::Cut,
                Fault::Silent,
            ]
            .map(|fault| site.proxy().inject(asks("list", resource), 0, fault))
        })
        .collect();
    site.stage
        .edit(&shop, json!({"nodes": {"Worker": {"count": {"active": 3}}}}))
        .await;
    site.stage.agent(Agent::Cluster).restart().await.unwrap();
    let after = members(&site.stage.ready(&shop).await);
    for one in &refused {
        assert_eq!(one.times(), 1);
    }
    assert_eq!(after.len(), 5);
    let stayed = before
        .iter()
        .all(|member| after.iter().any(|now| now.uid == member.uid));
    assert!(stayed, "{before:?} {after:?}");
    assert_eq!(site.stage.labelled("lists", &shop).await.len(), 5);
}

#[tokio::test]
async fn watches_that_end_or_expire_miss_nothing() {
    let mut site = Faulty::start(&AGENTS).await;
    site.stage.load(&fleet("watches", 2, 2, 1)).await;
    site.stage.site.create_tenant_namespace("watches").await.unwrap();
    let mut wanted = 1;
    let shop = cluster("watches", "shop")
        .role(Role::ControlPlane, 1)
        .role(Role::Worker, 2);
    site.stage.create(&shop).await;
    site.stage.ready(&shop).await;
    for agent in [Agent::Cluster, Agent::LoadBalancer] {
        site.stage.agents_are_ready().await;
        let proxy = &site.proxies[&agent];
        // A watch that is silent is given up after 15 s: once is enough, the client is the same.
        let silent = (agent == Agent::Cluster).then_some(Fault::Silent);
        let faults = [
            Fault::Refused(410),
            Fault::Refused(429),
            Fault::Refused(500),
            Fault::Cut,
        ];
        for fault in faults.into_iter().chain(silent) {
            for resource in LISTED {
                proxy.inject(asks("watch", resource), 0, fault);
                proxy.end_watches(resource);
            }
            // What changes while nobody watches: a host that comes, a spec that grows or shrinks.
            let name = format!("{}-{fault:?}", agent.name())
                .to_lowercase()
                .replace(['(', ')'], "");
            let rack = format!("r-{name}");
            site.stage.load(&[host("watches", "cp", &rack, &name)]).await;
            wanted = 3 - wanted;
            let count = json!({"nodes": {"ControlPlane": {"count": {"active": wanted}}}});
            site.stage.edit(&shop, count).await;
            site.stage.ready(&shop).await;
            site.stage
                .hosts()
                .patch(
                    &format!("watches-{name}"),
                    &PatchParams::default(),
                    &Patch::Merge(json!({"metadata": {"labels": {"seen": "again"}}})),
                )
                .await
                .unwrap();
            let held = site.stage.labelled("watches", &shop).await;
            assert_eq!(held.len(), wanted + 2, "{agent:?} {fault:?}: {held:?}");
        }
    }
}
