//! How many reads a BMC gets: each takes one of the few sessions that it has.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use governor::Quota;
use tokio::sync::OwnedSemaphorePermit;

use crate::{error::Error, rates::Rates, semaphores::Semaphores};

/// Concurrent reads of one BMC, however many systems it serves. A tenant has one of them: a BMC may serve hosts of several tenants.
const MAX_CONCURRENT_READS_PER_BMC: usize = 2;
/// Time that a read waits for others of the same BMC, at most.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// Reads of one host a minute, at most.
const HOST_READS_PER_MINUTE: NonZeroU32 = NonZeroU32::new(30).unwrap();
/// Reads of one cluster's hosts a minute, at most.
const CLUSTER_READS_PER_MINUTE: NonZeroU32 = NonZeroU32::new(120).unwrap();
/// Hosts that the lists of one namespace may read from the API server a second.
const LISTED_HOSTS_PER_SECOND: NonZeroU32 = NonZeroU32::new(100).unwrap();
/// Hosts that these lists may read at once: as many as a cluster can have.
const LISTED_HOSTS_BURST: NonZeroU32 = NonZeroU32::new(2_000).unwrap();
/// Pause after which a caller should retry while a BMC is being read.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The reads in progress, and how many there were.
#[derive(Debug)]
pub(crate) struct Reads {
    bmcs: Semaphores<String>,
    tenants_of_bmcs: Semaphores<(String, String)>,
    observers: Mutex<HashMap<String, Weak<()>>>,
    hosts: Rates,
    clusters: Rates,
    lists: Rates,
}

/// An action whose effect is waited for at a BMC, until it is dropped.
#[derive(Debug)]
pub(crate) struct Observer(Arc<()>);

impl Observer {
    /// Whether no other effect is waited for at this BMC.
    pub(crate) fn is_alone(&self) -> bool {
        let Self(observers) = self;
        Arc::strong_count(observers) == 1
    }
}

/// The right to read from a BMC, until it is dropped.
#[derive(Debug)]
pub(crate) struct ReadSlot {
    _bmc: OwnedSemaphorePermit,
    _tenant: OwnedSemaphorePermit,
}

impl Default for Reads {
    fn default() -> Self {
        Self {
            bmcs: Semaphores::default(),
            tenants_of_bmcs: Semaphores::default(),
            observers: Mutex::default(),
            hosts: Rates::new(Quota::per_minute(HOST_READS_PER_MINUTE)),
            clusters: Rates::new(Quota::per_minute(CLUSTER_READS_PER_MINUTE)),
            lists: Rates::new(Quota::per_second(LISTED_HOSTS_PER_SECOND).allow_burst(LISTED_HOSTS_BURST)),
        }
    }
}

