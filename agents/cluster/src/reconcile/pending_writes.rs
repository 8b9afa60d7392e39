//! Writes to hosts and statuses that the watch does not show yet.
//!
//! A pass between a write and its event observes the object as it was, and would write the same again, to be answered with a
//! conflict.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use kit::placement::ObjectKey;

/// Writes that are recorded at most. Writes of deleted objects stay recorded; one that is forgotten causes a conflict at most.
const MAX_WRITES: usize = 65_536;

/// For each object that was written the `resourceVersion` that its last write was based on; one for each name at most. All objects
/// are of one kind.
#[derive(Debug, Default)]
pub struct PendingWrites(Mutex<HashMap<ObjectKey, String>>);

impl PendingWrites {
    /// An object has been written on top of this `resourceVersion`, and has another one since: of a write that changes nothing no watch
    /// delivers an event.
    pub fn written(&self, object: ObjectKey, base: String) {
        let mut writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if writes.len() >= MAX_WRITES {
            writes.clear();
        }
        writes.insert(object, base);
    }

    /// Whether an object that is observed at this `resourceVersion` has been written since. A write is forgotten once the object is
    /// observed at another one.
    #[must_use]
    pub fn is_pending(&self, object: &ObjectKey, observed: &str) -> bool {
        let mut writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = writes.get(object).is_some_and(|base| base == observed);
        if !pending {
            writes.remove(object);
        }
        pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::key;

    #[test]
    fn writes_of_objects_that_are_gone_are_bounded() {
        let pending = PendingWrites::default();
        for number in 0..=MAX_WRITES {
            pending.written(key(&number.to_string()), "7".to_owned());
        }
        let recorded = pending.0.lock().unwrap().len();
        assert_eq!(recorded, 1);
        assert!(pending.is_pending(&key(&MAX_WRITES.to_string()), "7"));
    }

    #[test]
    fn a_write_is_pending_until_its_host_is_seen_at_another_version() {
        let pending = PendingWrites::default();
        let [host, other] = ["h1", "h2"].map(key);
        assert!(!pending.is_pending(&host, "7"));
        pending.written(host.clone(), "7".to_owned());
        assert!(pending.is_pending(&host, "7"));
        assert!(!pending.is_pending(&other, "7"));
        assert!(!pending.is_pending(&host, "9"));
        assert!(!pending.is_pending(&host, "7"), "it has been seen since");
    }
}
