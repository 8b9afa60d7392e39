//! Writes to hosts that the watch has not shown yet.
//!
//! Whoever looks at a cluster between a write and its event sees the host as it was, and would write the same again, to be
//! told of a conflict.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use crate::inventory::Key;

/// For each host that was written the `resourceVersion` that its last write was based on; one for each name at most.
#[derive(Debug, Default)]
pub struct Unseen(Mutex<HashMap<Key, String>>);

impl Unseen {
    /// A host has been written on top of this `resourceVersion`.
    pub fn written(&self, host: Key, on: String) {
        let mut writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writes.insert(host, on);
    }

    /// Whether a host that is seen at this `resourceVersion` has been written since.
    #[must_use]
    pub fn is_older(&self, host: &Key, seen: &str) -> bool {
        let mut writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let older = writes.get(host).is_some_and(|on| on == seen);
        if !older {
            writes.remove(host);
        }
        older
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_older_than_its_write_until_it_is_seen_at_another_version() {
        let unseen = Unseen::default();
        let [host, other] = ["h1", "h2"].map(|name| Key {
            namespace: "metal".to_owned(),
            name: name.to_owned(),
        });
        assert!(!unseen.is_older(&host, "7"));
        unseen.written(host.clone(), "7".to_owned());
        assert!(unseen.is_older(&host, "7"));
        assert!(!unseen.is_older(&other, "7"));
        assert!(!unseen.is_older(&host, "9"));
        assert!(!unseen.is_older(&host, "7"), "it has been seen since");
    }
}
