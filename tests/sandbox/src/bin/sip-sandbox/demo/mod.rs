//! `sip-sandbox demo`: a region with one site, two clusters that fit and one that cannot.
//!
//! The scheduler and the agents are processes of their own, with the certificates, `ServiceAccounts` and rights that
//! they have in a real site. What is shown at the end is read from the API server and the scheduler, and is checked.

mod check;
mod jump_host;
mod login;
mod report;

use std::{fs, io::IsTerminal as _, path::PathBuf, time::Duration};

use anyhow::Context as _;
use kube::{
    Api,
    api::{DynamicObject, ListParams},
};
use sandbox::{
    crds, dex, inventory,
    jump_host::PowerPort,
    node::{self, Image},
    region::{Agent, AgentProcess, Region, SiteConfig},
    repository, sip_clusters,
    site::{Nodes, Site},
    wait,
};

use self::login::SignIn;
use crate::{interrupted::Interrupted, steps::Steps};

/// Where the demonstration's hosts are.
const HOSTS: &str = "metal";
/// Namespace and name of each cluster; the sample file has the same name. The last one cannot fit.
const FITTING: [(&str, &str); 2] = [("shop", "orders"), ("bank", "payments")];
const TOO_BIG: (&str, &str) = ("lab", "training");

/// How many there are where there can be no real one.
const FAKE_NODES: u32 = 3;
/// What the samples ask for. On a real node it is made of this machine's HAProxy.
const HAPROXY: &str = "haproxy:2.8";

/// How long one cluster may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// How the demonstration is to be.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Use fake nodes even where a real one is possible
    #[arg(long)]
    fake_nodes: bool,
}

/// Everything that runs. The fields are dropped in this order: the agents first.
struct Stage {
    agents: Vec<AgentProcess>,
    /// Where there is a real node.
    sign_in: Option<SignIn>,
    site: Site,
    region: Region,
    /// Where the jump-host agent serves power control.
    power: PowerPort,
    /// Of the person who watches, where pods run.
    key: Option<PathBuf>,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let mut interrupted = Interrupted::new()?;
    let steps = Steps::new();
    let shown = tokio::select! {
        shown = show(&steps, &options) => shown,
        () = interrupted.wait() => Err(anyhow::anyhow!("interrupted")),
    };
    steps.finish();
    let stage = shown?;
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        println!("\nAll of it keeps running. Ctrl-C ends it.");
        interrupted.wait().await;
    }
    drop(stage);
    Ok(())
}

/// Sets the stage, plays the piece, and prints the report.
async fn show(steps: &Steps, options: &Options) -> anyhow::Result<Stage> {
    let mut stage = set_up(steps, options).await?;
    match play(steps, &mut stage).await {
        Ok(()) => Ok(stage),
        Err(error) => {
            eprintln!("{}{}", stage.site.log_tails(15), stage.region.log_tails(15));
            // A missing right is the likeliest fault, and hard to see in a log.
            for entry in stage
                .site
                .audit_log()?
                .iter()
                .filter(|entry| entry.is_forbidden())
            {
                eprintln!(
                    "forbidden: {} {} {}",
                    entry.user.username, entry.verb, entry.request_uri
                );
            }
            Err(error)
        }
    }
}

async fn set_up(steps: &Steps, options: &Options) -> anyhow::Result<Stage> {
    let (nodes, why_fake) = if options.fake_nodes {
        (
            Nodes::Kwok(FAKE_NODES),
            Some("--fake-nodes asks for them".to_owned()),
        )
    } else {
        let (nodes, obstacle) = Nodes::real_or_kwok(FAKE_NODES);
        (nodes, obstacle.map(|why| why.to_string()))
    };
    let (in_title, sentence) = match &why_fake {
        None => (
            "a real node".to_owned(),
            "A real node runs load balancers and jump hosts, in namespaces of its own: their pods are HAProxy and sshd."
                .to_owned(),
        ),
        Some(why) => (
            format!("{FAKE_NODES} fake nodes"),
            format!("Fake nodes say that pods are ready, and run nothing: {why}."),
        ),
    };
    steps.print(&sentence);
    let progress = steps.clone();
    let namespaces = FITTING.iter().chain([&TOO_BIG]).map(|(namespace, _)| *namespace);
    let builder = namespaces
        .fold(Site::builder("site-a"), sandbox::site::Builder::tenant_namespace)
        .namespace(HOSTS)
        .nodes(nodes)
        .crds(crds::all())
        .on_progress(move |detail| progress.say(detail));
    let builder = if why_fake.is_none() {
        builder
            .image(Image::new(HAPROXY, node::system_program("haproxy")?))
            .image(dex::image(login::DEX)?)
    } else {
        builder
    };
    let title = format!("a site: etcd, kube-apiserver, controllers, {in_title}; a region: the scheduler");
    let (site, region) = steps
        .step(&title, async {
            let (site, region) = tokio::join!(builder.start(), Region::start("north"));
            anyhow::Ok((site?, region?))
        })
        .await?;
    let power = region.power_port(&site)?;
    let key = match site.node() {
        Some(_) => Some(jump_host::key(site.directory()).await?),
        None => None,
    };
    Ok(Stage {
        agents: Vec::new(),
        sign_in: None,
        site,
        region,
        power,
        key,
    })
}

