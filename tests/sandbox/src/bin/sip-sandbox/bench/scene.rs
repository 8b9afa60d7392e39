//! A site with hosts, a region and agents, on which clusters are placed.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::{
    StreamExt as _, TryStreamExt as _,
    future::{self, BoxFuture},
    stream,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
    runtime::watcher,
};
use sandbox::{
    audit::Entry,
    crds, inventory,
    region::{Agent, AgentProcess, Region},
    sip_clusters,
    site::{Nodes, Site},
    wait,
};

use super::{
    agents::{self, AGENTS},
    clusters::{Shape, cluster},
    figure::Figure,
};
use crate::steps::Steps;

const HOSTS: &str = "metal";
/// Hosts in one rack.
const RACK: u32 = 50;
/// Creations under way at once.
const CONCURRENT: usize = 32;
const PATIENCE: Duration = Duration::from_mins(15);
/// Of each agent, shown when a wait is in vain.
const LOG_LINES: usize = 25;
/// What is under way is through when nobody has called for so long.
const SETTLED: Duration = Duration::from_secs(2);

/// In how many racks so many hosts are.
pub(super) fn racks(hosts: u32) -> u32 {
    hosts.div_ceil(RACK)
}

pub(super) struct Scene {
    pub(super) hosts: u32,
    /// How many have been created.
    pub(super) clusters: u16,
    pub(super) cold_start: Duration,
    pub(super) steps: Steps,
    running: Vec<(Agent, AgentProcess)>,
    site: Site,
    region: Region,
}

impl Scene {
    pub(super) async fn set(steps: &Steps, hosts: u32) -> anyhow::Result<Self> {
        let progress = steps.clone();
        let builder = Site::builder("site-a")
            .nodes(Nodes::Kwok(3))
            .crds(crds::all())
            .namespace(HOSTS)
            .on_progress(move |detail| progress.say(detail));
        let (site, region) = steps
            .step("a site and a region", async {
                let (site, region) = tokio::join!(builder.start(), Region::start("north"));
                anyhow::Ok((site?, region?))
            })
            .await?;
        let fleet = inventory::fleet(hosts, racks(hosts));
        let client = site.client();
        let load = inventory::load(&client, HOSTS, &fleet);
        steps.step(&format!("{hosts} BareMetalHosts"), load).await?;
        site.prepare_for_agents().await?;
        let config = region.site_config(&site);
        let mut running = Vec::new();
        let mut cold_start = Duration::ZERO;
        for agent in AGENTS {
            let started = Instant::now();
            let start = async {
                let mut process = region.start_agent(&site, agent, &config).await?;
                process.is_ready().await?;
                anyhow::Ok(process)
            };
            let process = steps.step(agent.program(), start).await?;
            if agent == Agent::Cluster {
                // It is ready when the scheduler has acknowledged all that the site has.
                cold_start = started.elapsed();
            }
            running.push((agent, process));
        }
        Ok(Self {
            hosts,
            clusters: 0,
            cold_start,
            steps: steps.clone(),
            running,
            site,
            region,
        })
    }

    pub(super) fn site(&self) -> &Site {
        &self.site
    }

    /// Starts an agent that no other benchmark needs.
    pub(super) async fn start_agent(
        &mut self,
        agent: Agent,
        variables: &[(&str, String)],
    ) -> anyhow::Result<()> {
        let config = self.region.site_config(&self.site);
        let start = async {
            let started = self
                .region
                .start_agent_with(&self.site, agent, &config, variables);
            let mut process = started.await?;
            process.is_ready().await?;
            anyhow::Ok(process)
        };
        let process = self.steps.step(agent.program(), start).await?;
        self.running.push((agent, process));
        Ok(())
    }

    /// A new cluster in a namespace of its own, or of all that come with it.
    fn next(&mut self, namespace: &str, shape: Shape) -> anyhow::Result<DynamicObject> {
        let number = self.clusters;
        self.clusters += 1;
        Ok(cluster(namespace, &format!("bench-{number}"), number, shape)?)
    }

    /// From the API server's answer to the creation of a cluster to the last label on a host.
    pub(super) async fn place(&mut self, shape: Shape) -> anyhow::Result<Duration> {
        const NAMESPACE: &str = "tenants";
        self.site.create_tenant_namespace(NAMESPACE).await?;
        let cluster = self.next(NAMESPACE, shape)?;
        let label = format!("{}={}", sip_clusters::CLUSTER_NAME, cluster.name_any());
        let labelled = labelled(&self.site, &label, shape.hosts());
        let created = async {
            create(&self.site, NAMESPACE, &cluster).await?;
            anyhow::Ok(Instant::now())
        };
        let (labelled, created) =
            while_running(&mut self.running, Box::pin(future::try_join(labelled, created))).await?;
        Ok(labelled.saturating_duration_since(created))
    }

