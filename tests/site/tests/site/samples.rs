//! Manifests that people have: they apply unchanged, with strict validation, and get Ready.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use kube::api::{ListParams, Patch, PatchParams};
use sandbox::{
    inventory::{self, Host},
    region::{HOSTS_NAMESPACE, Region},
    repository, wait,
};
use serde_json::json;

use crate::fixtures::{AGENTS, Cluster, Stage, cluster, host};

/// This project's own samples.
fn own(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("samples").join(folder)
}

/// Samples of another project, where a copy lies beside this checkout.
fn beside(folder: &str) -> Option<PathBuf> {
    let folder = repository::root().join("../shared/data").join(folder);
    folder.is_dir().then_some(folder)
}

async fn apply_strictly(stage: &Stage, namespace: &str, file: &Path) {
    let file = file.display().to_string();
    stage
        .kubectl(&["apply", "--validate=strict", "-n", namespace, "-f", &file])
        .await;
}

/// What the baremetal-operator reports of hosts that it has registered and inspected.
async fn hosts_become_available(stage: &Stage, namespace: &str) {
    let hosts = inventory::api(stage.site.client(), namespace);
    for host in hosts.list(&ListParams::default()).await.unwrap() {
        let status = json!({"status": {
            "operationalStatus": "OK", "errorCount": 0, "errorMessage": "", "hardwareProfile": "unknown", "poweredOn": true,
            "provisioning": {"ID": "", "state": "available", "image": {"url": ""}},
        }});
        hosts
            .patch_status(
                &host.metadata.name.unwrap(),
                &PatchParams::default(),
                &Patch::Merge(status),
            )
            .await
            .unwrap();
    }
}

/// Hosts as ViNO makes them for treasuremap's clusters: other label keys, another network.
fn treasuremap_hosts() -> Vec<Host> {
    let labelled = |flavor: &str, index: u32| {
        let rack = format!("k{index}");
        let mut host = host("tm", flavor, &rack, &format!("{flavor}-{index}"));
        host.labels.clear();
        host.addresses = host
            .addresses
            .into_values()
            .map(|address| ("management".to_owned(), address))
            .collect();
        let server = host.name.clone();
        host.label("airshipit.org/flavor", flavor)
            .label("airshipit.org/rack", &rack)
            .label("airshipit.org/server", &server)
    };
    let control_plane = (1..=4).map(|index| labelled("control-plane", index));
    let workers = (1..=6).map(|index| labelled("worker", index));
    control_plane.chain(workers).collect()
}

/// Applies a folder of manifests like SIP's own, and waits for its cluster.
async fn sip_sample_gets_ready(folder: &Path, files: &[&str], sample: &Cluster, skipped: &[&str]) {
    let region = Arc::new(Region::start("north").await.unwrap());
    let stage = Stage::start_in(region, "site-a", &[&sample.namespace], &AGENTS).await;
    stage.site.grant_agents(&sample.namespace).await.unwrap();
    for file in files {
        apply_strictly(&stage, &sample.namespace, &folder.join(file)).await;
    }
    hosts_become_available(&stage, &sample.namespace).await;

    let ready = stage.ready(sample).await;

    let (status, _, message) = wait::condition(&ready, "ServicesSkipped").unwrap();
    assert_eq!(status, "True");
    for section in skipped {
        assert!(message.contains(section), "{message}");
    }
    stage.nothing_was_forbidden();
}

#[tokio::test]
async fn samples_in_sips_form_get_ready_unchanged() {
    let sample = cluster("stock", "stock");
    let files = ["secrets.yaml", "hosts.yaml", "sipcluster.yaml"];
    sip_sample_gets_ready(&own("stock"), &files, &sample, &["jumpHost", "auth"]).await;
    if let Some(folder) = beside("sip") {
        let sample = cluster("sipcluster-system", "sipcluster-system");
        let files = [
            "baremetalhost-secrets.yaml",
            "baremetalhosts.yaml",
            "ssh_private_keys_secret.yaml",
            "sipcluster.yaml",
        ];
        sip_sample_gets_ready(&folder, &files, &sample, &["jumpHost"]).await;
    }
}

