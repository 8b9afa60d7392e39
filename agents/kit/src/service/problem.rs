//! Why an instance is not as its spec asks: refused or not complete yet. Failures of a pass are [`super::error::Error`]s instead.

use api::conditions::Reason;
pub(super) use api::conditions::{
    load_balancer::{
        AVAILABLE, IMAGE_PULL, NAME_CONFLICT, NETWORK_ATTACHMENT_MISSING, OVERRIDE_NOT_ALLOWED, PODS_FAIL,
        PORT_CONFLICT, REFUSED,
    },
    ready::PROGRESSING,
};

/// Why an instance is not as its spec asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Reason for the condition.
    pub reason: Reason,
    /// For people.
    pub message: String,
}

/// Why an instance is not served in a pass.
#[derive(Clone, Debug)]
pub(super) enum Unserved {
    /// What the spec asks for is refused.
    Refused(Problem),
    /// A call failed, and what runs is left as it is; for people. The pass is tried again.
    Failed(Problem),
}

impl Problem {
    /// A problem with this reason.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    /// Whether it goes away by itself.
    pub(super) fn is_progress(&self) -> bool {
        self.reason == PROGRESSING
    }

    /// The same, with the name of its instance before the message.
    pub(super) fn named(&self, name: &str) -> Self {
        Self::new(self.reason, format!("{name}: {}", self.message))
    }
}
