//! How long the log of decisions is kept.

use std::time::{Duration, SystemTime};

use proto::placement::v1 as api;

use crate::convert;

/// Entries that one commit removes at most, besides one for each that it adds: the log shrinks, and no commit takes long.
pub(crate) const STEP: usize = 32;

/// How much of the log of decisions is kept: the newest entries within both limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Age of the oldest entry, measured from the newest one: no clock is asked.
    pub age: Duration,
    /// Bytes of all entries as they are stored.
    pub bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            age: Duration::from_hours(90 * 24),
            bytes: 1 << 30,
        }
    }
}

impl Retention {
    /// Whether the oldest entry goes, when the log has so many bytes with it and its newest entry is of that time. One that
    /// cannot be read goes too, since it can never be told.
    pub(crate) fn drops(&self, oldest: &[u8], bytes: u64, newest: Option<SystemTime>) -> bool {
        if bytes > self.bytes {
            return true;
        }
        match <api::Decision as prost::Message>::decode(oldest) {
            Ok(decision) => match (convert::time(decision.time), newest) {
                (Some(time), Some(newest)) => newest.duration_since(time).is_ok_and(|age| age > self.age),
                (None, _) | (_, None) => false,
            },
            Err(_) => true,
        }
    }
}
