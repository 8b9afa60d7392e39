//! Whether the server that answers at a provider's issuer is the provider itself.
//!
//! An entry may name the issuer of another cluster's provider, and use the same CA; that provider then answers as expected. But it signs with
//! keys of its own: the keys of each provider are in its part of the storage, where no other provider can write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::storage::{self, StoragePart, Store};

/// How long the agent uses keys that it has read. A provider makes a new one every few hours, and publishes earlier ones until their tokens expire.
const KEYS_TTL: Duration = Duration::from_hours(1);
/// Pause after which the agent reads the keys of a provider again if others answer at its issuer. Each read costs the storage a login.
const REREAD_INTERVAL: Duration = Duration::from_mins(1);

/// Why the keys at an issuer are not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The agent cannot read the provider's keys.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// Another provider answers at the issuer.
    #[error("another provider answers there: its keys are not those of this one")]
    OtherProvider,
}

/// The keys of providers, as they were read last.
#[derive(Debug, Default)]
pub struct OwnKeys {
    store: Option<Arc<Store>>,
    cache: Mutex<BTreeMap<StoragePart, CachedKeys>>,
}

#[derive(Debug)]
struct CachedKeys {
    ids: BTreeSet<String>,
    read: Instant,
}

impl OwnKeys {
    /// The keys in this storage; without one there are none.
    #[must_use]
    pub fn new(store: Option<Arc<Store>>) -> Self {
        Self {
            store,
            cache: Mutex::default(),
        }
    }

    /// Compares the keys that an issuer publishes with those of the provider. One common key is enough: while a key is being replaced there are
    /// several.
    ///
    /// # Errors
    /// When none of them is the provider's, or that is not known.
    pub async fn compare(&self, part: &StoragePart, answered: &BTreeSet<String>) -> Result<(), Error> {
        if let Some(is_own) = self.compare_cached(part, answered) {
            return is_own.then_some(()).ok_or(Error::OtherProvider);
        }
        let ids = match &self.store {
            Some(store) => store.key_ids(part).await?,
            None => BTreeSet::new(),
        };
        let is_own = !ids.is_disjoint(answered);
        let read = Instant::now();
        let mut cache = self.cache();
        cache.retain(|_, keys| read.saturating_duration_since(keys.read) < KEYS_TTL);
        cache.insert(part.clone(), CachedKeys { ids, read });
        is_own.then_some(()).ok_or(Error::OtherProvider)
    }

    /// Compares with the keys as they were read last; `None` if they have to be read.
    fn compare_cached(&self, part: &StoragePart, answered: &BTreeSet<String>) -> Option<bool> {
        let cache = self.cache();
        let CachedKeys { ids, read } = cache.get(part)?;
        let age = read.elapsed();
        if ids.is_disjoint(answered) {
            (age < REREAD_INTERVAL).then_some(false)
        } else {
            (age < KEYS_TTL).then_some(true)
        }
    }

    fn cache(&self) -> MutexGuard<'_, BTreeMap<StoragePart, CachedKeys>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
