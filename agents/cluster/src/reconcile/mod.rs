//! One `SIPCluster`: validate → declare → write status → act on hosts, in this order, every time.
//!
//! Nothing acts on a claim before the status holds it. Labels come last: they are what Cluster API consumes.

mod consumers;
mod delete;
mod error;
mod events;
mod finalizer;
mod findings;
pub mod hosts;
mod machines;
mod metrics;
pub mod need;
mod orphans;
mod pods;
mod services;
mod status;
mod triggers;
mod unseen;

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use api::{
    Cluster, SIPCluster,
    conditions::{self, Reason},
};
use kit::{
    apply::Manager,
    conditions::Finding,
    config::Section,
    events::Events,
    placement::{ClusterId, Placement, Position},
    retries::Retries,
    scheduler::{self, Scheduler},
};
use kube::{Client, Resource as _, ResourceExt as _, runtime::controller::Action};
use tonic::{Code, Status};

pub use error::Error;
pub use metrics::Metrics;
pub use orphans::{Orphans, run as look_after_orphans};
pub use services::is_drained;
pub use triggers::Triggers;
pub use unseen::Unseen;

use crate::{
    fence::{self, Fence},
    inventory::{Inventory, Key},
};
use hosts::{Step, Taken, Writer};
use machines::Machines;
use metrics::{Answer, Look};
use need::Need;

/// Name under which this agent owns fields and publishes Events.
pub const MANAGER: Manager = Manager("sip-cluster-agent");

/// What every look at a cluster needs.
pub struct Context {
    /// The site's API server.
    pub client: Client,
    /// The region's scheduler.
    pub scheduler: Scheduler,
    /// What the site has.
    pub inventory: Inventory,
    /// What makes a cluster be looked at.
    pub triggers: Triggers,
    /// Hosts that were written, and not seen since.
    pub unseen: Unseen,
    /// When a release may be confirmed.
    pub fence: Fence,
    /// Pauses after failures.
    pub retries: Retries,
    /// What is counted.
    pub metrics: Metrics,
    /// Events.
    pub events: Events,
    /// Sections that no agent of the site serves.
    pub not_installed: BTreeSet<Section>,
}

/// Pause after which a `SIPCluster` that has changed under a write is reconciled again, should the watch not have delivered
/// it by then.
const CHANGED: Duration = Duration::from_secs(2);

/// Looks at one cluster and does what is to be done now.
///
/// # Errors
/// What cut it short.
pub async fn reconcile(object: Arc<SIPCluster>, context: Arc<Context>) -> Result<Action, Error> {
    let began = Instant::now();
    let looked = match look(&object, &context).await {
        // Nothing has failed: the watch delivers what has changed, and that is reconciled then.
        Err(Error::Changed) => Ok(Action::requeue(CHANGED)),
        Err(Error::Gone) => Ok(Action::await_change()),
        other => other,
    };
    let outcome = match &looked {
        Ok(_) => Look::Done,
        Err(Error::Kubernetes { .. } | Error::Drains(_) | Error::Changed | Error::Gone) => Look::Kubernetes,
        Err(Error::Scheduler(_) | Error::OldEpoch { .. } | Error::OldRevision { .. }) => Look::Scheduler,
    };
    context.metrics.looked(outcome, began.elapsed());
    let action = looked?;
    context.retries.succeeded(&*object);
    Ok(action)
}

async fn look(object: &SIPCluster, context: &Context) -> Result<Action, Error> {
    if object.metadata.deletion_timestamp.is_some() {
        return delete::run(object, context).await;
    }
    let cluster = match Cluster::parse(object) {
        Ok(cluster) => cluster,
        Err(invalid) => return refuse(object, context, &invalid.to_string()).await,
    };
    let version = finalizer::ensure(&context.client, object).await?;
    let observed;
    let object = if version == object.metadata.resource_version {
        object
    } else {
        let mut finalized = object.clone();
        finalized.metadata.resource_version = version;
        observed = finalized;
        &observed
    };
    let answer = context
        .scheduler
        .apply(&cluster, object.creation_timestamp().as_ref())
        .await;
    context.metrics.answered(match &answer {
        Ok(placement) if placement.refusal().is_some() => Answer::Refused,
        Ok(_) => Answer::Placed,
        Err(status) if status.code() == Code::InvalidArgument => Answer::Invalid,
        Err(_) => Answer::Failed,
    });
    let placement = match answer {
        Ok(placement) => placement,
        Err(status) if status.code() == Code::InvalidArgument => {
            return refuse(object, context, &scheduler::reason(&status)).await;
        }
        Err(status) => return Err(stale(object, context, status).await),
    };
    act(object, &cluster, &placement, context).await
}

