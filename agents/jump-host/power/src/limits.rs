//! How much one cluster and one namespace, which is a tenant, may use of the service. There is no common limit: some callers could use it up for
//! the others.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use governor::{
    DefaultDirectRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{error::Error, rates::Rates, token::Holder};

/// Concurrent calls of one namespace.
const MAX_CONCURRENT_CALLS_PER_NAMESPACE: usize = 64;
/// Concurrent calls of one cluster.
const MAX_CONCURRENT_CALLS_PER_CLUSTER: usize = 16;
/// Calls of one `ServiceAccount` a second, and the burst: each costs several reads of the API server.
const ACCOUNT_CALL_RATE: [NonZeroU32; 2] = [NonZeroU32::new(5).unwrap(), NonZeroU32::new(20).unwrap()];
/// The same for a namespace, which is a tenant.
const NAMESPACE_CALL_RATE: [NonZeroU32; 2] = [NonZeroU32::new(10).unwrap(), NonZeroU32::new(30).unwrap()];
/// Actions of one cluster a minute, and the burst.
const CLUSTER_ACTION_RATE: [NonZeroU32; 2] = [NonZeroU32::new(30).unwrap(), NonZeroU32::new(30).unwrap()];
/// Actions on one host a minute, and the burst: more wear out BMCs and power supplies.
const HOST_ACTION_RATE: [NonZeroU32; 2] = [NonZeroU32::new(4).unwrap(), NonZeroU32::new(4).unwrap()];
/// Clusters, and hosts, for which limiters are kept at most. Beyond that number, limiters that allow a full burst again are removed.
const MAX_LIMITERS: usize = 1024;
/// Pause after which a caller should retry when a limit of concurrent calls was reached.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Limits of calls and actions.
#[derive(Debug)]
pub(crate) struct Limits {
    /// By namespace, of those with calls in progress.
    calls: Mutex<HashMap<String, Arc<Semaphore>>>,
    accounts: Rates,
    namespaces: Rates,
    clusters: Mutex<HashMap<String, Arc<ClusterLimits>>>,
    hosts: Mutex<HashMap<String, Arc<DefaultDirectRateLimiter>>>,
}

#[derive(Debug)]
struct ClusterLimits {
    calls: Arc<Semaphore>,
    actions: DefaultDirectRateLimiter,
}

/// A place for one call, until it is dropped.
#[derive(Debug)]
pub(crate) struct CallSlot {
    _namespace: OwnedSemaphorePermit,
    _cluster: OwnedSemaphorePermit,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls: Mutex::default(),
            accounts: per_second(ACCOUNT_CALL_RATE),
            namespaces: per_second(NAMESPACE_CALL_RATE),
            clusters: Mutex::default(),
            hosts: Mutex::default(),
        }
    }
}

impl Limits {
    /// Counts one call of a token's holder.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    pub(crate) fn call(&self, holder: &Holder) -> Result<(), Error> {
        let overloaded = |what: String, limit| {
            move |retry_after| Error::Overloaded {
                what,
                limit,
                retry_after,
            }
        };
        let (account, namespace) = (holder.account.to_string(), &holder.account.namespace);
        let [rate, _] = NAMESPACE_CALL_RATE;
        let what = format!("namespace {namespace} makes more than {rate} calls a second");
        self.namespaces
            .count(namespace)
            .map_err(overloaded(what, "calls-of-namespace"))?;
        let [rate, _] = ACCOUNT_CALL_RATE;
        let what = format!("ServiceAccount {account} makes more than {rate} calls a second");
        self.accounts
            .count(&account)
            .map_err(overloaded(what, "calls-of-account"))
    }

    /// A place among the calls of a namespace, and of a cluster (by uid) in it.
    ///
    /// # Errors
    /// [`Error::Overloaded`].
    pub(crate) fn enter(&self, namespace: &str, cluster: &str) -> Result<CallSlot, Error> {
        let calls = {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.retain(|_, calls| calls.available_permits() < MAX_CONCURRENT_CALLS_PER_NAMESPACE);
            let new = || Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS_PER_NAMESPACE));
            let calls = calls.entry(namespace.to_owned()).or_insert_with(new);
            Arc::clone(calls).try_acquire_owned()
        };
        let in_namespace = calls.map_err(|_| {
            overloaded(
                format!(
                    "{MAX_CONCURRENT_CALLS_PER_NAMESPACE} calls of namespace {namespace} are in progress"
                ),
                "calls-in-namespace",
            )
        })?;
        let calls = Arc::clone(&self.cluster_limits(cluster).calls).try_acquire_owned();
        let of_cluster = calls.map_err(|_| {
            overloaded(
                format!("{MAX_CONCURRENT_CALLS_PER_CLUSTER} calls of this cluster are in progress"),
                "calls-of-cluster",
            )
        })?;
        Ok(CallSlot {
            _namespace: in_namespace,
            _cluster: of_cluster,
        })
    }

    /// Counts one action of a cluster on a host.
    ///
    /// # Errors
    /// [`Error::TooManyActions`].
    pub(crate) fn act(&self, cluster: &str, host: &str) -> Result<(), Error> {
        let [per_minute, _] = CLUSTER_ACTION_RATE;
        let what = format!("the cluster may start {per_minute} actions a minute");
        check(&self.cluster_limits(cluster).actions, what)?;
        let limiter = {
            let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            if hosts.len() >= MAX_LIMITERS {
                // A limiter that allows a full burst is like a new one.
                let [_, burst] = HOST_ACTION_RATE;
                hosts.retain(|_, limiter| !matches!(limiter.check_n(burst), Ok(Ok(()))));
            }
            let new = || Arc::new(limiter(HOST_ACTION_RATE));
            Arc::clone(hosts.entry(host.to_owned()).or_insert_with(new))
        };
        let [per_minute, _] = HOST_ACTION_RATE;
        check(
            &limiter,
            format!("{per_minute} actions a minute may be started on one host"),
        )
    }

    fn cluster_limits(&self, cluster: &str) -> Arc<ClusterLimits> {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        if clusters.len() >= MAX_LIMITERS {
            let [_, burst] = CLUSTER_ACTION_RATE;
            clusters.retain(|_, limits| {
                let idle = limits.calls.available_permits() == MAX_CONCURRENT_CALLS_PER_CLUSTER;
                !idle || !matches!(limits.actions.check_n(burst), Ok(Ok(())))
            });
        }
        let new = || {
            Arc::new(ClusterLimits {
                calls: Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS_PER_CLUSTER)),
                actions: limiter(CLUSTER_ACTION_RATE),
            })
        };
        Arc::clone(clusters.entry(cluster.to_owned()).or_insert_with(new))
    }
}

