//! One `SIPCluster`: validate → render → apply → status, in this order, every time.

mod apply;
mod ask;
mod attachments;
mod balancers;
mod check;
mod children;
mod conflict;
mod drain;
mod existing;
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
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use api::{
    Cluster, Placement, SIPCluster,
    conditions::{LOAD_BALANCER_READY, load_balancer::AVAILABLE, ready::PROGRESSING},
};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Pod, Service};
use kit::{
    apply::Manager,
    conditions::Finding,
    events::Events,
    placement::{self, ClusterId, Position},
    retries::Retries,
    scheduler::{self, Scheduler},
};
use kube::{
    Client, Resource as _, ResourceExt as _,
    runtime::{controller::Action, reflector::Store},
};
use render::load_balancer::Sidecar;
use tokio::sync::watch;
use tonic::Status;

use apply::{Applied, Joined};
use balancers::Balancer;
pub use children::Children;
use drain::{Desired, Drain};
pub use guards::Guards;
pub use pods::{owner_of, trim};
pub use reachability::Unserved;
use said::Said;
pub use shown::Shown;
pub use templates::{CONTROL_PLANE, Place, Templates, WORKER};
pub use turn::Unlabelled;

/// Name under which this agent owns fields and publishes Events.
pub const MANAGER: Manager = Manager("sip-load-balancer-agent");
/// Pause after which a placement that the scheduler does not know is asked for again.
const RETRY: Duration = Duration::from_millis(500);
/// Pause after which it is looked whether a template has been checked.
const CHECK_AGAIN: Duration = Duration::from_secs(10);
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

/// How a pass over a cluster ended.
struct Pass {
    /// When the next one is due, if no watch tells before.
    again: Option<Duration>,
    /// Whether the API server, or a rule of the site, refused something: pauses between passes grow then.
    refused: bool,
}

impl Pass {
    /// The next one is due after a pause, if no watch tells before.
    fn again(again: impl Into<Option<Duration>>) -> Self {
        Self {
            again: again.into(),
            refused: false,
        }
    }
}

