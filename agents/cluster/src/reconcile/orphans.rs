//! Placements without a `SIPCluster`: an operator has released a host whose labels name one that does not exist, or the
//! scheduler releases what a late call has claimed. There is no object that a controller would reconcile.
//!
//! They take the same four steps as every cluster. Only what is releasing is acted on, and there is no status to write.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backon::ExponentialBackoff;
use kit::{placement::ObjectKey, scheduler::pauses};
use tokio::{sync::Notify, time::Instant};

use super::{
    act,
    context::Context,
    error::Error,
    observe::{self, Orphan},
    planner, report,
};
use crate::inventory::FirstList;

/// Clusters to reconcile. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Orphans {
    named: Arc<Mutex<BTreeSet<ObjectKey>>>,
    added: Arc<Notify>,
}

impl Orphans {
    /// The placement or a host of a cluster has changed, which may have no `SIPCluster`.
    pub fn add(&self, cluster: ObjectKey) {
        self.lock().insert(cluster);
        self.added.notify_one();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<ObjectKey>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut self.lock())
    }
}

/// Clusters that are reconciled again after a pause.
#[derive(Default)]
struct Requeued {
    at: BTreeMap<ObjectKey, Instant>,
    failing: BTreeMap<ObjectKey, ExponentialBackoff>,
}

impl Requeued {
    async fn next(&self) {
        match self.at.values().min() {
            Some(next) => tokio::time::sleep_until(*next).await,
            None => std::future::pending().await,
        }
    }

    fn due(&mut self, named: BTreeSet<ObjectKey>) -> BTreeSet<ObjectKey> {
        let now = Instant::now();
        let over = self.at.iter().filter(|(_, at)| **at <= now);
        let due: BTreeSet<ObjectKey> = over.map(|(cluster, _)| cluster.clone()).chain(named).collect();
        self.at.retain(|cluster, _| !due.contains(cluster));
        due
    }

    /// Requeues a cluster by how its pass ended.
    fn ended(&mut self, cluster: ObjectKey, outcome: Result<Option<Duration>, Error>) {
        let pause = match outcome {
            Ok(again) => {
                self.failing.remove(&cluster);
                again
            }
            Err(error) => {
                let ObjectKey { namespace, name } = &cluster;
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    namespace,
                    name,
                    error,
                    "releasing the hosts of a SIPCluster that is gone failed; requeued"
                );
                self.failing.entry(cluster.clone()).or_insert_with(pauses).next()
            }
        };
        if let Some(pause) = pause {
            self.at.insert(cluster, Instant::now() + pause);
        }
    }
}

/// Reconciles them, once all of `listed` is complete: every `SIPCluster`, and the first report of the site, by which the scheduler has raised
/// its epoch above what the site shows.
///
/// # Errors
/// None: it goes on until it is dropped.
pub async fn run(context: Arc<Context>, orphans: Orphans, listed: Vec<FirstList>) -> Result<(), Infallible> {
    for watch in listed {
        watch.wait().await;
    }
    let mut requeued = Requeued::default();
    loop {
        tokio::select! {
            () = orphans.added.notified() => {}
            () = requeued.next() => {}
        }
        for cluster in requeued.due(orphans.take()) {
            let outcome = pass(&cluster, &context).await;
            requeued.ended(cluster, outcome);
        }
    }
}

/// Unlabels, marks and confirms what is releasing. Returns when the next pass is due, if the watches may not tell.
async fn pass(cluster: &ObjectKey, context: &Context) -> Result<Option<Duration>, Error> {
    if context.inventory.has_cluster(cluster) {
        return Ok(None);
    }
    let Some(Orphan { holding, routed_by }) = observe::observe_orphan(cluster, context).await? else {
        return Ok(None);
    };
    let (plan, drains) = planner::plan_orphan(&holding, routed_by.is_none());
    let outcomes = act::act(None, &plan, context).await;
    report::report_orphan(outcomes, routed_by.filter(|_| drains))
}
