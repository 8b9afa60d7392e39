//! `sip-sandbox demo`: a region with one site, two clusters that fit and one that cannot.
//!
//! Where the site has a real node, the scheduler and the agents are pods of this project's images, which the manifests of `deploy/` start as in
//! an installation. Elsewhere they are processes, with the certificates, `ServiceAccounts` and rights that they have in a real site. What is
//! printed at the end is read from the API server and the scheduler, and is checked.

mod check;
mod jump_host;
mod login;
mod report;
mod running;

use std::{
    fs,
    io::IsTerminal as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use kube::{
    Api,
    api::{DynamicObject, ListParams},
};
use sandbox::{
    crds, dex, installation, inventory,
    node::{self, Image},
    process::Group,
    repository, sip_clusters,
    site::{Nodes, Site},
    tools, wait,
};

use self::{login::SignIn, running::Running};
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
/// What the manifests ask for. On a real node it is made of the etcd that the set-up has built.
const ETCD: &str = "etcd:3.6";

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
    /// Where there is a real node.
    sign_in: Option<SignIn>,
    running: Running,
    site: Site,
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

/// Starts everything, creates the clusters, and prints the report.
async fn show(steps: &Steps, options: &Options) -> anyhow::Result<Stage> {
    let mut stage = set_up(steps, options).await?;
    match play(steps, &mut stage).await {
        Ok(()) => Ok(stage),
        Err(error) => {
            print_causes(&stage.site, Some(&stage.running)).await;
            Err(error)
        }
    }
}

/// Prints what may show the cause of a failure.
async fn print_causes(site: &Site, running: Option<&Running>) {
    let processes = running.map(Running::log_tails).unwrap_or_default();
    eprintln!("{}{processes}", site.log_tails(running::LOG_LINES));
    if site.node().is_some() {
        match installation::describe_pods(site).await {
            Ok(described) => eprintln!("{described}"),
            Err(error) => eprintln!("pods: {error}"),
        }
    }
    // A missing right is the likeliest fault, and hard to see in a log.
    match site.audit_log() {
        Ok(entries) => {
            for entry in entries.iter().filter(|entry| entry.is_forbidden()) {
                eprintln!(
                    "forbidden: {} {} {}",
                    entry.user.username, entry.verb, entry.request_uri
                );
            }
        }
        Err(error) => eprintln!("audit log: {error}"),
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
            "a real node; images of the scheduler and the agents".to_owned(),
            "A real node, in namespaces of its own, runs the scheduler, the agents, load balancers and jump hosts as pods."
                .to_owned(),
        ),
        Some(why) => (
            format!("{FAKE_NODES} fake nodes"),
            format!(
                "Fake nodes say that pods are ready, and run nothing: {why}. The scheduler and the agents run as processes."
            ),
        ),
    };
    steps.print(&sentence);
    let title = format!("a site: etcd, kube-apiserver, controllers, {in_title}");
    let (site, archives) = steps.step(&title, start_site(steps, nodes)).await?;
    let directory = archives.as_ref().map(Group::directory);
    let running = match Box::pin(start_programs(steps, &site, directory)).await {
        Ok(running) => running,
        Err(error) => {
            print_causes(&site, None).await;
            return Err(error);
        }
    };
    let key = match site.node() {
        Some(_) => Some(jump_host::key(site.directory()).await?),
        None => None,
    };
    Ok(Stage {
        sign_in: None,
        running,
        site,
        key,
    })
}

/// Starts the site. If its node is real, also writes the images of the scheduler and the agents meanwhile, to the group's directory.
async fn start_site(steps: &Steps, nodes: Nodes) -> anyhow::Result<(Site, Option<Group>)> {
    let progress = steps.clone();
    let namespaces = FITTING.iter().chain([&TOO_BIG]).map(|(namespace, _)| *namespace);
    let builder = namespaces
        .fold(
            Site::builder(installation::SITE),
            sandbox::site::Builder::tenant_namespace,
        )
        .namespace(HOSTS)
        .nodes(nodes)
        .crds(crds::all())
        .on_progress(move |detail| progress.say(detail));
    if !builder.has_real_node() {
        return Ok((builder.start().await?, None));
    }
    let builder = builder
        .image(Image::new(HAPROXY, node::system_program("haproxy")?))
        .image(Image::new(ETCD, tools::path("etcd")?))
        .image(dex::image(login::DEX)?);
    let archives = Group::new("images")?;
    // The task owns the directory, so that after Ctrl-C it is removed when nobody writes to it any more.
    let making = tokio::task::spawn_blocking(move || {
        installation::make_archives(archives.directory()).map(|()| archives)
    });
    let (site, archives) = tokio::join!(builder.start(), making);
    Ok((site?, Some(archives??)))
}

/// Loads the hosts, and starts the scheduler and the agents: as pods of the images in a directory, or as processes.
async fn start_programs(steps: &Steps, site: &Site, archives: Option<&Path>) -> anyhow::Result<Running> {
    let fleet = inventory::demonstration();
    let title = format!("{} BareMetalHosts in 4 racks", fleet.len());
    steps
        .step(&title, inventory::load(&site.client(), HOSTS, &fleet))
        .await?;
    let kind = match archives {
        Some(_) => "pods of our own images",
        None => "processes",
    };
    let title =
        format!("the scheduler and the agents as {kind}: own ServiceAccounts, own rights, own certificates");
    steps.step(&title, Running::start(site, archives)).await
}

async fn play(steps: &Steps, stage: &mut Stage) -> anyhow::Result<()> {
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
            check::scheduler(&stage.running.grpcurl(), &stage.site),
        )
        .await?;
    let shown = steps
        .step(
            "the jump host of shop/orders lists its hosts",
            jump_host::show(
                &stage.site,
                stage.running.power(),
                &clusters[0],
                stage.key.as_deref(),
            ),
        )
        .await?;
    steps.finish();
    report::print(&hosts, &clusters, stage, &shown);
    Ok(())
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
