//! How many reads a BMC gets: each takes one of the few sessions that it has.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use governor::Quota;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{error::Error, rates::Rates};

/// Reads of one BMC at a time, whoever asks and however many systems it serves.
const AT_ONCE: usize = 2;
/// How long a read waits for others of the same BMC.
const WAIT: Duration = Duration::from_secs(10);
/// Reads of one host a minute.
const OF_HOST: NonZeroU32 = NonZeroU32::new(30).unwrap();
/// Reads of one cluster's hosts a minute.
const OF_CLUSTER: NonZeroU32 = NonZeroU32::new(120).unwrap();
/// When to retry while a BMC is being read.
const SOON: Duration = Duration::from_secs(1);

/// The reads that are under way, and how many there were.
#[derive(Debug)]
pub(crate) struct Reads {
    bmcs: Mutex<HashMap<String, Arc<Semaphore>>>,
    hosts: Rates,
    clusters: Rates,
}

impl Default for Reads {
    fn default() -> Self {
        Self {
            bmcs: Mutex::default(),
            hosts: Rates::new(Quota::per_minute(OF_HOST)),
            clusters: Rates::new(Quota::per_minute(OF_CLUSTER)),
        }
    }
}

impl Reads {
    /// Counts one read of a host by a cluster, both by uid.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    pub(crate) fn count(&self, cluster: &str, host: &str) -> Result<(), Error> {
        let overloaded = |what: String, limit| move |again| Error::Overloaded { what, limit, again };
        let of_host = format!("one host may be read {OF_HOST} times a minute");
        self.hosts
            .count(host)
            .map_err(overloaded(of_host, "reads-of-host"))?;
        let of_cluster = format!("the hosts of a cluster may be read {OF_CLUSTER} times a minute");
        self.clusters
            .count(cluster)
            .map_err(overloaded(of_cluster, "reads-of-cluster"))
    }

    /// Waits for a place among the reads of a BMC (host and port).
    ///
    /// # Errors
    /// [`Error::Overloaded`] after [`WAIT`].
    pub(crate) async fn place(&self, bmc: &str) -> Result<OwnedSemaphorePermit, Error> {
        let places = {
            let mut bmcs = self.bmcs.lock().unwrap_or_else(PoisonError::into_inner);
            bmcs.retain(|_, places| Arc::strong_count(places) > 1);
            let new = || Arc::new(Semaphore::new(AT_ONCE));
            Arc::clone(bmcs.entry(bmc.to_owned()).or_insert_with(new))
        };
        let place = tokio::time::timeout(WAIT, places.acquire_owned()).await;
        place.ok().and_then(Result::ok).ok_or_else(|| Error::Overloaded {
            what: format!("{AT_ONCE} reads of the BMC {bmc} are in progress"),
            limit: "reads-of-bmc",
            again: SOON,
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
        let first = reads.place("a").await.unwrap();
        let _second = reads.place("a").await.unwrap();
        let error = reads.place("a").await.unwrap_err();
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
        assert!(reads.place("b").now_or_never().unwrap().is_ok());
        drop(first);
        assert!(reads.place("a").now_or_never().unwrap().is_ok());
    }

    #[test]
    fn a_host_is_read_so_often_a_minute_and_a_refusal_says_when_again() {
        let reads = Reads::default();
        for _ in 0..OF_HOST.get() {
            reads.count("c", "h").unwrap();
        }
        let error = reads.count("d", "h").unwrap_err();
        let Error::Overloaded { limit, again, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*limit, "reads-of-host");
        assert!(*again > Duration::ZERO);
        let more = (0..200).filter(|host| reads.count("c", &host.to_string()).is_ok());
        assert!(more.count() <= 100, "the cluster has a limit too");
    }
}
