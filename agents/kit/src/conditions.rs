//! Conditions: written only on change; `lastTransitionTime` changes only with the status.

use api::conditions::{ConditionType, Reason, Status};
pub use api::conditions::{NAMESPACE_NOT_GRANTED, REMOVED};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};

use crate::message::readable_stored;

/// Bytes of a message as an API server stores it, with escapes, at most. The schema of a condition admits four times as much, but all conditions of a
/// cluster have to fit into the part of its object that is reserved for them (`agents/api/src/cluster/size.rs`).
const MAX_MESSAGE_BYTES: usize = 8_192;

/// What an agent finds; [`Finding::condition`] makes it a [`Condition`], based on the existing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Type of the condition.
    pub kind: ConditionType,
    /// `Some(true)` True, `Some(false)` False, `None` Unknown.
    pub status: Option<bool>,
    /// One of [`ConditionType::reasons`].
    pub reason: Reason,
    /// For messages.
    pub message: String,
}

impl Finding {
    /// The condition is True.
    pub fn yes(kind: ConditionType, reason: Reason, message: impl Into<String>) -> Self {
        debug_assert!(is_documented(kind, reason, Status::True), "{kind}: {reason}");
        Self {
            kind,
            status: Some(true),
            reason,
            message: message.into(),
        }
    }

    /// The condition is False.
    pub fn no(kind: ConditionType, reason: Reason, message: impl Into<String>) -> Self {
        debug_assert!(is_documented(kind, reason, Status::False), "{kind}: {reason}");
        Self {
            kind,
            status: Some(false),
            reason,
            message: message.into(),
        }
    }

    /// The condition is Unknown.
    pub fn unknown(kind: ConditionType, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            kind,
            status: None,
            reason,
            message: message.into(),
        }
    }

    /// The condition for a spec of this generation. The time is `now` only if the status differs from the one before.
    #[must_use]
    pub fn condition(self, existing: &[Condition], generation: i64, now: Timestamp) -> Condition {
        let Self {
            kind,
            status,
            reason,
            message,
        } = self;
        let status = match status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let before = find(existing, kind).filter(|before| before.status == status);
        Condition {
            type_: kind.to_string(),
            status: status.to_owned(),
            reason: reason.to_string(),
            message: readable_stored(&message, MAX_MESSAGE_BYTES),
            observed_generation: Some(generation),
            last_transition_time: before.map_or(Time(now), |before| before.last_transition_time.clone()),
        }
    }
}

/// Whether the reference page has the reason with this status. Types whose agent is not part of this version have no reasons there.
fn is_documented(kind: ConditionType, reason: Reason, status: Status) -> bool {
    let reasons = kind.reasons();
    reasons.is_empty()
        || reasons
            .iter()
            .any(|meaning| (meaning.reason, meaning.status) == (reason, status))
}

/// The condition of a type.
#[must_use]
pub fn find(conditions: &[Condition], kind: ConditionType) -> Option<&Condition> {
    conditions
        .iter()
        .find(|condition| condition.type_ == kind.as_str())
}

/// Whether the condition is True for this generation of the spec.
#[must_use]
pub fn is_true(conditions: &[Condition], kind: ConditionType, generation: i64) -> bool {
    find(conditions, kind).is_some_and(|condition| {
        condition.status == "True" && condition.observed_generation == Some(generation)
    })
}

#[cfg(test)]
mod tests {
    use api::{
        conditions::{READY, ready},
        stored_bytes,
    };

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_time_changes_with_the_status_and_with_nothing_else() {
        let first = Finding::no(READY, ready::PROGRESSING, "a").condition(&[], 1, at(1));
        let second =
            Finding::no(READY, ready::UNSCHEDULABLE, "b").condition(std::slice::from_ref(&first), 2, at(2));
        assert_eq!(second.last_transition_time, Time(at(1)));
        assert_eq!(
            (&*second.reason, &*second.message, second.observed_generation),
            ("Unschedulable", "b", Some(2))
        );
        let third = Finding::yes(READY, ready::RECONCILIATION_SUCCEEDED, "").condition(&[second], 2, at(3));
        assert_eq!(third.last_transition_time, Time(at(3)));
    }

    #[test]
    fn a_condition_of_an_older_generation_is_not_true() {
        let old = Finding::yes(READY, ready::RECONCILIATION_SUCCEEDED, "").condition(&[], 1, at(1));
        assert!(is_true(std::slice::from_ref(&old), READY, 1));
        assert!(!is_true(&[old], READY, 2));
    }

    #[test]
    fn a_message_is_truncated_at_a_character_within_the_limit() {
        let long =
            Finding::no(READY, ready::PROGRESSING, "é".repeat(MAX_MESSAGE_BYTES)).condition(&[], 1, at(1));
        assert!(long.message.len() <= MAX_MESSAGE_BYTES && long.message.ends_with('…'));
    }

    #[test]
    fn a_message_takes_no_more_than_its_limit_when_stored() {
        for hostile in ["<", "\"", "\n", "\u{1b}", "\u{2028}", "é<", "a😀&\\"] {
            let finding = Finding::no(READY, ready::PROGRESSING, hostile.repeat(MAX_MESSAGE_BYTES));
            let message = finding.condition(&[], 1, at(1)).message;
            // Without the quotes around it.
            let bytes = stored_bytes(&message) - 2;
            assert!(bytes <= MAX_MESSAGE_BYTES, "{hostile:?} takes {bytes} bytes");
            // The longest escape has six bytes.
            assert!(
                bytes > MAX_MESSAGE_BYTES - 6,
                "{hostile:?} takes {bytes} bytes only"
            );
            assert!(message.ends_with('…'), "{hostile:?}");
        }
    }
}
