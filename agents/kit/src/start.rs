//! A process with both clients: the site's API server and the region's scheduler.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use anyhow::Context as _;
use http::Uri;
use kube::{Client, client::ClientBuilder};
use runtime::{Process, ProcessArgs, readiness::Gate, tls::ClientTlsArgs};
use tower::timeout::TimeoutLayer;

use crate::{
    config::{self, SiteConfig},
    election::{Candidate, Election, ElectionArgs},
    metrics::AgentMetrics,
    scheduler_client::Scheduler,
};

/// Time within which the API server has to begin its response; after it the call fails, as nothing reports a response that is lost. An API server
/// begins to answer a watch at once, and the reader of the watch detects later silence.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

const NO_CLIENT: &str = "a client of the API server cannot be made";

/// Command-line options that every agent has. The API server is found as `kubectl` finds it: `KUBECONFIG`, or the pod's
/// own `ServiceAccount`.
#[derive(Clone, Debug, clap::Args)]
pub struct AgentArgs {
    #[command(flatten)]
    process: ProcessArgs,
    #[command(flatten)]
    tls: ClientTlsArgs,
    #[command(flatten)]
    election: ElectionArgs,
    /// File with the site's configuration (YAML)
    #[arg(long, env = "SIP_SITE_CONFIG", value_name = "FILE")]
    site_config: PathBuf,
}

impl AgentArgs {
    /// Reads the site's configuration.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn site_config(&self) -> Result<SiteConfig, config::Error> {
        SiteConfig::read(&self.site_config)
    }
}

/// An agent's process, its configuration and its clients.
#[derive(Debug)]
pub struct Agent {
    /// The process that its tasks run in.
    pub process: Process,
    /// Where it works.
    pub config: SiteConfig,
    /// The scheduler.
    pub scheduler: Scheduler,
    /// What every agent counts.
    pub metrics: AgentMetrics,
    name: &'static str,
    election: ElectionArgs,
    /// Of the election: open once this replica acts and everything else that makes it ready is registered.
    gate: Gate,
}

/// A client of the API server that `KUBECONFIG` names, or the pod's own `ServiceAccount`.
///
/// # Errors
/// When its configuration cannot be read.
pub async fn kubernetes() -> anyhow::Result<Client> {
    let client = ClientBuilder::try_from(api_server().await?).context(NO_CLIENT)?;
    Ok(client.with_layer(&TimeoutLayer::new(RESPONSE_TIMEOUT)).build())
}

/// How the API server is reached.
async fn api_server() -> anyhow::Result<kube::Config> {
    kube::Config::infer()
        .await
        .context("the API server's configuration cannot be read")
}

/// Where the API server is that [`kubernetes`] connects to.
///
/// # Errors
/// When its configuration cannot be read.
pub async fn api_server_uri() -> anyhow::Result<Uri> {
    Ok(api_server().await?.cluster_url)
}

/// The address of the API server that [`kubernetes`] connects to, where its URL has one instead of a name.
///
/// # Errors
/// When its configuration cannot be read.
pub async fn api_server_address() -> anyhow::Result<Option<IpAddr>> {
    let config = api_server().await?;
    let host = config.cluster_url.host().unwrap_or_default();
    Ok(host.trim_start_matches('[').trim_end_matches(']').parse().ok())
}

impl Agent {
    /// Starts the process; connections are made when they are first used.
    ///
    /// # Errors
    /// When an option, the configuration or a certificate cannot be used.
    pub async fn start(name: &'static str, version: &'static str, args: &AgentArgs) -> anyhow::Result<Self> {
        let AgentArgs {
            process,
            tls,
            election,
            site_config: _,
        } = args;
        let config = args.site_config()?;
        let mut process = Process::start(name, version, process).await?;
        // Before any other gate is open: a replica that is no candidate yet is not ready.
        let gate = process.readiness.gate("election");
        let channel = process.scheduler(config.scheduler(), tls, config.realm())?;
        let scheduler = Scheduler::new(config.site(), channel);
        let metrics = AgentMetrics::registered(&process.metrics);
        Ok(Self {
            process,
            config,
            scheduler,
            metrics,
            name,
            election: election.clone(),
            gate,
        })
    }

    /// A client of the site's API server, whose requests are counted.
    ///
    /// # Errors
    /// When its configuration cannot be read.
    pub async fn kubernetes(&self) -> anyhow::Result<Client> {
        let client = ClientBuilder::try_from(api_server().await?).context(NO_CLIENT)?;
        let client = client.with_layer(&TimeoutLayer::new(RESPONSE_TIMEOUT));
        Ok(client.with_layer(&self.metrics).build())
    }

    /// The namespace that the agents are in, with what is theirs: their Leases, for one.
    #[must_use]
    pub fn namespace(&self, client: &Client) -> String {
        self.election.namespace(client)
    }

    /// Waits until this replica is the one that acts, has `begin` start what it runs then, runs until it receives a signal or a part fails,
    /// and drains. The Lease is renewed from the election to the end, however long `begin` takes. When it is lost, `begin` and the
    /// tasks end at once, because another replica may act.
    ///
    /// # Errors
    /// Why `begin` failed, what failed after it, or how the Lease was lost.
    pub async fn run(
        mut self,
        client: &Client,
        begin: impl AsyncFnOnce(&mut Self, Election) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let candidate = Candidate::new(client.clone(), self.name, &self.election);
        let shutdown = self.process.shutdown.clone();
        let Some(leadership) = shutdown.run_until_cancelled(candidate.elected(&self.gate)).await else {
            return Ok(self.process.run().await?);
        };
        self.metrics.set_leader();
        let election = leadership.election();
        let acting = async move {
            let begun = shutdown.run_until_cancelled(begin(&mut self, election)).await;
            let begun = begun.transpose();
            match &begun {
                // Everything else that makes it ready is registered by now.
                Ok(Some(())) => self.gate.ready(),
                // The process is to end before it has begun.
                Ok(None) => {}
                // What it has started ends before the Lease is released.
                Err(_) => shutdown.cancel(),
            }
            let ended = self.process.run().await;
            begun.and(ended.map_err(anyhow::Error::from))
        };
        // On the heap, because it holds the whole process and all that `begin` waits for.
        leadership.during(Box::pin(acting)).await?
    }
}