/// Looks at one cluster and does what is to be done now.
///
/// # Errors
/// What cut it short.
pub async fn reconcile(object: Arc<SIPCluster>, context: Arc<Context>) -> Result<Action, Error> {
    let Pass { again, refused } = look(&object, &context).await?;
    let pause = refused.then(|| context.retries.failed(&*object));
    if pause.is_none() {
        context.retries.succeeded(&*object);
    }
    let again = again.into_iter().chain(pause).min();
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

async fn look(object: &SIPCluster, context: &Context) -> Result<Pass, Error> {
    context.unlabelled.saw(object, Instant::now());
    if context.listed.clone().wait_for(|listed| *listed).await.is_err() {
        // The process ends.
        return Ok(Pass::again(None));
    }
    let deleting = object.metadata.deletion_timestamp.is_some();
    let none = Placement::default();
    let placed = object
        .status
        .as_ref()
        .and_then(|status| status.placement.as_ref());
    let held = placed.unwrap_or(&none);
    let made = remove::made(object, context);
    if deleting && held.members.is_empty() {
        return end(object, &made, context).await;
    }
    let services = context.services.state();
    let ports = existing::ports(object, services.iter().map(AsRef::as_ref));
    let cluster = Cluster::parse(object).map(|cluster| cluster.keep_names(&ports));
    let wanted = match &cluster {
        // One that is deleted keeps what it has, and gets nothing new.
        Ok(cluster) => balancers::wanted(cluster)
            .into_iter()
            .filter(|balancer| !deleting || made.contains(balancer.name()))
            .collect(),
        // A spec that cannot be read is the cluster agent's to report; what runs is left as it is.
        Err(_) if !deleting => return leave(object, held, context).await,
        Err(_) => Vec::new(),
    };
    let names: BTreeSet<&str> = wanted.iter().map(Balancer::name).collect();
    let superfluous = made.iter().map(String::as_str);
    remove::delete(object, superfluous.filter(|name| !names.contains(name)), context).await?;
    match &cluster {
        Ok(cluster) if !wanted.is_empty() => serve(object, cluster, &wanted, placed, context).await,
        Ok(_) | Err(_) => withdraw(object, held, context).await,
    }
}

/// A cluster that is deleted and holds no hosts any more: its load balancers go.
async fn end(object: &SIPCluster, made: &BTreeSet<String>, context: &Context) -> Result<Pass, Error> {
    remove::delete(object, made.iter().map(String::as_str), context).await?;
    if !made.is_empty() || status::answered(object) {
        let drained = object.status.as_ref().and_then(|status| status.drained);
        status::write(object, &context.client, status::removed(drained)).await?;
    }
    Ok(Pass::again(None))
}

/// Nothing is changed; hosts that leave are given back where no load balancer runs.
async fn leave(object: &SIPCluster, held: &Placement, context: &Context) -> Result<Pass, Error> {
    let drain = drain::look(context, object, held, &Desired::new()).await;
    status::drained(object, &context.client, drain.known()).await?;
    Ok(Pass::again(drain.again()))
}

/// No load balancer is asked for, and every one that there was is deleted. Its pods may still end.
async fn withdraw(object: &SIPCluster, held: &Placement, context: &Context) -> Result<Pass, Error> {
    let drain = drain::look(context, object, held, &Desired::new()).await;
    let said = if object.metadata.deletion_timestamp.is_some() && status::answered(object) {
        status::removed(drain.known())
    } else {
        Said {
            finding: drain
                .lack()
                .map(|lack| Finding::no(LOAD_BALANCER_READY, lack.reason, lack.message)),
            applied: Vec::new(),
            endpoints: Vec::new(),
            drained: drain.known(),
        }
    };
    status::write(object, &context.client, said).await?;
    Ok(Pass::again(drain.again()))
}

/// Renders and applies the load balancers that are asked for. The status is written once at most: when something is said that
/// others wait for, what comes after it is for the next pass, which the write brings about.
async fn serve(
    object: &SIPCluster,
    cluster: &Cluster,
    wanted: &[Balancer<'_>],
    held: Option<&Placement>,
    context: &Context,
) -> Result<Pass, Error> {
    let deleting = object.metadata.deletion_timestamp.is_some();
    let Some(held) = held else {
        // A new cluster is mostly placed at once; that it is not is worth a word once its own agent has said so.
        if status::is_decided(object) {
            status::waiting(object, &context.client).await?;
        }
        return Ok(Pass::again(None));
    };
    let Some(placement) = placement(object, held, context).await? else {
        status::waiting(object, &context.client).await?;
        return Ok(Pass::again(RETRY));
    };
    let members = balancers::members(held, &placement);
    let rendering = wanted
        .iter()
        .map(|balancer| templates::render(context, object, cluster, *balancer, &members));
    let rendered = try_join_all(rendering.collect::<Vec<_>>()).await?;
    let joining = wanted
        .iter()
        .zip(rendered)
        .map(|(balancer, rendered)| apply::join(context, object, cluster, *balancer, rendered));
    let joined = try_join_all(joining.collect::<Vec<_>>()).await?;
    if deleting && joined.iter().any(Result::is_err) {
        // It cannot be made to let go of the hosts, and there will be nothing to balance: its pods have to end. The status no
        // longer names it as applied, so the next pass does not ask for it.
        let refused = wanted.iter().zip(&joined).filter(|(_, joined)| joined.is_err());
        remove::delete(object, refused.map(|(balancer, _)| balancer.name()), context).await?;
    }
    if status::joined(object, held, &joined, &context.client).await? {
        return Ok(Pass::again(LOOK_AGAIN));
    }
    let waits_since = joined.iter().flatten().filter_map(Joined::waits_since).min();
    let now = Instant::now();
    if waits_since.is_some_and(|since| !context.unlabelled.is_over(&context.clusters, since, now)) {
        return Ok(Pass::again(turn::LOOK_AGAIN));
    }
    let running = joined
        .iter()
        .map(|joined| apply::run(context, object, cluster, joined));
    let applied = try_join_all(running.collect::<Vec<_>>()).await?;
    let desired = joined
        .iter()
        .flatten()
        .map(|joined| (joined.name().to_owned(), joined.config_digest()));
    let drain = drain::look(context, object, held, &desired.collect()).await;
    if deleting && drain.lack().is_some() {
        // No pod has members any more that take connections, and one of them does not follow: they have to end.
        remove::delete(object, wanted.iter().map(Balancer::name), context).await?;
        return Ok(Pass::again(RETRY));
    }
    report(object, held, &applied, &drain, context).await
}

/// What the scheduler says the cluster holds, not older than what the status says.
async fn placement(
    object: &SIPCluster,
    held: &Placement,
    context: &Context,
) -> Result<Option<placement::Placement>, Error> {
    let seen = Position::new(held.epoch, held.revision);
    context
        .scheduler
        .placement(&ClusterId::for_object(object), Some(seen))
        .await
        .map_err(|status| Error::Scheduler(Box::new(status)))
}

async fn report(
    object: &SIPCluster,
    held: &Placement,
    applied: &[Applied],
    drain: &Drain,
    context: &Context,
) -> Result<Pass, Error> {
    let generation = object.metadata.generation.unwrap_or_default();
    let said = said::of(generation, held, applied, drain);
    let word = said
        .finding
        .clone()
        .filter(|finding| ![PROGRESSING, AVAILABLE].contains(&finding.reason));
    if status::write(object, &context.client, said).await?
        && let Some(Finding { reason, message, .. }) = word
    {
        context
            .events
            .warning(&object.object_ref(&()), reason.as_str(), &message)
            .await;
    }
    let checked = applied.iter().any(Applied::is_checked);
    let again = applied
        .iter()
        .filter_map(Applied::ask_again)
        .chain(checked.then_some(CHECK_AGAIN))
        .chain(drain.again())
        .min()
        .unwrap_or(LOOK_AGAIN);
    Ok(Pass {
        again: Some(again),
        refused: applied.iter().any(Applied::is_refused),
    })
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
