//! The process: one controller over `SIPCluster`s and the objects made for them.

use std::{convert::Infallible, sync::Arc};

use api::{SIPCluster, labels};
use futures::StreamExt as _;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kit::{
    events::Events,
    retries::Retries,
    start::{Agent, AgentArgs},
};
use kube::{
    Api, Client,
    runtime::{Controller, controller, watcher},
};

use crate::reconcile::{self, Context, MANAGER};

/// Clusters that are looked at at once.
const CONCURRENT: u16 = 16;

/// The load-balancer agent of a site: HAProxy for the tenants' API servers and workers.
#[derive(Debug, clap::Parser)]
#[command(name = "sip-load-balancer-agent", version)]
pub struct Args {
    #[command(flatten)]
    agent: AgentArgs,
}

/// Runs until a signal comes or a part fails.
///
/// # Errors
/// Why the process could not start, or what failed.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let mut agent = Agent::start("sip-load-balancer-agent", env!("CARGO_PKG_VERSION"), &args.agent).await?;
    let client = agent.kubernetes().await?;
    let watching = agent.process.readiness.gate("controller");
    let context = Context {
        client: client.clone(),
        scheduler: agent.scheduler.clone(),
        retries: Retries::default(),
        events: Events::new(client, MANAGER.0),
    };
    let shutdown = agent.process.shutdown.clone();
    agent.process.tasks.spawn("controller", async move {
        control(context, watching, shutdown.cancelled_owned()).await
    });
    agent.process.run().await?;
    Ok(())
}

async fn control(
    context: Context,
    gate: runtime::readiness::Gate,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) -> Result<(), Infallible> {
    let client: Client = context.client.clone();
    let children = format!(
        "{}={},{}={}",
        labels::PART_OF,
        labels::PART_OF_SIP,
        labels::COMPONENT,
        labels::COMPONENT_LOAD_BALANCER
    );
    let children = watcher::Config::default().labels(&children);
    let controller = Controller::new(Api::<SIPCluster>::all(client.clone()), watcher::Config::default())
        .with_config(controller::Config::default().concurrency(CONCURRENT))
        .owns(Api::<Deployment>::all(client.clone()), children.clone())
        .owns(Api::<Service>::all(client), children)
        .graceful_shutdown_on(shutdown);
    let clusters = controller.store();
    let run = controller
        .run(reconcile::reconcile, reconcile::retry, Arc::new(context))
        .for_each(|_| async {});
    let listed = async {
        // Fails only when the controller has ended, which the other branch tells.
        if clusters.wait_until_ready().await.is_ok() {
            gate.ready();
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = run => {}
        () = listed => {}
    }
    Ok(())
}
