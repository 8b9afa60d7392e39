//! `SIPCluster`s that the API server accepts and that no program expects, beside good ones.

use std::fmt::Write as _;

use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use sandbox::region::HOSTS_NAMESPACE;
use serde_json::json;

use crate::fixtures::{AGENTS, Role, Stage, cluster, fleet, on_shared_site};

mod memory;

/// Objects in the namespace `hostile`: an amount of more than 32 bits, an `override` that no parser of JSON reads to its end, and a list
/// that is longer than anything that is acted on.
fn hostile() -> String {
    let balancer = r#""image":"haproxy:2.8","nodeInterfaceId":"oam-ipv4""#;
    let deep = format!("{}1{}", r#"{"a":"#.repeat(300), "}".repeat(300));
    let attachments: Vec<String> = (0..50_000).map(|n| format!("\"n{n}\"")).collect();
    let mut items = String::new();
    for (name, field) in [
        (
            "large",
            r#""resources":{"limits":{"memory":4294967296}}"#.to_owned(),
        ),
        ("deep", format!(r#""override":{deep}"#)),
        (
            "long",
            format!(r#""networkAttachments":[{}]"#, attachments.join(",")),
        ),
    ] {
        let separator = if items.is_empty() { "" } else { "," };
        write!(
            items,
            r#"{separator}{{"apiVersion":"airship.airshipit.org/v1","kind":"SIPCluster","metadata":{{"namespace":"hostile","name":"{name}"}},"spec":{{"nodes":{{}},"services":{{"loadBalancerControlPlane":[{{{balancer},{field}}}]}}}}}}"#
        )
        .unwrap();
    }
    format!(r#"{{"apiVersion":"v1","kind":"List","items":[{items}]}}"#)
}

/// They are there before the agents list clusters, as after a restart of every agent.
#[tokio::test]
async fn hostile_clusters_leave_the_others_readable() {
    let mut stage = Stage::start("site-a", &[]).await;
    for namespace in ["hostile", "good"] {
        stage.site.create_tenant_namespace(namespace).await.unwrap();
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), hostile()).unwrap();
    let path = file.path().display().to_string();
    stage.kubectl(&["create", "--validate=strict", "-f", &path]).await;
    for agent in AGENTS {
        stage.start_agent(agent, &[HOSTS_NAMESPACE]).await;
    }
    stage.agents_are_ready().await;

    stage.load(&fleet("good", 3, 1, 2)).await;
    let good = cluster("good", "shop")
        .role(Role::ControlPlane, 1)
        .role(Role::Worker, 2)
        .balanced(30_420);
    stage.create(&good).await;
    stage.ready(&good).await;

    for name in ["deep", "long"] {
        let name = format!("sipcluster/{name}");
        let refused = [
            "wait",
            "-n",
            "hostile",
            &name,
            "--for=condition=Scheduled=False",
            "--timeout=60s",
        ];
        stage.kubectl(&refused).await;
    }
    let accepted = [
        "wait",
        "-n",
        "hostile",
        "sipcluster/large",
        "--for=condition=Scheduled",
        "--timeout=60s",
    ];
    stage.kubectl(&accepted).await;
}

/// Agents keep a few of them in memory; the list that is written is the whole one.
#[test]
fn of_many_finalizers_only_ours_comes_and_goes() {
    on_shared_site("many-finalizers", async |stage| {
        let held = cluster("many-finalizers", "held");
        let clusters = stage.clusters(&held.namespace);
        let foreign: Vec<String> = (0..40).map(|n| format!("example.com/{n:02}")).collect();
        let mut object = held.object();
        object.metadata.finalizers = Some(foreign.clone());
        clusters.create(&PostParams::default(), &object).await.unwrap();

        let all = stage
            .until(&held, "have the finalizer", |object| {
                object.finalizers().iter().any(|name| name == api::FINALIZER)
            })
            .await;
        assert_eq!(all.finalizers().len(), 41);
        stage.delete(&held).await;
        let rest = stage
            .until(&held, "have lost the finalizer", |object| {
                !object.finalizers().iter().any(|name| name == api::FINALIZER)
            })
            .await;
        assert_eq!(rest.finalizers(), foreign);
        let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        clusters
            .patch(&held.name, &PatchParams::default(), &none)
            .await
            .unwrap();
        stage.gone(&held).await;
    });
}
