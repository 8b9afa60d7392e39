//! `sip-sandbox hostile`: whether clusters wait for what a hostile tenant of the same site has created.

mod specs;

use std::time::Duration;

use clap::Args;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::{
    Api,
    api::{DynamicObject, PostParams},
};
use sandbox::{etcd::Etcd, process::Group, region::Agent, repository, sip_clusters};
use serde_json::json;

use super::{
    SMALL,
    figure::{self, Figure},
    room,
    scene::Scene,
};
use crate::steps::Steps;
use specs::Specs;

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of hosts of the site
    #[arg(long, value_name = "NUMBER", default_value_t = 1_500)]
    hosts: u32,
    /// Number of clusters of 3 control-plane hosts and 4 workers that are created at once
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    clusters: u16,
    /// Number of rounds: each creates the clusters without the objects of the hostile tenant, and then beside them
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    rounds: u16,
}

/// By how much clusters may take longer beside the hostile tenant.
const SLOWER: f64 = 1.2;
/// Of each agent, at any time, in MiB.
const PEAK: u64 = 100;
/// The namespaces of the tenant. The second one may have nothing that a service needs.
const NAMESPACES: [&str; 2] = ["hostile", "hostile-quota"];

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    room::require_for(options.hosts, &[(SMALL, options.clusters)])?;
    let steps = Steps::new();
    let mut scene = Box::pin(Scene::set(&steps, options.hosts)).await?;
    let group = Group::new("hostile")?;
    let _etcd = Box::pin(start_other_agents(&mut scene, &group)).await?;
    for namespace in NAMESPACES {
        scene.site().create_tenant_namespace(namespace).await?;
    }
    let quota: ResourceQuota = serde_json::from_value(json!({
        "metadata": {"name": "nothing"},
        "spec": {"hard": {"pods": "0", "services": "0", "configmaps": "0", "secrets": "0", "count/deployments.apps": "0"}},
    }))?;
    let quotas: Api<ResourceQuota> = Api::namespaced(scene.site().client(), NAMESPACES[1]);
    quotas.create(&PostParams::default(), &quota).await?;
    let specs = specs::specs(&repository::deploy().join("crd/airship.airshipit.org_sipclusters.yaml"))?;

    let (mut alone, mut beside) = (Duration::ZERO, Duration::ZERO);
    for round in 1..=options.rounds {
        let title = |how: &str| {
            format!(
                "round {round}: {} clusters of {SMALL} at once{how}",
                options.clusters
            )
        };
        alone += burst(&mut scene, &options, &title("")).await?;
        steps
            .step("the hostile tenant's clusters", create(&scene, &specs))
            .await?;
        beside += burst(&mut scene, &options, &title(" beside the hostile tenant's")).await?;
        let removed = async {
            for namespace in NAMESPACES {
                scene.remove_clusters(namespace).await?;
            }
            scene.settle().await
        };
        steps
            .step("the hostile tenant's clusters are deleted", removed)
            .await?;
    }
    let times = format!(
        "{} and {} s",
        alone.as_secs_f32() / f32::from(options.rounds),
        beside.as_secs_f32() / f32::from(options.rounds)
    );
    let mut figures = vec![Figure::ratio(
        format!(
            "{} clusters of {SMALL} created to labelled, beside a hostile tenant to without ({times})",
            options.clusters
        ),
        SLOWER,
        beside.as_secs_f64() / alone.as_secs_f64(),
    )];
    figures.extend(scene.peaks(PEAK)?);
    steps.finish();
    println!("{}", figure::table(&figures));
    figure::require(&figures)
}

/// How long so many clusters take. They are deleted afterwards.
async fn burst(scene: &mut Scene, options: &Options, title: &str) -> anyhow::Result<Duration> {
    let steps = scene.steps.clone();
    let namespace = scene.next_namespace();
    let time = steps
        .step(title, scene.place_at_once(SMALL, options.clusters))
        .await?;
    steps
        .step("they are deleted", scene.remove_clusters(&namespace))
        .await?;
    Ok(time)
}

/// Those that the other benchmarks do without: the hostile tenant has entries for them too.
async fn start_other_agents(scene: &mut Scene, group: &Group) -> anyhow::Result<Etcd> {
    let etcd = Etcd::start(group, 1).await?;
    let password = group.directory().join("storage-password");
    std::fs::write(&password, "password of the storage")?;
    let storage = [
        ("SIP_DEX_STORAGE_ENDPOINTS", etcd.endpoints().join(",")),
        ("SIP_DEX_STORAGE_PASSWORD_FILE", password.display().to_string()),
    ];
    for agent in [Agent::JumpHost, Agent::Dex] {
        scene.start_agent(agent, &storage).await?;
    }
    Ok(etcd)
}

async fn create(scene: &Scene, specs: &Specs) -> anyhow::Result<()> {
    let mut objects: Vec<_> = specs
        .iter()
        .map(|(name, spec)| (NAMESPACES[0], name.as_str(), spec.clone()))
        .collect();
    objects.push((NAMESPACES[1], "nothing", specs::plain(31_900)));
    for (namespace, name, spec) in objects {
        let cluster: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster",
            "metadata": {"namespace": namespace, "name": name}, "spec": spec,
        }))?;
        let api = sip_clusters::api(scene.site().client(), namespace);
        api.create(&PostParams::default(), &cluster).await?;
    }
    Ok(())
}
