//! The watches in the namespaces with clusters. They start with the first cluster of a namespace and end with its last one; those of one
//! namespace are independent of those of others.
//!
//! An agent has rights in a namespace by a `RoleBinding` there. Where it may not list, the clusters of the namespace report it
//! ([`Access::Forbidden`]), and the watches are tried again until they may.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use api::SIPCluster;
use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use futures::{
    SinkExt as _, StreamExt as _,
    channel::mpsc,
    future::{AbortHandle, abortable},
    stream::{BoxStream, FuturesUnordered, SelectAll},
};
use kube::{
    Client,
    runtime::{
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use super::{
    by_namespace::ByNamespace,
    tenant_kinds::{ObservedEvent, TenantKind, TenantWatch},
    tenants::Tenants,
};
use crate::apply;

/// Pauses between tries to list a namespace in which the agent has no rights. Rights that are granted take effect within the longest, twice that
/// with jitter.
const LIST_BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));
/// Watches that ran for longer than this were not refused from the start.
const MIN_GRANTED_DURATION: Duration = Duration::from_mins(1);
/// The kind that is listed before the others.
const FIRST_LISTED_KIND: usize = 0;
/// Least pause between two checks of the rights after other calls were answered with 403.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// What is known of the objects in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Every watch has shown a complete list.
    Listed,
    /// The agent may not list there; with the API server's message.
    Forbidden(String),
}

/// What passes know of the namespaces that are watched. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct TenantAccess {
    tenants: Tenants,
    access: ByNamespace<Access>,
    doubts: ByNamespace<Arc<Notify>>,
}

impl TenantAccess {
    pub(super) fn new(tenants: Tenants) -> Self {
        Self {
            tenants,
            ..Self::default()
        }
    }

    /// What is known of the objects in a namespace; `None` while the first lists are not complete. A change triggers passes over all
    /// clusters of the namespace.
    pub(super) fn get(&self, namespace: &str) -> Option<Access> {
        self.access.value(namespace)
    }

    /// Whether every namespace with clusters is listed: only then is what no watch shows known to be absent.
    pub(super) fn is_complete(&self) -> bool {
        let namespaces = self.tenants.namespaces();
        let mut access = namespaces.iter().map(|namespace| self.get(namespace));
        access.all(|access| access == Some(Access::Listed))
    }

    /// Makes the watches check the rights in the namespace, since another call there was answered with 403: the rights may be gone though watches
    /// continue.
    pub(super) fn doubt(&self, namespace: &str) {
        if let Some(doubt) = self.doubts.value(namespace) {
            doubt.notify_one();
        }
    }
}

/// The watches, before they run.
pub(super) struct TenantWatches {
    pub(super) client: Client,
    pub(super) access: TenantAccess,
    pub(super) clusters: Store<SIPCluster>,
    pub(super) triggers: mpsc::Sender<ObjectRef<SIPCluster>>,
    /// The first is listed alone: a namespace without rights costs one call.
    pub(super) kinds: Vec<Box<dyn TenantKind>>,
}

impl TenantWatches {
    /// Runs the watches of the namespaces that have clusters, for as long as it is polled.
    pub(super) async fn run(self) -> Infallible {
        let mut running = FuturesUnordered::new();
        let mut handles: BTreeMap<String, AbortHandle> = BTreeMap::new();
        loop {
            tokio::select! {
                () = self.access.tenants.changed() => {}
                // Those that were stopped.
                Some(_) = running.next() => continue,
            }
            let namespaces = self.access.tenants.namespaces();
            handles.retain(|namespace, handle| {
                let stays = namespaces.contains(namespace);
                if !stays {
                    handle.abort();
                    self.forget(namespace);
                }
                stays
            });
            for namespace in namespaces {
                if let Entry::Vacant(vacant) = handles.entry(namespace) {
                    let (watch, handle) = abortable(self.watch(vacant.key().clone()));
                    vacant.insert(handle);
                    running.push(watch);
                }
            }
        }
    }

    fn forget(&self, namespace: &str) {
        tracing::debug!(namespace, "no SIPCluster is left; its watches end");
        for kind in &self.kinds {
            kind.forget(namespace);
        }
        self.access.access.remove(namespace);
        self.access.doubts.remove(namespace);
    }

    /// Watches one namespace. After the API server or its authorizer has started, it may refuse calls that it allows a moment later: only
    /// the second refusal in a row counts.
    async fn watch(&self, namespace: String) -> Infallible {
        let doubt = Arc::new(Notify::new());
        self.access.doubts.set(&namespace, Arc::clone(&doubt));
        let mut pauses = self::pauses();
        // How often in a row a watch was refused soon after it had opened.
        let mut refusals = 0;
        loop {
            let began = Instant::now();
            let (kind, message) = self.until_forbidden(&namespace, &doubt).await;
            // What the watches have shown may be out of date, so passes wait for new lists.
            self.access.access.remove(&namespace);
            if began.elapsed() > MIN_GRANTED_DURATION {
                pauses = self::pauses();
                refusals = 0;
            }
            refusals += 1;
            loop {
                sleep(pauses.next().unwrap_or(LIST_BACKOFF.1)).await;
                match self.refusal(&namespace, kind).await {
                    Some(message) => self.forbidden(&namespace, message).await,
                    // The agent may list, but not watch.
                    None if refusals > 1 => {
                        self.forbidden(&namespace, message.clone()).await;
                        break;
                    }
                    None => break,
                }
            }
        }
    }