/// A spec that cannot be acted on: the condition and an Event say why. What runs is left as it is.
async fn refuse(object: &SIPCluster, context: &Context, why: &str) -> Result<Action, Error> {
    let own = status::Own {
        findings: vec![
            Finding::no(conditions::SCHEDULED, Reason::InvalidSpec, why),
            Finding::no(conditions::READY, conditions::ready::UNSCHEDULABLE, why),
        ]
        .into_iter()
        .chain(findings::kept(
            object,
            &[conditions::HOSTS_LABELED, conditions::SERVICES_SKIPPED],
        ))
        .collect(),
        ..status::Own::default()
    };
    if write(object, context, own).await?.is_some() {
        context
            .events
            .warning(&object.object_ref(&()), Reason::InvalidSpec.as_str(), why)
            .await;
    }
    Ok(Action::await_change())
}

/// The scheduler cannot be asked: everything stays as it is, and an Event says so.
async fn stale(object: &SIPCluster, context: &Context, status: Status) -> Error {
    if status.code() == Code::Unavailable && object.status.is_some() {
        let note = format!(
            "the scheduler cannot be asked, everything stays as it is: {}",
            scheduler::reason(&status)
        );
        context
            .events
            .warning(&object.object_ref(&()), "Stale", &note)
            .await;
    }
    Error::Scheduler(Box::new(status))
}

/// Writes the status if it differs, to the object as it was observed. Returns the object that was written.
async fn write(
    object: &SIPCluster,
    context: &Context,
    own: status::Own,
) -> Result<Option<SIPCluster>, Error> {
    status::write(&context.client, MANAGER, object, own)
        .await
        .map_err(Error::write("write the status"))
}

/// Writes the placement into the status, and then acts on the hosts.
async fn act(
    object: &SIPCluster,
    cluster: &Cluster,
    placement: &Placement,
    context: &Context,
) -> Result<Action, Error> {
    never_older(object, placement)?;
    let key = key(object);
    context.triggers.holds(
        &key,
        placement
            .members()
            .iter()
            .map(|member| member.host().key().clone())
            .collect(),
    );
    let (gating, skipped) = services::sections(cluster, &context.not_installed);
    let reference = ClusterId::for_object(object);
    let epoch = placement.position().epoch();
    let steps: Vec<Step<'_>> = placement
        .members()
        .iter()
        .map(|member| {
            let served = services::served(cluster, &context.not_installed, object, epoch, member);
            Step::of(&reference, member, &context.inventory, served)
        })
        .collect();
    let mut machines = Machines::of(object, &steps, context).await;
    machines.keep_others(object, context).await;
    let wanted = cluster
        .roles()
        .iter()
        .map(|role| (role.name().as_str().to_owned(), role.wanted()));
    let mut told = status::placement(placement);
    machines.name(&mut told);
    let mut own = status::Own {
        findings: findings::all(object, placement, (&steps, &machines), &gating, &skipped),
        placement: Some(told),
        counts: Some(status::counts(placement, wanted)),
    };
    // What the status says already may be acted on before it is written again: a host that is written comes back by the
    // watch, and is told of then.
    let held = holds(object, placement);
    if held
        && steps
            .iter()
            .any(|step| matches!(step.need, Need::Label | Need::Unlabel))
    {
        let (again, refused) = act_on_hosts(object, placement, &steps, context).await?;
        return match again {
            None => Ok(Action::await_change()),
            Some(again) => {
                findings::refuse(&mut own.findings, &refused);
                write(object, context, own).await?;
                Ok(Action::requeue(again))
            }
        };
    }
    let before = findings::scheduled(object);
    let written = write(object, context, own.clone()).await?;
    if written.is_some() {
        events::publish(object, placement, before.as_deref(), context).await;
    }
    machines.ask(object, context).await;
    let (again, refused) = act_on_hosts(object, placement, &steps, context).await?;
    if !refused.is_empty() {
        findings::refuse(&mut own.findings, &refused);
        write(written.as_ref().unwrap_or(object), context, own).await?;
    }
    let pending = findings::revisit(object, &gating);
    Ok([again, pending, machines.again()]
        .into_iter()
        .flatten()
        .min()
        .map_or_else(Action::await_change, Action::requeue))
}

