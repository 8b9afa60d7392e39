//! `sip-sandbox bench`: how long a whole site takes to hand over hosts.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use kube::{
    Api,
    api::{DynamicObject, PostParams},
    runtime::watcher,
};
use sandbox::{
    crds, inventory,
    region::{Agent, Region},
    sip_clusters,
    site::{Nodes, Site},
    wait,
};
use serde_json::json;

use crate::steps::Steps;

/// What is measured, and on what.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many hosts the site has
    #[arg(long, default_value_t = 1_000)]
    hosts: u32,
    /// How many racks they are in
    #[arg(long, default_value_t = 20)]
    racks: u32,
    /// How many clusters of 3 + 20 hosts are created, one after the other
    #[arg(long, default_value_t = 10)]
    clusters: u16,
}

const HOSTS: &str = "metal";
const CLUSTERS: &str = "tenants";
const CONTROL_PLANE: u32 = 3;
const WORKERS: u32 = 20;

/// The goal for one cluster; SIP itself needs 0.75 s on such a machine.
const GOAL: Duration = Duration::from_millis(500);

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options {
        hosts,
        racks,
        clusters,
    } = options;
    let steps = Steps::new();
    let progress = steps.clone();
    let builder = Site::builder("site-a")
        .nodes(Nodes::Kwok(3))
        .crds(crds::all())
        .namespace(HOSTS)
        .namespace(CLUSTERS)
        .on_progress(move |detail| progress.say(detail));
    let (site, region) = steps
        .step("a site and a region", async {
            let (site, region) = tokio::join!(builder.start(), Region::start("north"));
            anyhow::Ok((site?, region?))
        })
        .await?;
    let fleet = inventory::fleet(hosts, racks);
    steps
        .step(
            &format!("{hosts} BareMetalHosts"),
            inventory::load(&site.client(), HOSTS, &fleet),
        )
        .await?;
    let agents = steps
        .step("the agents", async {
            region.prepare_site(&site).await?;
            let config = region.site_config(&site);
            let mut agents = Vec::new();
            for agent in [Agent::Cluster, Agent::LoadBalancer] {
                let mut process = region.start_agent(&site, agent, &config).await?;
                process.is_ready().await?;
                agents.push(process);
            }
            anyhow::Ok(agents)
        })
        .await?;

    let mut times = Vec::new();
    for index in 0..clusters {
        let title = format!("cluster {index}: {CONTROL_PLANE} + {WORKERS} hosts");
        times.push(steps.step(&title, place(&site, index)).await?);
    }
    steps.finish();
    drop(agents);
    report(&mut times, hosts);
    Ok(())
}

/// From the API server's answer to the creation of the cluster to the last label on a host.
async fn place(site: &Site, index: u16) -> anyhow::Result<Duration> {
    let name = format!("bench-{index}");
    let cluster: DynamicObject = serde_json::from_value(cluster(&name, index))?;
    let api: Api<DynamicObject> = sip_clusters::api(site.client(), CLUSTERS);
    let wanted = usize::try_from(CONTROL_PLANE + WORKERS)?;
    let labels = watcher::Config::default().labels(&format!("{}={name}", sip_clusters::CLUSTER_NAME));
    let hosts = inventory::api(site.client(), HOSTS);
    let labelled = async {
        let what = format!("the hosts of {name} to be labelled");
        wait::until_all(hosts, labels, &what, Duration::from_secs(30), |hosts| {
            hosts.len() == wanted
        })
        .await?;
        anyhow::Ok(Instant::now())
    };
    let created = async {
        api.create(&PostParams::default(), &cluster)
            .await
            .with_context(|| format!("create SIPCluster {name}"))?;
        anyhow::Ok(Instant::now())
    };
    let (labelled, created) = tokio::try_join!(labelled, created)?;
    Ok(labelled.saturating_duration_since(created))
}

fn cluster(name: &str, index: u16) -> serde_json::Value {
    let role = |flavor: &str, key: &str, active: u32| {
        json!({
            "labelSelector": {"matchLabels": {inventory::FLAVOR: flavor}},
            "topologyKey": key,
            "count": {"active": active, "standby": 0},
        })
    };
    // Three node ports for each cluster, from 30000 on.
    let port = 30_000 + u32::from(index) * 3;
    json!({
        "apiVersion": "airship.airshipit.org/v1",
        "kind": "SIPCluster",
        "metadata": {"name": name, "namespace": CLUSTERS},
        "spec": {
            "nodes": {
                "ControlPlane": role("control-plane", inventory::RACK, CONTROL_PLANE),
                "Worker": role("worker", inventory::SERVER, WORKERS),
            },
            "services": {
                "loadBalancerControlPlane": [
                    {"image": "haproxy:2.8", "nodeInterfaceId": inventory::NETWORK, "nodePort": port},
                ],
                "loadBalancerWorker": [{
                    "image": "haproxy:2.8",
                    "nodeInterfaceId": inventory::NETWORK,
                    "nodePortRange": {"start": port + 1, "end": port + 2},
                }],
            },
        },
    })
}

fn report(times: &mut [Duration], hosts: u32) {
    times.sort();
    let milliseconds = |time: Option<&Duration>| time.map_or(0, Duration::as_millis);
    println!(
        "created to last label, {CONTROL_PLANE} + {WORKERS} of {hosts} hosts, {} clusters:",
        times.len()
    );
    println!("  fastest {} ms", milliseconds(times.first()));
    println!("  median  {} ms", milliseconds(times.get(times.len() / 2)));
    println!(
        "  slowest {} ms (goal: {} ms)",
        milliseconds(times.last()),
        GOAL.as_millis()
    );
}
