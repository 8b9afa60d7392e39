//! Whether the server that answers at a provider's issuer is the provider itself.
//!
//! An entry may name the issuer of another cluster's provider, and use the same CA; that provider then answers as expected. But it signs with
//! keys of its own: the keys of each provider are in its part of the storage, where no other provider can write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::storage::{self, Part, Store};

/// How long keys count as read. A provider makes a new one every few hours, and publishes earlier ones until their tokens expire.
const LASTING: Duration = Duration::from_hours(1);
/// Pause after which the agent reads the keys of a provider again if others answer at its issuer. Each read costs the storage a login.
const PAUSE: Duration = Duration::from_mins(1);

/// Why the provider does not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its keys cannot be read.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// Another provider answers.
    #[error("another provider answers there: its keys are not those of this one")]
    Other,
}

/// The keys of providers, as they were read last.
#[derive(Debug, Default)]
pub struct OwnKeys {
    store: Option<Arc<Store>>,
    known: Mutex<BTreeMap<Part, Known>>,
}

#[derive(Debug)]
struct Known {
    ids: BTreeSet<String>,
    read: Instant,
}

impl OwnKeys {
    /// The keys in this storage; without one there are none.
    #[must_use]
    pub fn new(store: Option<Arc<Store>>) -> Self {
        Self {
            store,
            known: Mutex::default(),
        }
    }

    /// Compares the keys that an issuer publishes with those of the provider. One common key is enough: while a key is being replaced there are
    /// several.
    ///
    /// # Errors
    /// When none of them is the provider's, or that is not known.
    pub async fn compare(&self, part: &Part, answered: &BTreeSet<String>) -> Result<(), Error> {
        if let Some(is_own) = self.by_known(part, answered) {
            return is_own.then_some(()).ok_or(Error::Other);
        }
        let ids = match &self.store {
            Some(store) => store.key_ids(part).await?,
            None => BTreeSet::new(),
        };
        let is_own = !ids.is_disjoint(answered);
        let read = Instant::now();
        let mut known = self.known();
        known.retain(|_, known| read.saturating_duration_since(known.read) < LASTING);
        known.insert(part.clone(), Known { ids, read });
        is_own.then_some(()).ok_or(Error::Other)
    }

    /// Compares with the keys as they were read last; `None` if they have to be read.
    fn by_known(&self, part: &Part, answered: &BTreeSet<String>) -> Option<bool> {
        let known = self.known();
        let Known { ids, read } = known.get(part)?;
        let age = read.elapsed();
        if ids.is_disjoint(answered) {
            (age < PAUSE).then_some(false)
        } else {
            (age < LASTING).then_some(true)
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Part, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