impl Reads {
    /// Counts one read of a host by a cluster, both by uid.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    pub(crate) fn count(&self, cluster: &str, host: &str) -> Result<(), Error> {
        let overloaded = |what: String, limit| {
            move |retry_after| Error::Overloaded {
                what,
                limit,
                retry_after,
            }
        };
        let of_host = format!("one host may be read {HOST_READS_PER_MINUTE} times a minute");
        self.hosts
            .count(host)
            .map_err(overloaded(of_host, "reads-of-host"))?;
        let of_cluster =
            format!("the hosts of a cluster may be read {CLUSTER_READS_PER_MINUTE} times a minute");
        self.clusters
            .count(cluster)
            .map_err(overloaded(of_cluster, "reads-of-cluster"))
    }

    /// Counts a list of so many hosts for a namespace.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    pub(crate) fn count_list(&self, namespace: &str, hosts: usize) -> Result<(), Error> {
        let hosts = u32::try_from(hosts).unwrap_or(u32::MAX);
        let counted = NonZeroU32::new(hosts).map_or(Ok(()), |hosts| self.lists.count_many(namespace, hosts));
        counted.map_err(|retry_after| Error::Overloaded {
            what: format!("lists of a namespace may read {LISTED_HOSTS_PER_SECOND} hosts a second"),
            limit: "reads-of-lists",
            retry_after,
        })
    }

    /// Counts an action whose effect is waited for at a BMC (host and port).
    pub(crate) fn observer(&self, bmc: &str) -> Observer {
        let mut all = self.observers.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, observers| observers.strong_count() > 0);
        let observers = all.get(bmc).and_then(Weak::upgrade).unwrap_or_default();
        all.insert(bmc.to_owned(), Arc::downgrade(&observers));
        Observer(observers)
    }

    /// Waits for the right to read from a BMC (host and port), as one of a namespace.
    ///
    /// # Errors
    /// [`Error::Overloaded`] after [`QUEUE_TIMEOUT`].
    pub(crate) async fn slot(&self, bmc: &str, namespace: &str) -> Result<ReadSlot, Error> {
        let taking = async {
            let own = self
                .tenants_of_bmcs
                .get((bmc.to_owned(), namespace.to_owned()), 1);
            let of_tenant = own.acquire_owned().await.ok()?;
            let all = self.bmcs.get(bmc.to_owned(), MAX_CONCURRENT_READS_PER_BMC);
            let of_bmc = all.acquire_owned().await.ok()?;
            Some(ReadSlot {
                _bmc: of_bmc,
                _tenant: of_tenant,
            })
        };
        let slot = tokio::time::timeout(QUEUE_TIMEOUT, taking).await;
        slot.ok().flatten().ok_or_else(|| Error::Overloaded {
            what: format!("other reads of the BMC {bmc} take more than {QUEUE_TIMEOUT:?}"),
            limit: "reads-of-bmc",
            retry_after: RETRY_DELAY,
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bmc_is_read_twice_at_a_time() {
        let reads = Reads::default();
        let first = reads.slot("a", "orders").await.unwrap();
        let _second = reads.slot("a", "billing").await.unwrap();
        let error = reads.slot("a", "rides").await.unwrap_err();
        assert!(
            matches!(
                error,
                Error::Overloaded {
                    limit: "reads-of-bmc",
                    ..
                }
            ),
            "{error}"
        );
        assert!(reads.slot("b", "orders").now_or_never().unwrap().is_ok());
        drop(first);
        assert!(reads.slot("a", "rides").now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn reads_of_one_tenant_leave_room_for_another() {
        let reads = Reads::default();
        let _first = reads.slot("a", "orders").await.unwrap();
        let mut queue: Vec<_> = (0..30).map(|_| Box::pin(reads.slot("a", "orders"))).collect();
        for waiting in &mut queue {
            assert!(waiting.now_or_never().is_none());
        }
        assert!(reads.slot("a", "billing").now_or_never().unwrap().is_ok());
    }

    #[test]
    fn an_observer_knows_whether_it_is_alone_at_a_bmc() {
        let reads = Reads::default();
        let (first, other) = (reads.observer("a"), reads.observer("b"));
        assert!(first.is_alone() && other.is_alone());
        let second = reads.observer("a");
        assert!(!first.is_alone() && !second.is_alone() && other.is_alone());
        drop(first);
        assert!(second.is_alone());
        drop(second);
        assert!(reads.observer("a").is_alone());
    }

    #[test]
    fn reads_of_a_host_are_rate_limited_with_a_retry_time() {
        let reads = Reads::default();
        for _ in 0..HOST_READS_PER_MINUTE.get() {
            reads.count("c", "h").unwrap();
        }
        let error = reads.count("d", "h").unwrap_err();
        let Error::Overloaded {
            limit, retry_after, ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*limit, "reads-of-host");
        assert!(*retry_after > Duration::ZERO);
        let more = (0..200).filter(|host| reads.count("c", &host.to_string()).is_ok());
        assert!(more.count() <= 100, "the cluster has a limit too");
    }
}
