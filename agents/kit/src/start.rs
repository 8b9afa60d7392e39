//! A process with both clients: the site's API server and the region's scheduler.

use std::path::PathBuf;

use anyhow::Context as _;
use kube::Client;
use runtime::{Process, ProcessArgs, tls::ClientTlsArgs};

use crate::{config::SiteConfig, scheduler::Scheduler};

/// Command-line options that every agent has. The API server is found as `kubectl` finds it: `KUBECONFIG`, or the pod's
/// own `ServiceAccount`.
#[derive(Clone, Debug, clap::Args)]
pub struct AgentArgs {
    #[command(flatten)]
    process: ProcessArgs,
    #[command(flatten)]
    tls: ClientTlsArgs,
    /// File with the site's configuration (YAML)
    #[arg(long, env = "SIP_SITE_CONFIG", value_name = "FILE")]
    site_config: PathBuf,
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
            site_config,
        } = args;
        let config = SiteConfig::read(site_config)?;
        let mut process = Process::start(name, version, process).await?;
        let channel = process.scheduler(config.scheduler(), tls, config.realm())?;
        let scheduler = Scheduler::new(config.site(), channel);
        Ok(Self {
            process,
            config,
            scheduler,
        })
    }

    /// A client of the site's API server.
    ///
    /// # Errors
    /// When its configuration cannot be read.
    pub async fn kubernetes(&self) -> anyhow::Result<Client> {
        let mut config = kube::Config::infer()
            .await
            .context("the API server's configuration cannot be read")?;
        // Watches are kept alive by bookmarks; anything else is answered within this time or tried again.
        config.write_timeout = Some(std::time::Duration::from_secs(30));
        Client::try_from(config).context("a client of the API server cannot be made")
    }
}