/// Whether the status holds exactly this placement.
fn holds(object: &SIPCluster, placement: &Placement) -> bool {
    let position = placement.position();
    let held = object
        .status
        .as_ref()
        .and_then(|status| status.placement.as_ref());
    held.is_some_and(|held| Position::new(held.epoch, held.revision) == position)
}

/// An agent never acts on an older epoch than it has seen, nor on an older placement than the status has.
fn never_older(object: &SIPCluster, placement: &Placement) -> Result<(), Error> {
    let held = object
        .status
        .as_ref()
        .and_then(|status| status.placement.as_ref());
    let Some(held) = held else {
        return Ok(());
    };
    let (epoch, revision) = (placement.position().epoch(), placement.position().revision());
    match epoch.cmp(&held.epoch) {
        Ordering::Less => Err(Error::OldEpoch {
            answered: epoch,
            seen: held.epoch,
        }),
        Ordering::Equal if revision < held.revision => Err(Error::OldRevision {
            epoch,
            answered: revision,
            seen: held.revision,
        }),
        Ordering::Equal | Ordering::Greater => Ok(()),
    }
}

/// Labels hosts that join, and releases hosts that leave. Returns when to look again, if the watches may not
/// tell, and which hosts the API server has refused to write.
async fn act_on_hosts(
    object: &SIPCluster,
    placement: &Placement,
    steps: &[Step<'_>],
    context: &Context,
) -> Result<(Option<Duration>, Vec<(Key, String)>), Error> {
    let cluster = ClusterId::for_object(object);
    let writer = Writer {
        client: &context.client,
        manager: MANAGER,
        cluster: &cluster,
        unseen: &context.unseen,
        metrics: &context.metrics,
    };
    let Taken {
        again,
        refused,
        released,
    } = writer.take(steps).await;
    for (Key { namespace, name }, words) in &refused {
        let note = format!("BareMetalHost {namespace}/{name} cannot be written: {words}");
        context
            .events
            .warning(&object.object_ref(&()), "UnableToApplyLabels", &note)
            .await;
    }
    confirm(&cluster, released, context).await?;
    if placement.members().is_empty() {
        context.triggers.holds(&key(object), BTreeSet::new());
    }
    Ok((again, refused))
}

/// Tells the scheduler which hosts were given back and cannot be claimed by late patches any more.
async fn confirm(
    cluster: &ClusterId,
    released: Vec<fence::Released>,
    context: &Context,
) -> Result<(), Error> {
    let confirmed = context.fence.confirmed(cluster, released, &context.client).await;
    let confirmed = confirmed.map_err(Error::kubernetes("read a host that was given back"))?;
    if confirmed.is_empty() {
        return Ok(());
    }
    let confirmed = context.scheduler.confirm(cluster, &confirmed).await;
    confirmed
        .map(drop)
        .map_err(|status| Error::Scheduler(Box::new(status)))
}

fn key(object: &SIPCluster) -> Key {
    Key {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    }
}

/// When a cluster whose look was cut short is looked at again.
#[must_use]
#[expect(clippy::needless_pass_by_value, reason = "the controller calls it so")]
pub fn retry(object: Arc<SIPCluster>, error: &Error, context: Arc<Context>) -> Action {
    let cluster = key(&object);
    let error = error as &dyn std::error::Error;
    tracing::warn!(
        namespace = cluster.namespace,
        name = cluster.name,
        error,
        "a cluster is tried again"
    );
    Action::requeue(context.retries.failed(&*object))
}
