//! One `SIPCluster`: validate → render → apply → status, in this order, every time.

mod apply;
mod ask;
mod attachments;
mod balancers;
mod check;
mod children;
mod conflict;
mod guards;
mod kept;
mod ownership;
mod pods;
mod reachability;
mod remove;
mod running;
mod said;
mod shown;
mod status;
mod templates;
mod turn;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use api::{
    Cluster, Placement, SIPCluster,
    conditions::{load_balancer::AVAILABLE, ready::PROGRESSING},
};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Pod, Service};
use kit::{
    apply::Manager,
    events::Events,
    retries::Retries,
    scheduler::{self, Scheduler},
};
use kube::{
    Client, Resource as _, ResourceExt as _,
    runtime::{controller::Action, reflector::Store},
};
use proto::inventory::v1 as wire;
use render::load_balancer::Sidecar;
use tokio::sync::watch;
use tonic::Status;

use apply::{Applied, Joined};
pub use children::Children;
pub use guards::Guards;
pub use pods::{owner_of, trim};
pub use reachability::Unserved;
pub use shown::Shown;
pub use templates::{CONTROL_PLANE, Place, Templates, WORKER};
pub use turn::Unlabelled;

/// Name under which this agent owns fields and publishes Events.
pub const MANAGER: Manager = Manager("sip-load-balancer-agent");
/// Pause after which a placement that the scheduler does not know is asked for again.
const RETRY: Duration = Duration::from_millis(500);
/// Pause after which what was refused is tried again: the port is free, or the network there.
const REFUSED_RETRY: Duration = Duration::from_secs(10);
/// Pause after which a cluster is looked at again of which nothing is heard. Nothing is written unless something has changed.
const LOOK_AGAIN: Duration = Duration::from_mins(5);

/// What every look at a cluster needs.
pub struct Context {
    /// The site's API server.
    pub client: Client,
    /// The region's scheduler.
    pub scheduler: Scheduler,
    /// Whether the watches have shown once what there is.
    pub listed: watch::Receiver<bool>,
    /// The site's clusters.
    pub clusters: Store<SIPCluster>,
    /// What was applied and is still as it was.
    pub children: Children,
    /// Every Service of the site.
    pub services: Store<Service>,
    /// The pods of load balancers.
    pub pods: Store<Pod>,
    /// Clusters with hosts that wait for their labels.
    pub unlabelled: Unlabelled,
    /// Load balancers behind which no member answers.
    pub unserved: Unserved,
    /// Templates of the site's people.
    pub templates: Templates,
    /// What makes a running HAProxy follow its configuration; without it, new pods start for every change.
    pub sidecar: Option<Sidecar>,
    /// Pauses after failures.
    pub retries: Retries,
    /// Events.
    pub events: Events,
}

/// Why a look at a cluster was cut short; it is tried again. What runs is left as it is.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not do what was asked.
    #[error("the API server: {action}")]
    Kubernetes {
        /// What was tried.
        action: &'static str,
        /// What it said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The scheduler did not answer.
    #[error("the scheduler: {} ({:?})", scheduler::reason(.0), .0.code())]
    Scheduler(Box<Status>),
}

impl Error {
    fn kubernetes(action: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Kubernetes {
            action,
            source: Box::new(source),
        }
    }
}

/// Looks at one cluster and does what is to be done now.
///
/// # Errors
/// What cut it short.
pub async fn reconcile(object: Arc<SIPCluster>, context: Arc<Context>) -> Result<Action, Error> {
    let action = look(&object, &context).await?;
    context.retries.succeeded(&*object);
    Ok(action)
}