    /// From before the first of so many clusters is created to the last label on a host.
    pub(super) async fn place_at_once(&mut self, shape: Shape, count: u16) -> anyhow::Result<Duration> {
        let namespace = self.next_namespace();
        self.site.create_tenant_namespace(&namespace).await?;
        let clusters: Vec<DynamicObject> = (0..count)
            .map(|_| self.next(&namespace, shape))
            .collect::<Result<_, _>>()?;
        let label = format!("{}={namespace}", sip_clusters::CLUSTER_NAMESPACE);
        let labelled = labelled(&self.site, &label, u32::from(count) * shape.hosts());
        let begun = Instant::now();
        let created = stream::iter(&clusters)
            .map(|cluster| create(&self.site, &namespace, cluster))
            .buffer_unordered(CONCURRENT)
            .try_collect::<()>();
        let (labelled, ()) =
            while_running(&mut self.running, Box::pin(future::try_join(labelled, created))).await?;
        Ok(labelled.saturating_duration_since(begun))
    }

    /// Where [`Self::place_at_once`] creates the next clusters.
    pub(super) fn next_namespace(&self) -> String {
        format!("from-{}", self.clusters)
    }

    /// Deletes the clusters of a namespace, and waits until they are gone.
    pub(super) async fn remove_clusters(&self, namespace: &str) -> anyhow::Result<()> {
        let clusters = sip_clusters::api(self.site.client(), namespace);
        let all = ListParams::default();
        clusters.delete_collection(&DeleteParams::default(), &all).await?;
        let what = format!("the clusters of {namespace} to be gone");
        let gone = wait::until_all(
            clusters,
            watcher::Config::default(),
            &what,
            PATIENCE,
            |clusters| clusters.is_empty(),
        );
        Box::pin(gone).await?;
        Ok(())
    }

    /// Waits until the agents have nothing to do any more.
    pub(super) async fn settle(&self) -> anyhow::Result<()> {
        let mut before = self.calls()?.len();
        loop {
            tokio::time::sleep(SETTLED).await;
            let now = self.calls()?.len();
            if now == before {
                return Ok(());
            }
            before = now;
        }
    }

    /// The calls that the agents have made so far.
    pub(super) fn calls(&self) -> anyhow::Result<Vec<Entry>> {
        Ok(agents::calls(&self.site)?)
    }

    /// How often the agents write in so much time, once they have nothing to do any more.
    pub(super) async fn writes_within(&self, time: Duration) -> anyhow::Result<usize> {
        self.settle().await?;
        let writes = || {
            anyhow::Ok(
                agents::calls(&self.site)?
                    .into_iter()
                    .filter(agents::writes)
                    .count(),
            )
        };
        let before = writes()?;
        tokio::time::sleep(time).await;
        Ok(writes()? - before)
    }

    /// The most memory that each agent had at any time.
    pub(super) fn peaks(&self, goal: u64) -> anyhow::Result<Vec<Figure>> {
        let figures = self.running.iter().map(|(agent, process)| {
            let program = agent.program();
            let pid = process.pid().with_context(|| format!("{program} has ended"))?;
            let (_, most) = agents::resident(pid)?;
            let name = format!(
                "{} hosts: most memory of {program}, which never ended",
                self.hosts
            );
            Ok(Figure::mebibytes(name, goal, most))
        });
        figures.collect()
    }

    /// The memory that each agent has now.
    pub(super) fn residents(&self, goal: u64) -> anyhow::Result<Vec<Figure>> {
        let figures = self.running.iter().map(|(agent, process)| {
            let program = agent.program();
            let pid = process.pid().with_context(|| format!("{program} has ended"))?;
            let (now, most) = agents::resident(pid)?;
            let name = format!(
                "{} hosts, {} clusters: memory of {program} (at most {most} MiB so far)",
                self.hosts, self.clusters
            );
            Ok(Figure::mebibytes(name, goal, now))
        });
        figures.collect()
    }
}

/// Waits for what the agents do. One that ends, as one does that could not renew its Lease, ends the wait: nobody starts it
/// again here, and what it has not done would be measured as slowness.
async fn while_running<T>(
    running: &mut [(Agent, AgentProcess)],
    work: BoxFuture<'_, anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let ended = running
        .iter_mut()
        .map(|(_, process)| Box::pin(process.process().ended()));
    let outcome = tokio::select! {
        outcome = work => outcome,
        (status, ..) = future::select_all(ended) => status.map(|_| ()).map_err(anyhow::Error::from).and_then(|()| {
            bail!("an agent has ended")
        }),
    };
    outcome.with_context(|| {
        let logs = running.iter_mut().map(|(agent, process)| {
            let tail = process.process().log_tail(LOG_LINES);
            format!("The end of the log of {}:\n{tail}", agent.program())
        });
        logs.collect::<Vec<_>>().join("\n")
    })
}

/// Waits until so many hosts carry a label.
async fn labelled(site: &Site, label: &str, count: u32) -> anyhow::Result<Instant> {
    let wanted = usize::try_from(count)?;
    let config = watcher::Config::default().labels(label);
    let what = format!("{count} hosts to carry {label}");
    let hosts = inventory::api(site.client(), HOSTS);
    let labelled = wait::until_all(hosts, config, &what, PATIENCE, |hosts| hosts.len() == wanted);
    Box::pin(labelled).await?;
    Ok(Instant::now())
}

async fn create(site: &Site, namespace: &str, cluster: &DynamicObject) -> anyhow::Result<()> {
    let api: Api<DynamicObject> = sip_clusters::api(site.client(), namespace);
    let created = api.create(&PostParams::default(), cluster).await;
    created.with_context(|| format!("create SIPCluster {}", cluster.name_any()))?;
    Ok(())
}