async fn play(steps: &Steps, stage: &mut Stage) -> anyhow::Result<()> {
    let fleet = inventory::demonstration();
    let title = format!("{} BareMetalHosts in 4 racks", fleet.len());
    steps
        .step(&title, inventory::load(&stage.site.client(), HOSTS, &fleet))
        .await?;
    steps
        .step(
            "the agents: own ServiceAccounts, own rights, own certificates",
            start_agents(stage),
        )
        .await?;

    steps
        .step("clusters shop/orders and bank/payments become Ready", async {
            for cluster in FITTING {
                apply(stage, cluster).await?;
            }
            for cluster in FITTING {
                until(stage, cluster, "Ready", |object| wait::is_true(object, "Ready")).await?;
            }
            anyhow::Ok(())
        })
        .await?;
    // Only now: with all three at once, which two fit would depend on which came first.
    steps
        .step("cluster lab/training is refused", async {
            apply(stage, TOO_BIG).await?;
            until(stage, TOO_BIG, "refused", check::is_refused).await
        })
        .await?;
    if let Some((address, here)) = stage
        .site
        .node()
        .map(|node| (node.address(), node.host_address()))
    {
        let sign_in = Box::pin(SignIn::start(stage, (address, here)));
        let sign_in = steps.step("ada of the group admins logs in to bank/payments", sign_in);
        stage.sign_in = Some(sign_in.await?);
    }

    let hosts = inventory::api(stage.site.client(), HOSTS)
        .list(&ListParams::default())
        .await?
        .items;
    let clusters = all_clusters(stage).await?;
    check::placements(&clusters, &hosts)?;
    if let Some(node) = stage.site.node() {
        steps
            .step(
                "load balancers and jump host take connections at the node's ports",
                check::endpoints(node.address(), &clusters),
            )
            .await?;
    }
    steps
        .step(
            "the scheduler answers grpcurl, by reflection",
            check::scheduler(&stage.region, &stage.site),
        )
        .await?;
    let shown = steps
        .step(
            "the jump host of shop/orders lists its hosts",
            jump_host::show(&stage.site, &stage.power, &clusters[0], stage.key.as_deref()),
        )
        .await?;
    steps.finish();
    report::print(&hosts, &clusters, stage, &shown);
    Ok(())
}

async fn start_agents(stage: &mut Stage) -> anyhow::Result<()> {
    stage.site.prepare_for_agents().await?;
    stage.region.import_jump_host_tools(&stage.site).await?;
    if let Some(node) = stage.site.node() {
        node.import(&sandbox::jump_host::image(jump_host::IMAGE)?).await?;
    }
    let config = site_config(stage);
    let Stage {
        agents,
        site,
        region,
        power,
        sign_in: _,
        key: _,
    } = stage;
    for agent in [Agent::Cluster, Agent::LoadBalancer] {
        agents.push(region.start_agent(site, agent, &config).await?);
    }
    let variables = power.variables(None);
    agents.push(
        region
            .start_agent_with(site, Agent::JumpHost, &config, &variables)
            .await?,
    );
    for agent in agents {
        agent.is_ready().await?;
    }
    Ok(())
}

/// Jump hosts are served everywhere, identity providers where pods run.
fn site_config(stage: &Stage) -> SiteConfig {
    let mut config = stage.region.site_config(&stage.site);
    config.not_installed = match stage.site.node() {
        Some(_) => Vec::new(),
        None => vec!["auth".to_owned()],
    };
    config
}

async fn apply(stage: &Stage, (_, name): (&str, &str)) -> anyhow::Result<()> {
    let file = repository::samples().join(format!("{name}.yaml"));
    let sample = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let sample = match &stage.key {
        Some(key) => jump_host::with_key(&sample, key)?,
        None => sample,
    };
    stage.site.apply_yaml(&sample).await?;
    Ok(())
}

async fn until(
    stage: &Stage,
    (namespace, name): (&str, &str),
    what: &str,
    true_now: impl Fn(&DynamicObject) -> bool,
) -> anyhow::Result<()> {
    let what = format!("SIPCluster {namespace}/{name} to be {what}");
    wait::until(api(stage, namespace), name, &what, PATIENCE, true_now).await?;
    Ok(())
}

async fn all_clusters(stage: &Stage) -> anyhow::Result<Vec<DynamicObject>> {
    let mut clusters = Vec::new();
    for (namespace, name) in FITTING.into_iter().chain([TOO_BIG]) {
        let cluster = api(stage, namespace).get(name).await;
        clusters.push(cluster.with_context(|| format!("get SIPCluster {namespace}/{name}"))?);
    }
    Ok(clusters)
}

fn api(stage: &Stage, namespace: &str) -> Api<DynamicObject> {
    sip_clusters::api(stage.site.client(), namespace)
}
