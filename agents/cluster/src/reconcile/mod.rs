//! One `SIPCluster`: observe → plan → act → report, each once in a pass.
//!
//! | step | does | needs a client |
//! |---|---|---|
//! | [`observe`] | calls the scheduler, reads the stores and Machines | yes |
//! | [`planner`] | decides what the pass does | no: pure |
//! | [`act`] | executes that, and collects the outcomes | yes |
//! | [`report`] | writes the status, once; Events; metrics | yes |
//!
//! Nothing acts on a claim before the status holds it: the pass that writes a placement to the status writes no host, and the
//! watch triggers the next one. Labels are written last: they are what Cluster API consumes.

pub mod host_actions;
pub mod label_or_release;

mod act;
mod advice;
mod cluster_deletion;
mod context;
mod declared;
mod error;
mod event;
mod finalizer;
mod findings;
mod host_users;
mod machine;
mod members;
mod metrics;
mod named_objects;
mod node_drain;
mod observation;
mod observe;
mod orphans;
mod outcomes;
mod pending_writes;
mod placement_events;
mod plan;
mod planner;
mod pods_without_agent;
mod report;
mod scaling;
mod served_cluster;
mod services;
mod status;
mod status_draft;
mod summary;
mod write_probe;

#[cfg(test)]
mod fixtures;

use std::{sync::Arc, time::Duration};

use api::SIPCluster;
use kit::placement::ObjectKey;
use kube::runtime::{controller::Action, reflector::Store};

pub use context::{Context, MANAGER};
pub use error::Error;
pub use members::is_succeeded;
pub use metrics::Metrics;
pub use observe::not_older;
pub use orphans::{Orphans, run as reconcile_orphans};
pub use pending_writes::PendingWrites;
pub use scaling::Contests;
pub use services::is_drained;
pub use write_probe::run as probe_refused_hosts;

use self::observation::State;

/// Reconciles one cluster once [`kit::shares::Shares`] admits the pass, as the store has the cluster by then.
///
/// # Errors
/// What ended the pass early.
pub async fn reconcile(
    clusters: Store<SIPCluster>,
    object: Arc<SIPCluster>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let Some(admitted) = context.shares.admit(&clusters, object).await else {
        return Ok(Action::await_change());
    };
    let object = &*admitted.object;
    let counted = context.reconciles.begin();
    let result = pass(object, &context).await;
    report::finish(object, result, counted, &context).await
}

async fn pass(object: &SIPCluster, context: &Context) -> Result<Option<Duration>, Error> {
    let observation = observe::observe(object, context).await?;
    let plan = planner::plan(&observation);
    let outcomes = act::act(Some(object), &plan, context).await;
    let requeue = report::report(object, plan, outcomes, context).await?;
    match observation.state {
        // No event reports when the site has room again, so the pass counts as failed, and the controller requeues it with backoff.
        State::SiteFull(status) => Err(Error::Scheduler(status)),
        State::Invalid(_)
        | State::WithoutFinalizer
        | State::Declared(..)
        | State::Releasing(..)
        | State::Released => Ok(requeue),
    }
}

/// When a cluster whose pass ended early is reconciled again.
#[must_use]
#[expect(clippy::needless_pass_by_value, reason = "the controller calls it so")]
pub fn error_policy(object: Arc<SIPCluster>, error: &Error, context: Arc<Context>) -> Action {
    let ObjectKey { namespace, name } = ObjectKey::for_object(&*object);
    let error = error as &dyn std::error::Error;
    tracing::warn!(
        namespace,
        name,
        error,
        "reconciling a SIPCluster failed; requeued"
    );
    Action::requeue(context.retries.failed(&*object))
}