/// The later of two clusters with the same node ports says that they are taken, with no name of the other namespace, and the earlier one
/// does not notice.
async fn the_later_one_has_a_conflict(stage: &Stage, earlier: &Cluster, later: &Cluster) {
    let message = stage
        .condition_is(later, "LoadBalancerReady", "False", "PortConflict")
        .await;
    assert!(message.contains("by another namespace"), "{message}");
    assert!(!message.contains(&earlier.name), "{message}");
    stage
        .condition_is(later, "Ready", "False", "InfraServiceFailure")
        .await;
    assert!(wait::is_true(&stage.ready(earlier).await, "Ready"));
}

#[tokio::test]
async fn node_ports_pass_to_the_later_cluster_when_freed() {
    let stage = Stage::start("site-a", &AGENTS).await;
    stage.load(&treasuremap_hosts()).await;
    let (metrics, blog) = (cluster("metrics", "metrics"), cluster("blog", "blog"));
    for one in [&metrics, &blog] {
        stage.site.create_tenant_namespace(&one.namespace).await.unwrap();
    }
    apply_strictly(&stage, "metrics", &own("pair").join("metrics.yaml")).await;
    let before = stage.ready(&metrics).await;

    apply_strictly(&stage, "blog", &own("pair").join("blog.yaml")).await;
    the_later_one_has_a_conflict(&stage, &metrics, &blog).await;
    let after = stage.ready(&metrics).await;
    assert_eq!(
        before.data["status"]["conditions"], after.data["status"]["conditions"],
        "the earlier cluster has noticed the later one"
    );

    stage.delete(&metrics).await;
    stage.gone(&metrics).await;
    stage.ready(&blog).await;
    stage.nothing_was_forbidden();
}

/// Two clusters that ask for the same ports: each gets ready in a site of its own, and the second of one site has a conflict.
async fn get_ready_without_sharing_ports([first, second]: [(Cluster, PathBuf); 2]) {
    let region = Arc::new(Region::start("north").await.unwrap());
    let (one, other) = tokio::join!(
        Stage::start_in(Arc::clone(&region), "site-a", &[HOSTS_NAMESPACE], &AGENTS),
        Stage::start_in(Arc::clone(&region), "site-b", &[HOSTS_NAMESPACE], &AGENTS),
    );
    for stage in [&one, &other] {
        stage.load(&treasuremap_hosts()).await;
        for (cluster, _) in [&first, &second] {
            stage
                .site
                .create_tenant_namespace(&cluster.namespace)
                .await
                .unwrap();
        }
    }

    apply_strictly(&one, &first.0.namespace, &first.1).await;
    apply_strictly(&other, &second.0.namespace, &second.1).await;
    one.ready(&first.0).await;
    other.ready(&second.0).await;

    apply_strictly(&one, &second.0.namespace, &second.1).await;
    the_later_one_has_a_conflict(&one, &first.0, &second.0).await;
    one.nothing_was_forbidden();
    other.nothing_was_forbidden();
}

#[tokio::test]
async fn clusters_get_ready_without_sharing_ports() {
    let pair = |folder: &Path, names: [&str; 2], suffix: &str| {
        names.map(|name| (cluster(name, name), folder.join(format!("{name}{suffix}.yaml"))))
    };
    Box::pin(get_ready_without_sharing_ports(pair(
        &own("pair"),
        ["metrics", "blog"],
        "",
    )))
    .await;
    if let Some(folder) = beside("treasuremap") {
        Box::pin(get_ready_without_sharing_ports(pair(
            &folder,
            ["lma", "wordpress"],
            "-sipcluster",
        )))
        .await;
    }
}
