//! The process.

use kit::{
    service,
    start::{Agent, AgentArgs},
};
use render::load_balancer::Sidecar;

use crate::{identity::MANAGER, service::LoadBalancers};

/// The load-balancer agent of a site: runs HAProxy in front of the tenants' API servers and workers.
#[derive(Debug, clap::Parser)]
#[command(name = "sip-load-balancer-agent", version)]
pub struct Args {
    #[command(flatten)]
    agent: AgentArgs,
}

/// Runs until it receives a signal or a part fails.
///
/// # Errors
/// Why the process could not start, or what failed.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args { agent } = args;
    let version = env!("CARGO_PKG_VERSION");
    service::run(MANAGER.0, version, &agent, |agent: &mut Agent, watches| {
        let sidecar = agent
            .config
            .haproxy_sidecar_image()
            .map(|image| Sidecar { image: image.clone() });
        let service = LoadBalancers::new(sidecar, watches);
        let probing = service.probe_members(watches);
        agent.process.tasks.spawn_endless("reachability", probing);
        service
    })
    .await
}
