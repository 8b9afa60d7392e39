//! Placements without a `SIPCluster`: an operator has released a host whose labels name one that does not exist, or the
//! scheduler releases what a late call has claimed. There is no object that a controller would reconcile.
//!
//! They take the same four steps as every cluster. Only what is releasing is acted on, and there is no status to write.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backon::ExponentialBackoff;
use futures::{StreamExt as _, stream::FuturesUnordered};
use kit::{placement::ObjectKey, scheduler_client::pauses};
use tokio::{sync::Notify, time::Instant};

use super::{
    act,
    context::Context,
    error::Error,
    observe::{self, Orphan},
    planner, report,
};
use crate::inventory::FirstList;

/// Concurrent passes.
const MAX_CONCURRENT_PASSES: usize = 16;

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

/// Clusters whose pass is due. One pass runs in a namespace at a time, and the namespaces are served in rotation: a tenant decides how long the lists
/// of a pass take, and delays only its own clusters by that.
#[derive(Default)]
struct Queue {
    /// By namespace, each cluster once; the one that has waited longest is first. None of the queues is empty.
    due: BTreeMap<String, VecDeque<ObjectKey>>,
    /// The namespaces with due clusters in which no pass runs; the one that has waited longest first.
    turns: VecDeque<String>,
    running: BTreeSet<String>,
}

impl Queue {
    fn add(&mut self, cluster: ObjectKey) {
        let namespace = cluster.namespace.clone();
        if !self.due.contains_key(&namespace) && !self.running.contains(&namespace) {
            self.turns.push_back(namespace.clone());
        }
        let due = self.due.entry(namespace).or_default();
        if !due.contains(&cluster) {
            due.push_back(cluster);
        }
    }

    /// The next cluster whose pass may begin.
    fn begin(&mut self) -> Option<ObjectKey> {
        if self.running.len() >= MAX_CONCURRENT_PASSES {
            return None;
        }
        let namespace = self.turns.pop_front()?;
        let due = self.due.get_mut(&namespace)?;
        let cluster = due.pop_front();
        if due.is_empty() {
            self.due.remove(&namespace);
        }
        self.running.insert(namespace);
        cluster
    }

    /// A pass in the namespace has ended.
    fn ended(&mut self, namespace: &str) {
        self.running.remove(namespace);
        if self.due.contains_key(namespace) {
            self.turns.push_back(namespace.to_owned());
        }
    }
}

/// Reconciles them, once all of `listed` is complete: every `SIPCluster`, and the first report of the site, by which the scheduler has raised
/// its epoch above what the site shows.
///
/// # Errors
/// None: it runs until it is dropped.
pub async fn run(context: Arc<Context>, orphans: Orphans, listed: Vec<FirstList>) -> Result<(), Infallible> {
    for watch in listed {
        watch.wait().await;
    }
    let reconcile = |cluster: ObjectKey| {
        let context = Arc::clone(&context);
        async move {
            let outcome = pass(&cluster, &context).await;
            (cluster, outcome)
        }
    };
    match reconcile_all(&orphans, reconcile).await {}
}

/// Runs a pass over each cluster that is added, and again when it is due. `reconcile`: a pass, which returns its cluster and how it ended.
async fn reconcile_all<Pass>(orphans: &Orphans, reconcile: impl Fn(ObjectKey) -> Pass) -> Infallible
where
    Pass: Future<Output = (ObjectKey, Result<Option<Duration>, Error>)>,
{
    let (mut requeued, mut queue) = (Requeued::default(), Queue::default());
    let mut passes = FuturesUnordered::new();
    loop {
        while let Some(cluster) = queue.begin() {
            passes.push(reconcile(cluster));
        }
        tokio::select! {
            () = orphans.added.notified() => {}
            () = requeued.next() => {}
            Some((cluster, outcome)) = passes.next() => {
                queue.ended(&cluster.namespace);
                requeued.ended(cluster, outcome);
            }
        }
        for cluster in requeued.due(orphans.take()) {
            queue.add(cluster);
        }
    }
}

/// Unlabels, marks and confirms what is releasing. Returns when the next pass is due, if the watches may not trigger it.
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

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::fixtures::key_in;

    /// The clusters whose passes end within a minute, in this order; in `greedy` none ends.
    async fn ended(clusters: impl IntoIterator<Item = ObjectKey>) -> Vec<String> {
        let orphans = Orphans::default();
        for cluster in clusters {
            orphans.add(cluster);
        }
        let ended = Mutex::new(Vec::new());
        let reconcile = |cluster: ObjectKey| {
            let ended = &ended;
            async move {
                if cluster.namespace.starts_with("greedy") {
                    std::future::pending::<()>().await;
                }
                ended.lock().unwrap().push(cluster.to_string());
                (cluster, Ok::<Option<Duration>, Error>(None))
            }
        };
        let all = reconcile_all(&orphans, reconcile);
        timeout(Duration::from_mins(1), all).await.unwrap_err();
        ended.into_inner().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn lists_of_one_namespace_delay_no_other() {
        let greedy = (0..100).map(|number| key_in("greedy", &format!("c{number}")));
        let good = [key_in("good", "a"), key_in("good", "b"), key_in("other", "a")];
        let ended = ended(greedy.chain(good)).await;
        assert_eq!(ended.len(), 3, "{ended:?}");
        assert!(ended.contains(&"good/b".to_owned()), "{ended:?}");
    }

    #[test]
    fn namespaces_take_turns_with_one_pass_each() {
        let mut queue = Queue::default();
        for name in ["1", "2"] {
            queue.add(key_in("a", name));
            queue.add(key_in("b", name));
        }
        queue.add(key_in("a", "1"));
        let begun = [queue.begin(), queue.begin(), queue.begin()];
        assert_eq!(begun, [Some(key_in("a", "1")), Some(key_in("b", "1")), None]);
        queue.ended("b");
        queue.ended("a");
        let begun = [queue.begin(), queue.begin(), queue.begin()];
        assert_eq!(begun, [Some(key_in("b", "2")), Some(key_in("a", "2")), None]);
        queue.add(key_in("a", "2"));
        queue.ended("a");
        assert_eq!(
            queue.begin(),
            Some(key_in("a", "2")),
            "it was named during its pass"
        );
    }

    #[test]
    fn clusters_of_a_namespace_take_turns() {
        let mut queue = Queue::default();
        for name in ["1", "2", "3"] {
            queue.add(key_in("a", name));
        }
        let mut begun = Vec::new();
        for _ in 0..6 {
            let cluster = queue.begin().unwrap();
            queue.ended("a");
            // It waits for pods, and is due again before the others had their turn.
            queue.add(cluster.clone());
            queue.add(cluster.clone());
            begun.push(cluster.name);
        }
        assert_eq!(begun, ["1", "2", "3", "1", "2", "3"]);
    }

    #[test]
    fn few_passes_run_at_once() {
        let mut queue = Queue::default();
        for number in 0..=MAX_CONCURRENT_PASSES {
            queue.add(key_in(&format!("n{number:02}"), "c"));
        }
        let begun = std::iter::from_fn(|| queue.begin()).count();
        assert_eq!(begun, MAX_CONCURRENT_PASSES);
        queue.ended("n00");
        assert_eq!(queue.begin(), Some(key_in("n16", "c")));
    }
}
