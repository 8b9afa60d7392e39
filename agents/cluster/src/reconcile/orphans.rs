//! Placements without a `SIPCluster`: an operator has released a host whose labels name one that does not exist, or the
//! scheduler gives back what a late call has claimed. Nobody else looks after these: there is no object to look at.
//!
//! Only what is on its way out is acted on, as for every cluster; there is no status to write.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backon::ExponentialBackoff;
use kit::placement::{ClusterId, Member};
use kit::{config::Section, scheduler::pauses};
use tokio::{sync::Notify, time::Instant};

use super::{
    Context, Error,
    hosts::{Step, Writer},
    need::Need,
    pods,
};
use crate::inventory::{Key, Listed};

/// Clusters whose placement is to be looked at. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Orphans {
    named: Arc<Mutex<BTreeSet<Key>>>,
    told: Arc<Notify>,
}

impl Orphans {
    /// The placement or a host of a cluster has changed, which may have no `SIPCluster`.
    pub fn name(&self, cluster: Key) {
        self.lock().insert(cluster);
        self.told.notify_one();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<Key>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> BTreeSet<Key> {
        std::mem::take(&mut self.lock())
    }
}

/// Clusters that are looked at again by themselves.
#[derive(Default)]
struct Later {
    at: BTreeMap<Key, Instant>,
    failing: BTreeMap<Key, ExponentialBackoff>,
}

impl Later {
    async fn comes(&self) {
        match self.at.values().min() {
            Some(next) => tokio::time::sleep_until(*next).await,
            None => std::future::pending().await,
        }
    }

    fn due(&mut self, named: BTreeSet<Key>) -> BTreeSet<Key> {
        let now = Instant::now();
        let over = self.at.iter().filter(|(_, at)| **at <= now);
        let due: BTreeSet<Key> = over.map(|(cluster, _)| cluster.clone()).chain(named).collect();
        self.at.retain(|cluster, _| !due.contains(cluster));
        due
    }

    /// Takes in how a look ended.
    fn looked(&mut self, cluster: Key, outcome: Result<Option<Duration>, Error>) {
        let pause = match outcome {
            Ok(again) => {
                self.failing.remove(&cluster);
                again
            }
            Err(error) => {
                let Key { namespace, name } = &cluster;
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    namespace,
                    name,
                    error,
                    "a cluster without SIPCluster is tried again"
                );
                self.failing.entry(cluster.clone()).or_insert_with(pauses).next()
            }
        };
        if let Some(pause) = pause {
            self.at.insert(cluster, Instant::now() + pause);
        }
    }
}

/// Looks after them once all `SIPCluster`s that there are have been listed.
///
/// # Errors
/// None: it goes on until it is dropped.
pub async fn run(context: Arc<Context>, orphans: Orphans, listed: Vec<Listed>) -> Result<(), Infallible> {
    for watch in listed {
        watch.wait().await;
    }
    let mut later = Later::default();
    loop {
        tokio::select! {
            () = orphans.told.notified() => {}
            () = later.comes() => {}
        }
        for cluster in later.due(orphans.take()) {
            let outcome = look(&cluster, &context).await;
            later.looked(cluster, outcome);
        }
    }
}

/// Unlabels, marks and confirms what is on its way out. Returns when to look again, if the watches may not tell.
async fn look(cluster: &Key, context: &Context) -> Result<Option<Duration>, Error> {
    if context.inventory.has_cluster(cluster) {
        return Ok(None);
    }
    let asked = ClusterId::new(cluster.clone(), "");
    let placement = context.scheduler.placement(&asked, None).await;
    let placement = placement.map_err(|status| Error::Scheduler(Box::new(status)))?;
    let releasing: Vec<&Member> = placement
        .iter()
        .flat_map(kit::placement::Placement::members)
        .filter(|member| member.is_releasing())
        .collect();
    let held = releasing
        .iter()
        .map(|member| member.host().key().clone())
        .collect();
    context.triggers.holds(cluster, held);
    let Some(placement) = placement.as_ref().filter(|_| !releasing.is_empty()) else {
        return Ok(None);
    };
    let (reference, answered) = (placement.cluster(), placement.position().epoch());
    let seen = context.inventory.highest_seen().unwrap_or_default().epoch;
    if answered < seen {
        return Err(Error::OldEpoch { answered, seen });
    }
    // The garbage collector deletes its load balancers. Their pods go on for a while, and nobody says what they run.
    let in_the_way = if context.not_installed.contains(&Section::LoadBalancer) {
        None
    } else {
        pods::in_the_way(&context.client, cluster)
            .await
            .map_err(Error::kubernetes("list what load balancers run"))?
    };
    let steps: Vec<Step<'_>> = releasing
        .into_iter()
        .map(|member| Step::of(reference, member, &context.inventory, in_the_way.is_none()))
        .collect();
    let writer = Writer {
        client: &context.client,
        manager: super::MANAGER,
        cluster: reference,
        unseen: &context.unseen,
        metrics: &context.metrics,
    };
    let taken = writer.take(&steps).await;
    for (Key { namespace, name }, words) in taken.refused {
        tracing::warn!(namespace, name, words, "a BareMetalHost cannot be written");
    }
    super::confirm(reference, taken.released, context).await?;
    match in_the_way {
        // Nothing tells when it is gone: it is tried again.
        Some(what) if steps.iter().any(|step| step.need == Need::Drains) => Err(Error::Drains(what)),
        Some(_) | None => Ok(taken.again),
    }
}
