//! The process: one controller over `SIPCluster`s and the objects made for them.

use std::{convert::Infallible, sync::Arc};

use api::{SIPCluster, labels};
use futures::{Stream, StreamExt as _, channel::mpsc, try_join};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod, Service},
};
use kit::{
    events::Events,
    retries::{Retries, watch_pauses},
    scheduler::Scheduler,
    start::{Agent, AgentArgs},
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    runtime::{
        Controller, WatchStreamExt as _, controller,
        reflector::{
            ObjectRef, Store,
            store::{Writer, WriterDropped},
        },
        watcher,
    },
};
use render::load_balancer::Sidecar;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::reconcile::{
    self, CONTROL_PLANE, Children, Context, MANAGER, Place, SecretMeta, Templates, Unlabelled, Unserved,
    WORKER,
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
    let (deployments, services, secrets) = (Writer::default(), Writer::default(), Writer::default());
    let (control_plane, worker) = (Writer::default(), Writer::default());
    let Pods {
        seen: pods,
        unserved,
        changes,
    } = pods;
    let made = || {
        watcher::Config::default().labels(&format!(
            "{}={},{}={}",
            labels::PART_OF,
            labels::PART_OF_SIP,
            labels::COMPONENT,
            labels::COMPONENT_LOAD_BALANCER
        ))
    };
    let seen = (deployments.as_reader(), services.as_reader(), pods.as_reader());
    let configurations = secrets.as_reader();
    let texts = (control_plane.as_reader(), worker.as_reader());
    let templates = Templates::new(client.clone(), &namespace, texts.clone(), deployments.as_reader());
    let written = |place: Place, writer| {
        let by_name = watcher::Config::default().fields(&format!("metadata.name={}", place.name));
        touched(
            Api::<ConfigMap>::namespaced(client.clone(), &namespace),
            by_name,
            writer,
        )
    };
    // All Services: whose a node port is says its own, whoever made it.
    let every_service = watcher::Config::default();
    let controller = Controller::new(Api::<SIPCluster>::all(client.clone()), watcher::Config::default());
    let clusters = controller.store();
    let every_cluster = move |_| {
        clusters
            .state()
            .into_iter()
            .map(|cluster| ObjectRef::from_obj(&*cluster))
    };
    let controller = controller
        .with_config(controller::Config::default().concurrency(CONCURRENT))
        .trigger_backoff(watch_pauses())
        .owns_stream(touched(
            Api::<Deployment>::all(client.clone()),
            made(),
            deployments,
        ))
        .owns_stream(touched(
            Api::<Service>::all(client.clone()),
            every_service,
            services,
        ))
        .owns_stream(touched(Api::<SecretMeta>::all(client.clone()), made(), secrets))
        .watches_stream(
            touched(Api::<Pod>::all(client.clone()), made(), pods),
            reconcile::owner_of,
        )
        .watches_stream(written(CONTROL_PLANE, control_plane), every_cluster.clone())
        .watches_stream(written(WORKER, worker), every_cluster)
        .reconcile_on(changes)
        .graceful_shutdown_on(shutdown);
    let stores = Stores {
        clusters: controller.store(),
        deployments: seen.0.clone(),
        services: seen.1.clone(),
        secrets: configurations.clone(),
        templates: texts,
    };
    let (all_listed, listed) = watch::channel(false);
    let context = Context {
        client: client.clone(),
        listed,
        clusters: controller.store(),
        children: Children::new(seen.0, seen.1.clone(), configurations),
        services: seen.1,
        pods: seen.2,
        unlabelled: Unlabelled::default(),
        unserved,
        templates,
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
        if listed_all(stores).await.is_ok() {
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

/// What has to be known before anything is done.
struct Stores {
    clusters: Store<SIPCluster>,
    deployments: Store<Deployment>,
    services: Store<Service>,
    secrets: Store<SecretMeta>,
    templates: (Store<ConfigMap>, Store<ConfigMap>),
}

/// Waits until every watch has shown once what there is. A store wakes one of those that wait for it: this is the only one.
async fn listed_all(stores: Stores) -> Result<(), WriterDropped> {
    let Stores {
        clusters,
        deployments,
        services,
        secrets,
        templates: (control_plane, worker),
    } = stores;
    try_join!(
        clusters.wait_until_ready(),
        deployments.wait_until_ready(),
        services.wait_until_ready(),
        secrets.wait_until_ready(),
        control_plane.wait_until_ready(),
        worker.wait_until_ready(),
    )
    .map(drop)
}

/// A watch that fills a store and names what changes.
fn touched<K>(
    api: Api<K>,
    config: watcher::Config,
    writer: Writer<K>,
) -> impl Stream<Item = Result<K, watcher::Error>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    let trimmed = watcher::watcher(api, config)
        .backoff(watch_pauses())
        .modify(|object| object.managed_fields_mut().clear());
    trimmed.reflect(writer).touched_objects()
}
