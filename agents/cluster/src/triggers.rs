//! What makes a `SIPCluster` be reconciled, besides its own changes: its hosts and its placement.
//!
//! A set, not a queue: however often a cluster is triggered before it is reconciled, it is reconciled once, so memory is bounded
//! by the number of clusters and no caller waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use api::SIPCluster;
use futures::Stream;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::Notify;

use kit::placement::ObjectKey;

/// Names clusters to reconcile. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Triggers {
    state: Arc<Mutex<State>>,
    named: Arc<Notify>,
    all: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeSet<ObjectKey>,
    /// Cluster by host that it holds.
    holders: BTreeMap<ObjectKey, ObjectKey>,
    /// Hosts by cluster.
    holdings: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
}

impl Triggers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Triggers the cluster, whose placement has changed.
    pub fn cluster(&self, cluster: ObjectKey) {
        self.lock().waiting.insert(cluster);
        self.named.notify_one();
    }

    /// Triggers the cluster that holds this host, which has changed.
    pub fn host(&self, host: &ObjectKey) {
        let mut state = self.lock();
        let Some(cluster) = state.holders.get(host).cloned() else {
            return;
        };
        state.waiting.insert(cluster);
        drop(state);
        self.named.notify_one();
    }

    /// Triggers every cluster: anything may have changed.
    pub fn trigger_all(&self) {
        self.all.notify_one();
    }

    /// Records the hosts that a cluster holds, in place of those before.
    pub fn set_hosts(&self, cluster: &ObjectKey, hosts: BTreeSet<ObjectKey>) {
        let mut state = self.lock();
        for host in state.holdings.remove(cluster).unwrap_or_default() {
            if state.holders.get(&host) == Some(cluster) {
                state.holders.remove(&host);
            }
        }
        for host in &hosts {
            state.holders.insert(host.clone(), cluster.clone());
        }
        if !hosts.is_empty() {
            state.holdings.insert(cluster.clone(), hosts);
        }
    }

    /// The triggered clusters. One that is triggered several times before the stream yields it is yielded once.
    pub fn triggered(&self) -> impl Stream<Item = ObjectRef<SIPCluster>> + Send + use<> {
        futures::stream::unfold(self.clone(), |triggers| async move {
            loop {
                let next = triggers.lock().waiting.pop_first();
                if let Some(ObjectKey { namespace, name }) = next {
                    return Some((ObjectRef::new(&name).within(&namespace), triggers));
                }
                triggers.named.notified().await;
            }
        })
    }

    /// Yields an item after one or more calls of [`Triggers::trigger_all`].
    pub fn everything(&self) -> impl Stream<Item = ()> + Send + use<> {
        futures::stream::unfold(Arc::clone(&self.all), |all| async move {
            all.notified().await;
            Some(((), all))
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, StreamExt as _};

    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_host_triggers_its_cluster_once_however_often_it_changes() {
        let triggers = Triggers::default();
        triggers.set_hosts(&key("cluster"), BTreeSet::from([key("host")]));
        triggers.host(&key("host"));
        triggers.host(&key("host"));
        triggers.host(&key("stranger"));
        let mut named = Box::pin(triggers.triggered());
        assert_eq!(
            named.next().now_or_never().flatten(),
            Some(ObjectRef::new("cluster").within("ns"))
        );
        assert_eq!(named.next().now_or_never(), None);
        triggers.set_hosts(&key("cluster"), BTreeSet::new());
        triggers.host(&key("host"));
        assert_eq!(named.next().now_or_never(), None);
    }
}
