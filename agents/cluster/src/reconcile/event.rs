//! A Kubernetes Event that a pass publishes.

use kit::events::EventReason;

/// A Kubernetes Event about the `SIPCluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) reason: EventReason,
    pub(super) note: String,
}

impl Event {
    pub(super) fn new(reason: EventReason, note: impl Into<String>) -> Self {
        Self {
            reason,
            note: note.into(),
        }
    }
}
