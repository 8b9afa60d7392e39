//! A semaphore for each of many keys.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Semaphore;

/// Semaphores by key; those without a holder and a waiter are removed.
#[derive(Debug)]
pub(crate) struct Semaphores<K>(Mutex<HashMap<K, Arc<Semaphore>>>);

impl<K> Default for Semaphores<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Semaphores<K> {
    /// The semaphore of a key. `most`: its permits, the same for every key.
    pub(crate) fn get(&self, key: K, most: usize) -> Arc<Semaphore> {
        let mut semaphores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        semaphores.retain(|_, semaphores| Arc::strong_count(semaphores) > 1);
        let new = || Arc::new(Semaphore::new(most));
        Arc::clone(semaphores.entry(key).or_insert_with(new))
    }
}
