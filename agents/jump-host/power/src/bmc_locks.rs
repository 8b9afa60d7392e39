//! Locks that allow one action at a time on each BMC, however many systems it serves. A BMC may serve hosts of several tenants. Of each tenant,
//! that is, namespace, one action at a time waits for the BMC, so no tenant can fill the queue.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
    iter,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::OwnedMutexGuard;

use crate::error::Error;

/// Time that an action waits for others on the same BMC, at most.
const LOCK_TIMEOUT: Duration = Duration::from_mins(1);

type KeyLock = Arc<tokio::sync::Mutex<()>>;

/// The BMCs to which actions are being sent, by host and port and by the addresses that these resolve to; and the namespaces of these actions.
#[derive(Debug, Default)]
pub(crate) struct BmcLocks {
    bmcs: KeyLocks<String>,
    tenants: KeyLocks<(String, String)>,
}

/// The right to send an action to a BMC, until it is dropped.
#[derive(Debug)]
pub(crate) struct BmcLock {
    _bmc: Vec<OwnedMutexGuard<()>>,
    _tenant: Vec<OwnedMutexGuard<()>>,
}

#[derive(Debug)]
struct KeyLocks<K>(Mutex<HashMap<K, KeyLock>>);

impl<K> Default for KeyLocks<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> KeyLocks<K> {
    /// The lock of a key. Waiting tasks get it in the order in which they ask.
    fn key_lock(&self, key: K) -> KeyLock {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(key).or_default())
    }

    /// Takes the locks of several keys, one after another. All callers must pass keys in the same order.
    async fn take(&self, keys: Vec<K>) -> Vec<OwnedMutexGuard<()>> {
        let mut taken = Vec::new();
        for key in keys {
            taken.push(self.key_lock(key).lock_owned().await);
        }
        taken
    }
}

impl BmcLocks {
    /// Waits until no other action is being sent to the BMC. `bmc`: its host and port. `resolved`: the addresses to which these resolve, as far
    /// as known: a host that names the same BMC differently has one of them, too.
    ///
    /// # Errors
    /// [`Error::Overloaded`] after [`LOCK_TIMEOUT`].
    pub(crate) async fn take(
        &self,
        bmc: &str,
        resolved: &[SocketAddr],
        namespace: &str,
    ) -> Result<BmcLock, Error> {
        let resolved = resolved.iter().map(SocketAddr::to_string);
        // All actions take the locks in the same order, so no two wait for each other.
        let names: BTreeSet<String> = iter::once(bmc.to_owned()).chain(resolved).collect();
        let of_bmc: Vec<String> = names.into_iter().collect();
        let of_tenant = of_bmc
            .iter()
            .map(|name| (name.clone(), namespace.to_owned()))
            .collect();
        let taking = async {
            let of_tenant = self.tenants.take(of_tenant).await;
            let of_bmc = self.bmcs.take(of_bmc).await;
            BmcLock {
                _bmc: of_bmc,
                _tenant: of_tenant,
            }
        };
        let lock = tokio::time::timeout(LOCK_TIMEOUT, taking).await;
        lock.map_err(|_elapsed| Error::Overloaded {
            what: format!("other actions on the BMC {bmc} take more than {LOCK_TIMEOUT:?}"),
            limit: "actions-on-bmc",
            retry_after: LOCK_TIMEOUT,
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_bmc_takes_one_action_at_a_time() {
        let bmc_locks = BmcLocks::default();
        let first = bmc_locks.take("a", &[], "orders").await.unwrap();
        assert!(bmc_locks.take("a", &[], "orders").now_or_never().is_none());
        assert!(bmc_locks.take("a", &[], "billing").now_or_never().is_none());
        bmc_locks.take("b", &[], "orders").await.unwrap();
        drop(first);
        bmc_locks.take("a", &[], "billing").await.unwrap();
    }

    #[tokio::test]
    async fn a_bmc_is_one_however_its_address_is_written() {
        let bmc_locks = BmcLocks::default();
        let (v4, v6): (SocketAddr, SocketAddr) = (
            "192.0.2.1:443".parse().unwrap(),
            "[2001:db8::1]:443".parse().unwrap(),
        );
        let by_name = bmc_locks.take("bmc.example:443", &[v6, v4], "orders").await;
        let by_name = by_name.unwrap();
        for (bmc, resolved) in [
            ("bmc.example:443", vec![]),
            ("192.0.2.1:443", vec![v4]),
            ("[2001:db8::1]:443", vec![]),
            ("alias.example:443", vec![v4, v6]),
        ] {
            let waiting = bmc_locks.take(bmc, &resolved, "billing");
            assert!(waiting.now_or_never().is_none(), "{bmc}");
        }
        let other_port = bmc_locks.take("192.0.2.1:8443", &[], "orders");
        assert!(other_port.now_or_never().unwrap().is_ok());
        drop(by_name);
        let both = [v4, v6];
        let by_alias = bmc_locks.take("alias.example:443", &both, "billing");
        assert!(by_alias.now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn actions_of_one_tenant_let_another_be_next() {
        let bmc_locks = BmcLocks::default();
        let first = bmc_locks.take("a", &[], "orders").await.unwrap();
        let mut queue: Vec<_> = (0..30)
            .map(|_| Box::pin(bmc_locks.take("a", &[], "orders")))
            .collect();
        for waiting in &mut queue {
            assert!(waiting.now_or_never().is_none());
        }
        let mut other = Box::pin(bmc_locks.take("a", &[], "billing"));
        assert!((&mut other).now_or_never().is_none());
        drop(first);
        // Each gets as far as it can, those of the other tenant first.
        for waiting in &mut queue {
            assert!(waiting.now_or_never().is_none());
        }
        other.now_or_never().unwrap().unwrap();
    }
}
