//! The process of a service agent.

use std::convert::Infallible;

use kube::Client;

use super::{
    controller::{self, Settings},
    definition::Service,
    watches::Watches,
};
use crate::start::{Agent, AgentArgs};

/// Runs a service agent until a signal comes or a part fails. `name` is also that of its Lease; `build` makes the service once this
/// replica is the Lease holder.
///
/// # Errors
/// Why the process could not start, or what failed.
pub async fn run<S: Service>(
    name: &'static str,
    version: &'static str,
    args: &AgentArgs,
    build: impl FnOnce(&mut Agent, &mut Watches) -> S,
) -> anyhow::Result<()> {
    run_started(Agent::start(name, version, args).await?, build).await
}

/// The same for an agent that has started already: with tasks that run whether or not this replica is the Lease holder.
///
/// # Errors
/// What failed.
pub async fn run_started<S: Service>(
    agent: Agent,
    build: impl FnOnce(&mut Agent, &mut Watches) -> S,
) -> anyhow::Result<()> {
    let client = agent.kubernetes().await?;
    // On the heap, because it holds the whole process.
    let running = agent.run(&client, async |agent: &mut Agent, _election| {
        start_controller(agent, &client, build);
        Ok(())
    });
    Box::pin(running).await
}

fn start_controller<S: Service>(
    agent: &mut Agent,
    client: &Client,
    build: impl FnOnce(&mut Agent, &mut Watches) -> S,
) {
    let gate = agent.process.readiness.gate("controller");
    let shutdown = agent.process.shutdown.clone();
    let scheduler = agent.scheduler.clone();
    let metrics = agent.metrics.clone();
    let settings = Settings {
        overrides: agent.config.service_overrides().clone(),
        ownerless: agent.config.ownerless_services(),
    };
    let namespace = agent.namespace(client);
    let mut watches = Watches::new(client.clone(), namespace, S::IDENTITY, &metrics);
    let service = build(agent, &mut watches);
    agent.process.tasks.spawn("controller", async move {
        let ready = || gate.ready();
        let shutdown = shutdown.cancelled_owned();
        controller::run(service, watches, scheduler, settings, metrics, ready, shutdown).await;
        Ok::<_, Infallible>(())
    });
}