fn limiter([per_minute, burst]: [NonZeroU32; 2]) -> DefaultDirectRateLimiter {
    RateLimiter::direct(Quota::per_minute(per_minute).allow_burst(burst))
}

fn per_second([rate, burst]: [NonZeroU32; 2]) -> Rates {
    Rates::new(Quota::per_second(rate).allow_burst(burst))
}

fn check(limiter: &DefaultDirectRateLimiter, what: String) -> Result<(), Error> {
    limiter.check().map_err(|until| Error::TooManyActions {
        what,
        retry_after: until.wait_time_from(DefaultClock::default().now()),
    })
}

fn overloaded(what: String, limit: &'static str) -> Error {
    Error::Overloaded {
        what,
        limit,
        retry_after: RETRY_DELAY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cluster_does_not_use_up_the_places_of_another() {
        let limits = Limits::default();
        let enter = |cluster| limits.enter("shop", cluster);
        let taken: Vec<CallSlot> = (0..MAX_CONCURRENT_CALLS_PER_CLUSTER)
            .map(|_| enter("a").unwrap())
            .collect();
        assert!(matches!(enter("a"), Err(Error::Overloaded { .. })));
        enter("b").unwrap();
        drop(taken);
        enter("a").unwrap();
    }

    #[test]
    fn many_clusters_of_one_namespace_keep_no_other_out() {
        let limits = Limits::default();
        let entered = (0..100).flat_map(|cluster| {
            let cluster = format!("shop-{cluster}");
            let limits = &limits;
            (0..MAX_CONCURRENT_CALLS_PER_CLUSTER).filter_map(move |_| limits.enter("shop", &cluster).ok())
        });
        let taken: Vec<CallSlot> = entered.collect();
        assert_eq!(taken.len(), MAX_CONCURRENT_CALLS_PER_NAMESPACE);
        limits.enter("bank", "billing").unwrap();
        drop(taken);
        limits.enter("shop", "shop-0").unwrap();
        limits.enter("park", "rides").unwrap();
        assert!(
            limits.calls.lock().unwrap().len() <= 2,
            "idle namespaces are forgotten"
        );
    }

    #[test]
    fn calls_are_limited_by_account_and_by_namespace() {
        let limits = Limits::default();
        let holder = |name: &str, namespace: &str| Holder {
            account: kit::placement::ObjectKey {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            account_uid: "u".to_owned(),
            pod: "p".to_owned(),
            pod_uid: "q".to_owned(),
        };
        let refused = |name: &str| {
            let error = (0..25).find_map(|_| limits.call(&holder(name, "shop")).err());
            match error {
                Some(Error::Overloaded { limit, .. }) => limit,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused("jumphost-a"), "calls-of-account");
        assert_eq!(refused("jumphost-b"), "calls-of-namespace");
        limits.call(&holder("jumphost-a", "bank")).unwrap();
    }

    #[test]
    fn actions_on_a_host_are_rate_limited_for_all_callers() {
        let limits = Limits::default();
        for _ in 0..4 {
            limits.act("a", "h").unwrap();
        }
        for cluster in ["a", "b"] {
            let error = limits.act(cluster, "h").unwrap_err();
            assert!(matches!(error, Error::TooManyActions { .. }), "{error}");
        }
        limits.act("a", "other").unwrap();
    }

    #[test]
    fn limiters_that_are_full_again_are_forgotten() {
        let limits = Limits::default();
        for host in 0..2 * MAX_LIMITERS {
            limits.cluster_limits(&host.to_string());
        }
        assert!(limits.clusters.lock().unwrap().len() <= MAX_LIMITERS);
    }
}
