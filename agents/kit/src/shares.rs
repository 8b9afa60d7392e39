//! Which passes run at once: the clusters of one namespace get a share, however many there are and however long their passes take.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use api::SIPCluster;
use kube::{
    ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::AgentMetrics;

/// The concurrency of a controller whose passes are admitted by [`Shares`]: it has no bound, and passes that wait cost little.
pub const UNBOUNDED: u16 = 0;
/// Concurrent passes over all clusters.
const MAX_CONCURRENT_PASSES: usize = 32;
/// Concurrent passes over the clusters of one namespace.
const MAX_CONCURRENT_PASSES_PER_NAMESPACE: usize = 16;

/// Admits passes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shares {
    all: Arc<Semaphore>,
    of_namespaces: Arc<OfNamespaces>,
    waiting: Gauge,
}

/// Places for each namespace, the same number for all.
#[derive(Debug)]
pub struct OfNamespaces {
    places: usize,
    by_namespace: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

/// A pass over a cluster that runs. Its place is free once this is dropped.
#[derive(Debug)]
pub struct Admitted {
    /// The cluster as the store has it now: it may have changed while the pass waited.
    pub object: Arc<SIPCluster>,
    _of_namespace: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// A pass that waits, until it is dropped.
struct Waiting<'a>(&'a Gauge);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a Gauge) -> Self {
        waiting.inc();
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Shares {
    /// With all places free. How many passes wait for one is a metric of the agent.
    #[must_use]
    pub fn new(metrics: &AgentMetrics) -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_CONCURRENT_PASSES)),
            of_namespaces: Arc::new(OfNamespaces::new(MAX_CONCURRENT_PASSES_PER_NAMESPACE)),
            waiting: metrics.waiting(),
        }
    }

    /// Waits until a pass over a cluster may run; `None` once no further pass may begin, since the process ends.
    pub async fn admit(&self, clusters: &Store<SIPCluster>, object: Arc<SIPCluster>) -> Option<Admitted> {
        let (of_namespace, of_all) = self.place(&object.namespace().unwrap_or_default()).await?;
        let newest = clusters.get(&ObjectRef::from_obj(&*object));
        Some(Admitted {
            object: newest.unwrap_or(object),
            _of_namespace: of_namespace,
            _of_all: of_all,
        })
    }

    /// Waits for a place. No more passes of a namespace than its share wait for a common place, so that other namespaces wait for that share at
    /// most.
    async fn place(&self, namespace: &str) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let _waiting = Waiting::begin(&self.waiting);
        let of_namespace = self.of_namespaces.place(namespace).await?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some((of_namespace, of_all))
    }

    /// Prevents further passes from beginning.
    pub fn close(&self) {
        self.all.close();
        self.of_namespaces.close();
    }
}

impl OfNamespaces {
    /// With all places free. `places`: of each namespace.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self {
            places,
            by_namespace: Mutex::default(),
        }
    }

    /// Waits for a place of a namespace, which is free again when it is dropped; `None` after [`Self::close`].
    pub async fn place(&self, namespace: &str) -> Option<OwnedSemaphorePermit> {
        self.share(namespace).acquire_owned().await.ok()
    }

    /// Closes the places of the namespaces in which a pass waits for one or has one.
    fn close(&self) {
        let by_namespace = self.by_namespace.lock().unwrap_or_else(PoisonError::into_inner);
        for share in by_namespace.values() {
            share.close();
        }
    }

    fn share(&self, namespace: &str) -> Arc<Semaphore> {
        let mut by_namespace = self.by_namespace.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = by_namespace.get(namespace) {
            return Arc::clone(share);
        }
        // In the others no pass waits for or has a place.
        by_namespace.retain(|_, share| Arc::strong_count(share) > 1);
        let share = Arc::new(Semaphore::new(self.places));
        by_namespace.insert(namespace.to_owned(), Arc::clone(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use runtime::metrics::Metrics;

    use super::*;

    fn shares() -> Shares {
        Shares::new(&AgentMetrics::registered(&Metrics::default()))
    }

    #[test]
    fn one_namespace_leaves_places_to_others() {
        let shares = shares();
        let admit = |namespace: &'static str| shares.place(namespace).now_or_never().flatten();
        let mut greedy: Vec<_> = (0..100).filter_map(|_| admit("greedy")).collect();
        assert_eq!(greedy.len(), MAX_CONCURRENT_PASSES_PER_NAMESPACE);
        let good = admit("good");
        assert!(good.is_some());
        greedy.pop();
        assert!(admit("greedy").is_some(), "a place that is free again");
    }

    #[test]
    fn those_that_wait_for_their_share_stand_in_nobodys_way() {
        let shares = shares();
        let admit = |namespace: &str| shares.place(namespace).now_or_never().flatten();
        let running: Vec<_> = (0..MAX_CONCURRENT_PASSES)
            .filter_map(|n| admit(if n % 2 == 0 { "a" } else { "b" }))
            .collect();
        assert_eq!(running.len(), MAX_CONCURRENT_PASSES);
        let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(shares.place("a"))).collect();
        for waiting in &mut waiting {
            assert!(waiting.now_or_never().is_none());
        }
        let mut good = Box::pin(shares.place("good"));
        assert!((&mut good).now_or_never().is_none());
        assert_eq!(shares.waiting.get(), 101);
        drop(running);
        assert!((&mut good).now_or_never().flatten().is_some());
        drop((good, waiting));
        assert_eq!(shares.waiting.get(), 0);
    }

    #[test]
    fn no_pass_begins_after_the_end() {
        let shares = shares();
        let running: Vec<_> = (0..MAX_CONCURRENT_PASSES_PER_NAMESPACE)
            .filter_map(|_| shares.place("a").now_or_never().flatten())
            .collect();
        let mut waiting = Box::pin(shares.place("a"));
        assert!((&mut waiting).now_or_never().is_none());
        shares.close();
        assert!(waiting.now_or_never().is_some_and(|admitted| admitted.is_none()));
        assert!(
            shares
                .place("b")
                .now_or_never()
                .is_some_and(|admitted| admitted.is_none())
        );
        drop(running);
    }
}
