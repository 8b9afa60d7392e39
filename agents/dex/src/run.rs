//! The process.

use kit::{
    service,
    start::{Agent, AgentArgs},
};

use crate::{
    identity::MANAGER,
    service::Providers,
    storage::{StorageArgs, Store},
};

/// The Dex agent of a site: an identity provider for every tenant cluster that asks for one.
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
    service::run(MANAGER.0, version, &agent, |agent: &mut Agent, watches| {
        let service = Providers::new(Store::new(storage), watches);
        let checking = service.check_providers(watches);
        agent.process.tasks.spawn_endless("provider checks", checking);
        agent
            .process
            .tasks
            .spawn_endless("storage sweep", service.sweep());
        service
    })
    .await
}
