//! The process: one controller over `SIPCluster`s and the objects made for them.

use std::{convert::Infallible, sync::Arc};

use api::SIPCluster;
use futures::{StreamExt as _, channel::mpsc, try_join};
use k8s_openapi::api::core::v1::Pod;
use kit::{
    clusters,
    events::Events,
    retries::{Retries, watch_pauses},
    scheduler::Scheduler,
    start::{Agent, AgentArgs},
};
use kube::{
    Client,
    runtime::{
        controller,
        reflector::{ObjectRef, store::Writer},
    },
};
use render::load_balancer::Sidecar;
use tokio::sync::watch;

use crate::{
    reconcile::{self, Children, Context, MANAGER, Templates, Unlabelled, Unserved},
    watches::{self, Stores},
};

/// Clusters that are looked at at once.
const CONCURRENT: u16 = 16;

/// Clusters that are named at once as those of which something else is known.
const CHANGES: usize = 256;

/// The load-balancer agent of a site: HAProxy for the tenants' API servers and workers.
#[derive(Debug, clap::Parser)]
#[command(name = "sip-load-balancer-agent", version)]
pub struct Args {
    #[command(flatten)]
    agent: AgentArgs,
}

/// Where it works, and with what.
struct Of {
    scheduler: Scheduler,
    /// The agents' own.
    namespace: String,
    sidecar: Option<Sidecar>,
}

/// The pods, and what they say.
struct Pods {
    seen: Writer<Pod>,
    unserved: Unserved,
    changes: mpsc::Receiver<ObjectRef<SIPCluster>>,
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
    let shutdown = agent.process.shutdown.clone();
    let scheduler = agent.scheduler.clone();
    let namespace = agent.namespace(&client);
    let sidecar = agent
        .config
        .haproxy_sidecar_image()
        .map(|image| Sidecar { image: image.clone() });
    let (pods, unserved) = (Writer::default(), Unserved::default());
    let (changed, changes) = mpsc::channel(CHANGES);
    let asking = unserved.clone().watch(pods.as_reader(), changed);
    agent.process.tasks.spawn_endless("reachability", asking);
    let pods = Pods {
        seen: pods,
        unserved,
        changes,
    };
    agent.process.tasks.spawn("controller", async move {
        let of = Of {
            scheduler,
            namespace,
            sidecar,
        };
        control(client, of, pods, watching, shutdown.cancelled_owned()).await
    });
    agent.run(Some(elected)).await
}

async fn control(
    client: Client,
    Of {
        scheduler,
        namespace,
        sidecar,
    }: Of,
    pods: Pods,
    gate: runtime::readiness::Gate,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) -> Result<(), Infallible> {
    let Pods {
        seen: pods,
        unserved,
        changes,
    } = pods;
    let controller = clusters::controller(&client)
        .with_config(controller::Config::default().concurrency(CONCURRENT))
        .trigger_backoff(watch_pauses());
    let (controller, stores) = watches::add(controller, &client, &namespace, pods);
    let controller = controller.reconcile_on(changes).graceful_shutdown_on(shutdown);
    let clusters = controller.store();
    let (all_listed, listed) = watch::channel(false);
    let Stores {
        deployments,
        services,
        secrets,
        guards,
        pods,
        templates,
    } = stores.clone();
    let context = Context {
        client: client.clone(),
        listed,
        clusters: clusters.clone(),
        templates: Templates::new(client.clone(), &namespace, templates, deployments.clone()),
        children: Children::new(deployments, services.clone(), secrets, guards),
        services,
        pods,
        unlabelled: Unlabelled::default(),
        unserved,
        sidecar,
        scheduler,
        retries: Retries::default(),
        events: Events::new(client, MANAGER.0),
    };
    let run = controller
        .run(reconcile::reconcile, reconcile::retry, Arc::new(context))
        .for_each(|_| async {});
    let listing = async {
        // Fails only when the controller has ended, which the other branch tells.
        if try_join!(clusters.wait_until_ready(), stores.listed()).is_ok() {
            all_listed.send_replace(true);
            gate.ready();
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = run => {}
        () = listing => {}
    }
    Ok(())
}