    async fn forbidden(&self, namespace: &str, message: String) {
        let access = Access::Forbidden(message);
        if self.access.get(namespace).as_ref() == Some(&access) {
            return;
        }
        if let Access::Forbidden(message) = &access {
            tracing::warn!(
                namespace,
                words = message,
                "the agent has no rights in a namespace with SIPClusters"
            );
        }
        self.access.access.set(namespace, access);
        self.trigger_all(namespace).await;
    }

    /// Runs all watches of a namespace until the API server refuses one. Returns the index of its kind, and the API server's message.
    async fn until_forbidden(&self, namespace: &str, doubt: &Notify) -> (usize, String) {
        let mut open = OpenWatches::default();
        let mut triggers = self.triggers.clone();
        let mut next_check = Instant::now();
        open.start(self, namespace, 1);
        loop {
            let (index, shown) = tokio::select! {
                Some(shown) = open.events.next() => shown,
                () = doubt.notified() => {
                    if Instant::now() < next_check {
                        continue;
                    }
                    next_check = Instant::now() + MIN_CHECK_INTERVAL;
                    match self.refusal(namespace, FIRST_LISTED_KIND).await {
                        Some(message) => return (FIRST_LISTED_KIND, message),
                        None => continue,
                    }
                }
            };
            match shown {
                Ok(ObservedEvent::Changed(clusters)) => {
                    for cluster in clusters {
                        // It fails only when the controller has ended.
                        let _ = triggers.send(cluster).await;
                    }
                }
                Ok(ObservedEvent::Listed) => {
                    open.listed.insert(index);
                    open.start(self, namespace, self.kinds.len());
                    if open.is_listed(self) {
                        open.publish();
                        self.access.access.set(namespace, Access::Listed);
                        // The new list does not show which objects were deleted since an earlier one.
                        self.trigger_all(namespace).await;
                    }
                }
                Err(error) => {
                    if let Some(message) = refused(&error) {
                        return (index, message);
                    }
                    let error = &error as &dyn std::error::Error;
                    tracing::debug!(namespace, error, "a watch was interrupted; it opens again");
                }
            }
        }
    }

    /// The API server's message, if the agent may not list objects of a kind in a namespace.
    async fn refusal(&self, namespace: &str, kind: usize) -> Option<String> {
        let refused = self.kinds.get(kind)?.list(&self.client, namespace).await.err();
        refused
            .filter(|error| apply::code(error) == Some(403))
            .map(|error| apply::reason(&error))
    }

    async fn trigger_all(&self, namespace: &str) {
        let mut triggers = self.triggers.clone();
        let mut clusters = self.clusters.state();
        clusters.retain(|cluster| cluster.metadata.namespace.as_deref() == Some(namespace));
        for cluster in clusters {
            let _ = triggers.send(ObjectRef::from_obj(&*cluster)).await;
        }
    }
}

/// The watches of one namespace that are open.
#[derive(Default)]
struct OpenWatches {
    /// With the index of the kind.
    events: SelectAll<BoxStream<'static, (usize, watcher::Result<ObservedEvent>)>>,
    /// Of the kinds in their order.
    publishers: Vec<Box<dyn FnOnce() + Send>>,
    started: usize,
    /// Indices of the kinds whose lists are complete.
    listed: BTreeSet<usize>,
}

impl OpenWatches {
    /// Opens the watches of so many kinds in all.
    fn start(&mut self, watches: &TenantWatches, namespace: &str, kinds: usize) {
        let to_start = watches.kinds.iter().enumerate();
        for (index, kind) in to_start.take(kinds).skip(self.started) {
            let TenantWatch { events, publish } = kind.watch(&watches.client, namespace);
            self.events.push(events.map(move |shown| (index, shown)).boxed());
            self.publishers.push(publish);
        }
        self.started = kinds;
    }

    fn is_listed(&self, watches: &TenantWatches) -> bool {
        self.listed.len() == watches.kinds.len()
    }

    /// Makes what the watches have shown available to passes, once.
    fn publish(&mut self) {
        self.publishers.drain(..).for_each(|publish| publish());
    }
}

fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(LIST_BACKOFF.0)
        .with_max_delay(LIST_BACKOFF.1)
        .with_jitter()
        .without_max_times()
        .build()
}

/// The API server's message, if it refuses the watch.
fn refused(error: &watcher::Error) -> Option<String> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => {
            (apply::code(error) == Some(403)).then(|| apply::reason(error))
        }
        watcher::Error::WatchError(status) => (status.code == 403).then(|| status.message.clone()),
        watcher::Error::NoResourceVersion => None,
    }
}
