//! A Kubernetes Event that a pass publishes.

/// A Kubernetes Event about the `SIPCluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) note: String,
}

impl Event {
    pub(super) fn normal(reason: &'static str, note: impl Into<String>) -> Self {
        Self {
            warning: false,
            reason,
            note: note.into(),
        }
    }

    pub(super) fn warning(reason: &'static str, note: impl Into<String>) -> Self {
        Self {
            warning: true,
            reason,
            note: note.into(),
        }
    }
}
