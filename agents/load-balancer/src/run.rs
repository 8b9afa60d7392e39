//! The process: one controller over `SIPCluster`s and the objects made for them.

use std::{convert::Infallible, sync::Arc};

use api::{SIPCluster, labels};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kit::{
    events::Events,
    retries::{Retries, watch_pauses},
    start::{Agent, AgentArgs},
};
use kube::{
    Api, Resource, ResourceExt as _,
    runtime::{Controller, WatchStreamExt as _, controller, reflector, watcher},
};
use serde::de::DeserializeOwned;

use crate::reconcile::{self, Children, Context, MANAGER};

/// Clusters that are looked at at once.
const CONCURRENT: u16 = 16;

/// The load-balancer agent of a site: HAProxy for the tenants' API servers and workers.
#[derive(Debug, clap::Parser)]
#[command(name = "sip-load-balancer-agent", version)]
pub struct Args {
    #[command(flatten)]
    agent: AgentArgs,
}

/// What the controller takes over.
struct Running {
    context: Context,
    deployments: reflector::store::Writer<Deployment>,
    services: reflector::store::Writer<Service>,
}

/// Runs until a signal comes or a part fails.
///
/// # Errors
/// Why the process could not start, or what failed.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let mut agent = Agent::start("sip-load-balancer-agent", env!("CARGO_PKG_VERSION"), &args.agent).await?;
    let client = agent.kubernetes().await?;
    let Some(elected) = agent.elected(&client).await else {
        return agent.run(None).await;
    };
    let watching = agent.process.readiness.gate("controller");
    let (deployments, services) = (
        reflector::store::Writer::default(),
        reflector::store::Writer::default(),
    );
    let context = Context {
        client: client.clone(),
        children: Children::new(deployments.as_reader(), services.as_reader()),
        scheduler: agent.scheduler.clone(),
        retries: Retries::default(),
        events: Events::new(client, MANAGER.0),
    };
    let running = Running {
        context,
        deployments,
        services,
    };
    let shutdown = agent.process.shutdown.clone();
    agent.process.tasks.spawn("controller", async move {
        control(running, watching, shutdown.cancelled_owned()).await
    });
    agent.run(Some(elected)).await
}

async fn control(
    agent: Running,
    gate: runtime::readiness::Gate,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) -> Result<(), Infallible> {
    let Running {
        context,
        deployments,
        services,
    } = agent;
    let client = context.client.clone();
    let children = watcher::Config::default().labels(&format!(
        "{}={},{}={}",
        labels::PART_OF,
        labels::PART_OF_SIP,
        labels::COMPONENT,
        labels::COMPONENT_LOAD_BALANCER
    ));
    let deployments = watch(
        Api::<Deployment>::all(client.clone()),
        children.clone(),
        deployments,
    );
    let services = watch(Api::<Service>::all(client.clone()), children, services);
    let controller = Controller::new(Api::<SIPCluster>::all(client), watcher::Config::default())
        .with_config(controller::Config::default().concurrency(CONCURRENT))
        .trigger_backoff(watch_pauses())
        .owns_stream(deployments)
        .owns_stream(services)
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

/// A watch that fills a store and names what changes.
fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    writer: reflector::store::Writer<K>,
) -> impl Stream<Item = Result<K, watcher::Error>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    let trimmed = watcher::watcher(api, config)
        .backoff(watch_pauses())
        .modify(|object| object.managed_fields_mut().clear());
    trimmed.reflect(writer).touched_objects()
}