async fn look(object: &SIPCluster, context: &Context) -> Result<Action, Error> {
    context.unlabelled.saw(object, Instant::now());
    if object.metadata.deletion_timestamp.is_some() {
        return remove::run(object, context).await;
    }
    if context.listed.clone().wait_for(|listed| *listed).await.is_err() {
        // The process ends.
        return Ok(Action::await_change());
    }
    // A spec that cannot be read is the cluster agent's to report; what runs is left as it is.
    let Ok(cluster) = Cluster::parse(object) else {
        return Ok(Action::await_change());
    };
    let wanted = balancers::wanted(&cluster);
    remove::superfluous(object, &wanted, context).await?;
    if wanted.is_empty() {
        status::withdraw(object, &context.client).await?;
        return Ok(Action::await_change());
    }
    let Some(held) = object
        .status
        .as_ref()
        .and_then(|status| status.placement.as_ref())
    else {
        // A new cluster is mostly placed at once; that it is not is worth a word once its own agent has said so.
        if status::is_decided(object) {
            status::waiting(object, &context.client).await?;
        }
        return Ok(Action::await_change());
    };
    let Some(placement) = placement(object, held, context).await? else {
        status::waiting(object, &context.client).await?;
        return Ok(Action::requeue(RETRY));
    };
    let members = balancers::members(held, &placement);
    let rendering = wanted
        .iter()
        .map(|balancer| templates::render(context, object, &cluster, *balancer, &members));
    let rendered = try_join_all(rendering.collect::<Vec<_>>()).await?;
    let joining = wanted
        .iter()
        .zip(rendered)
        .map(|(balancer, rendered)| apply::join(context, object, &cluster, *balancer, rendered));
    let joined = try_join_all(joining.collect::<Vec<_>>()).await?;
    // Hosts get their labels as soon as this is told: pods take their time.
    let told = status::joined(object, held, &joined, &context.client).await?;
    let object = told.as_ref().unwrap_or(object);
    let waits_since = joined.iter().flatten().filter_map(Joined::waits_since).min();
    let now = Instant::now();
    if waits_since.is_some_and(|since| !context.unlabelled.is_over(&context.clusters, since, now)) {
        return Ok(Action::requeue(turn::LOOK_AGAIN));
    }
    let running = joined
        .iter()
        .map(|joined| apply::run(context, object, &cluster, joined));
    let applied = try_join_all(running.collect::<Vec<_>>()).await?;
    report(object, held, &applied, context).await
}

/// What the scheduler says the cluster holds, not older than what the status says.
async fn placement(
    object: &SIPCluster,
    held: &Placement,
    context: &Context,
) -> Result<Option<proto::placement::v1::Placement>, Error> {
    let cluster = wire::ClusterRef {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
    };
    let seen = wire::Revision {
        epoch: held.epoch,
        revision: held.revision,
    };
    context
        .scheduler
        .placement(cluster, Some(seen))
        .await
        .map_err(|status| Error::Scheduler(Box::new(status)))
}

async fn report(
    object: &SIPCluster,
    held: &Placement,
    applied: &[Applied],
    context: &Context,
) -> Result<Action, Error> {
    let said = said::of(object, held, applied);
    let (reason, message) = (said.finding.reason, said.finding.message.clone());
    let worth_a_word = ![PROGRESSING, AVAILABLE].contains(&reason);
    if status::write(object, &context.client, said).await? && worth_a_word {
        context
            .events
            .warning(&object.object_ref(&()), reason, &message)
            .await;
    }
    let refused = applied.iter().any(Applied::is_tried_again);
    let again = applied
        .iter()
        .filter_map(Applied::ask_again)
        .chain(refused.then_some(REFUSED_RETRY))
        .min()
        .unwrap_or(LOOK_AGAIN);
    Ok(Action::requeue(again))
}

/// When a cluster whose look was cut short is looked at again.
#[must_use]
#[expect(clippy::needless_pass_by_value, reason = "the controller calls it so")]
pub fn retry(object: Arc<SIPCluster>, error: &Error, context: Arc<Context>) -> Action {
    let error = error as &dyn std::error::Error;
    tracing::warn!(
        namespace = object.namespace(),
        name = object.name_any(),
        error,
        "a cluster is tried again"
    );
    Action::requeue(context.retries.failed(&*object))
}
