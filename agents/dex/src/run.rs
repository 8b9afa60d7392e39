//! The process of the Dex agent.

use anyhow::Context as _;
use kit::{
    service,
    start::{Agent, AgentArgs},
    tenant::destinations::Destinations,
};
use kube::Config;
use runtime::resolver::Resolver;

use crate::{
    identity::MANAGER,
    metrics::StorageMetrics,
    service::Providers,
    storage::{StorageArgs, Store},
};

/// The Dex agent of a site: runs an identity provider for each entry of `services.auth` of a `SIPCluster`.
#[derive(Debug, clap::Parser)]
#[command(name = "sip-dex-agent", version)]
pub struct Args {
    #[command(flatten)]
    agent: AgentArgs,
    #[command(flatten)]
    storage: StorageArgs,
}

/// Runs until a signal comes or a part fails.
///
/// # Errors
/// Why the process could not start, or what failed.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args { agent, storage } = args;
    let version = env!("CARGO_PKG_VERSION");
    let agent = Agent::start(MANAGER.0, version, &agent).await?;
    let api_server = Config::infer().await;
    let api_server = api_server
        .context("the API server's configuration cannot be read")?
        .cluster_url;
    let resolver = Resolver::from_system().context("host names cannot be resolved")?;
    service::run_started(agent, |agent: &mut Agent, watches| {
        let config = agent.config.identity_providers();
        let etcd = storage
            .endpoints
            .iter()
            .filter_map(|endpoint| endpoint.parse().ok());
        let own = etcd.chain([api_server, agent.config.scheduler().clone()]);
        let destinations = Destinations::new(resolver, config.allowed_networks(), own);
        let site = format!("{}/{}", agent.config.realm().region(), agent.config.site());
        let metrics = StorageMetrics::registered(&agent.process.metrics);
        let store = Store::new(storage, &site, metrics);
        let service = Providers::new(site, store, config.cluster_issuer(), watches);
        let checking = service.check_providers(destinations, watches);
        let gate = agent.process.readiness.gate("storage");
        let tasks = &mut agent.process.tasks;
        tasks.spawn_endless("provider checks", checking);
        tasks.spawn_endless("storage sweep", service.sweep());
        tasks.spawn_endless(
            "storage comparison",
            service.compare_storage(move || gate.ready()),
        );
        service
    })
    .await
}
