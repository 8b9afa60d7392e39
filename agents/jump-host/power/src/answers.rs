//! Which hosts' BMCs gave no usable answer to the last call, for the condition of the jump host. No BMC is queried for this, so that a BMC that
//! no tenant calls costs nothing, and a slow one delays no cluster.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kit::placement::{ClusterId, HostId};
use tokio::{sync::Notify, time::Instant};

use crate::error::Error;

/// Time for which a failure counts: there may be no later call of the BMC.
const FAILURE_TTL: Duration = Duration::from_mins(10);

/// A failure of a BMC in a call of a cluster.
#[derive(Debug)]
struct Failed {
    kind: &'static str,
    until: Instant,
}

/// By the uids of the cluster and of the host, so that a host that moves to another cluster does not take its failures along.
type Failures = Mutex<HashMap<(String, String), Failed>>;

/// How BMCs answered the calls of clusters. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Answers {
    failures: Arc<Failures>,
    changed: Arc<Changed>,
}

/// The clusters whose failures have changed since [`Changes::next`] returned them last. Each is listed once.
#[derive(Debug, Default)]
struct Changed {
    clusters: Mutex<BTreeSet<ClusterId>>,
    added: Notify,
}

/// Receives the clusters whose failures change.
#[derive(Debug)]
pub struct Changes(Arc<Changed>);

impl Changes {
    /// Waits until there is a change, and returns every cluster with one since the last call. A wait may be dropped: nothing is lost.
    pub async fn next(&mut self) -> BTreeSet<ClusterId> {
        let Changed { clusters, added } = &*self.0;
        loop {
            let changed = mem::take(&mut *clusters.lock().unwrap_or_else(PoisonError::into_inner));
            if !changed.is_empty() {
                return changed;
            }
            added.notified().await;
        }
    }
}

/// The failures that count now, of some hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unanswered {
    /// The hosts, each with a short name of what failed, in the order of the requested hosts.
    pub hosts: Vec<(HostId, &'static str)>,
    /// When the first of them no longer counts.
    pub recheck_after: Option<Duration>,
}

impl Answers {
    /// Without answers; and the receiver of the clusters whose answers change.
    #[must_use]
    pub fn new() -> (Self, Changes) {
        let changed = Arc::<Changed>::default();
        let changes = Changes(Arc::clone(&changed));
        let failures = Arc::default();
        (Self { failures, changed }, changes)
    }

    /// The given hosts of a cluster whose BMCs failed in the cluster's last call.
    #[must_use]
    pub fn unanswered<'a>(
        &self,
        cluster: &ClusterId,
        hosts: impl IntoIterator<Item = &'a HostId>,
    ) -> Unanswered {
        let now = Instant::now();
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Unanswered::default();
        for host in hosts {
            let key = (cluster.uid().to_owned(), host.uid().to_owned());
            let Some(failed) = failures.get(&key).filter(|failed| failed.until > now) else {
                continue;
            };
            let left = failed.until - now;
            found.recheck_after = Some(
                found
                    .recheck_after
                    .map_or(left, |recheck_after| recheck_after.min(left)),
            );
            found.hosts.push((host.clone(), failed.kind));
        }
        found
    }

    /// Records how a call of a cluster ended. An error that does not concern the BMC changes nothing.
    pub(crate) fn note<T>(&self, cluster: &ClusterId, host: &HostId, outcome: &Result<T, Error>) {
        let kind = match outcome {
            Ok(_) => None,
            Err(Error::BmcFailed { failure, .. } | Error::OutcomeUnknown { failure, .. }) => {
                Some(failure.kind())
            }
            Err(Error::BmcUnusable { .. }) => Some("unusable"),
            Err(_) => return,
        };
        let now = Instant::now();
        let key = (cluster.uid().to_owned(), host.uid().to_owned());
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.retain(|_, failed| failed.until > now);
        let before = match kind {
            None => failures.remove(&key),
            Some(kind) => {
                let until = now + FAILURE_TTL;
                failures.insert(key, Failed { kind, until })
            }
        };
        drop(failures);
        if before.map(|failed| failed.kind) != kind {
            let Changed { clusters, added } = &*self.changed;
            let mut clusters = clusters.lock().unwrap_or_else(PoisonError::into_inner);
            clusters.insert(cluster.clone());
            added.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use kit::placement::ObjectKey;

    use super::*;
    use crate::redfish::Failure;

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn host(name: &str) -> HostId {
        HostId::new(key("metal", name), name)
    }

    fn cluster(name: &str) -> ClusterId {
        ClusterId::new(key("shop", name), name)
    }

    fn refused() -> Result<(), Error> {
        let failure = Failure::Unauthorized {
            bmc: "192.0.2.1:443".to_owned(),
        };
        Err(Error::BmcFailed {
            host: "metal/a".to_owned(),
            failure,
        })
    }

    fn names(answers: &Answers, of: &str) -> Vec<(HostId, &'static str)> {
        answers.unanswered(&cluster(of), [&host("a"), &host("b")]).hosts
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_counts_until_the_next_answer_or_ten_minutes() {
        let (answers, mut changed) = Answers::new();
        let orders = cluster("orders");
        answers.note(&orders, &host("b"), &refused());
        assert_eq!(names(&answers, "orders"), [(host("b"), "unauthorized")]);
        assert_eq!(changed.next().await, BTreeSet::from([orders.clone()]));

        // The same again is no change, and what is not about the BMC is none either.
        answers.note(&orders, &host("b"), &refused());
        answers.note(&orders, &host("b"), &Err::<(), _>(Error::Ending));
        assert!(changed.next().now_or_never().is_none());
        assert_eq!(names(&answers, "orders").len(), 1);

        answers.note(&orders, &host("b"), &Ok(()));
        assert_eq!(names(&answers, "orders"), []);
        assert_eq!(changed.next().await, BTreeSet::from([orders.clone()]));

        answers.note(&orders, &host("a"), &refused());
        let left = answers.unanswered(&orders, [&host("a")]).recheck_after;
        assert_eq!(left, Some(FAILURE_TTL));
        tokio::time::advance(FAILURE_TTL).await;
        assert_eq!(names(&answers, "orders"), []);
    }

    #[tokio::test]
    async fn changes_of_a_cluster_are_one_until_they_are_taken() {
        let (answers, mut changed) = Answers::new();
        let clusters = ["billing", "orders"].map(cluster);
        for _ in 0..1000 {
            for cluster in &clusters {
                answers.note(cluster, &host("a"), &refused());
                answers.note(cluster, &host("a"), &Ok(()));
            }
        }
        assert_eq!(changed.next().await, BTreeSet::from(clusters));
        assert!(changed.next().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_host_in_another_cluster_loses_its_recorded_failure() {
        let (answers, _changed) = Answers::new();
        answers.note(&cluster("orders"), &host("a"), &refused());
        assert_eq!(names(&answers, "billing"), []);
    }
}
