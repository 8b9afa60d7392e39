//! Backoff: pauses between reconciles of an object that keep failing grow, per object, with jitter.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use kube::{ResourceExt, runtime::watcher};

/// The first backoff of an object, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Time without a result of its reconciles after which an object counts as gone: an existing one is retried after each backoff.
const FORGET_AFTER: Duration = Duration::from_mins(10);

/// The first backoff of a watch that was interrupted, and the longest. The watches of one controller share their backoff, and each is refused several
/// times while an API server starts: longer ones would leave a site without reconciles for half a minute after a restart of a second.
const WATCH_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Pauses between tries to open a watch again, with jitter, without end.
#[must_use]
pub fn watch_pauses() -> watcher::ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(WATCH_BACKOFF.0)
        .with_max_delay(WATCH_BACKOFF.1)
        .with_jitter()
        .without_max_times()
        .into()
}

/// The pauses of all objects that fail at present. Entries of objects that are gone are removed after `FORGET_AFTER`.
#[derive(Debug, Default)]
pub struct Retries {
    failing: Mutex<BTreeMap<(String, String), Failing>>,
}

/// An object that fails.
#[derive(Debug)]
struct Failing {
    pauses: ExponentialBackoff,
    /// When it failed last.
    last: Instant,
}

impl Retries {
    /// Records that reconciling an object has failed. Returns the pause before the next try.
    #[must_use]
    pub fn failed(&self, object: &impl ResourceExt) -> Duration {
        self.failed_at(object, Instant::now())
    }

    fn failed_at(&self, object: &impl ResourceExt, now: Instant) -> Duration {
        let pauses = || {
            ExponentialBuilder::new()
                .with_min_delay(BACKOFF.0)
                .with_max_delay(BACKOFF.1)
                .with_jitter()
                .without_max_times()
                .build()
        };
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(object);
        if !failing.contains_key(&key) {
            failing.retain(|_, failing| now.saturating_duration_since(failing.last) < FORGET_AFTER);
        }
        let failing = failing.entry(key).or_insert_with(|| Failing {
            pauses: pauses(),
            last: now,
        });
        failing.last = now;
        failing.pauses.next().unwrap_or(BACKOFF.1)
    }

    /// Whether reconciling an object failed the last time.
    #[must_use]
    pub fn is_failing(&self, object: &impl ResourceExt) -> bool {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        failing.contains_key(&key(object))
    }

    /// Records that reconciling an object has succeeded: its next failure counts as the first.
    pub fn succeeded(&self, object: &impl ResourceExt) {
        self.failing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&key(object));
    }
}

fn key(object: &impl ResourceExt) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::ObjectMeta;

    use super::*;

    fn object(name: &str) -> Pod {
        Pod {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..Pod::default()
        }
    }

    #[test]
    fn a_watch_is_retried_for_ever_within_seconds() {
        let pauses: Vec<Duration> = watch_pauses().take(50).collect();
        assert_eq!(pauses.len(), 50);
        assert!(pauses[0] < pauses[49], "{pauses:?}");
        // Jitter adds as much again at most.
        assert!(
            pauses.iter().all(|pause| *pause <= 2 * WATCH_BACKOFF.1),
            "{pauses:?}"
        );
    }

    #[test]
    fn objects_that_are_gone_are_forgotten() {
        let retries = Retries::default();
        let start = Instant::now();
        let mut last = Duration::ZERO;
        for minute in 0..60 {
            let now = start + Duration::from_mins(minute);
            let _ = retries.failed_at(&object(&format!("gone-{minute}")), now);
            last = retries.failed_at(&object("stays"), now);
        }
        assert!(
            last >= BACKOFF.1,
            "{last:?}: who fails all the time is not forgotten"
        );
        let known: Vec<String> = retries
            .failing
            .lock()
            .unwrap()
            .keys()
            .map(|(_, name)| name.clone())
            .collect();
        assert_eq!(known.len(), 11, "{known:?}");
    }

    #[test]
    fn backoff_is_per_object_bounded_and_reset_by_success() {
        let retries = Retries::default();
        let pauses: Vec<Duration> = (0..20).map(|_| retries.failed(&object("a"))).collect();
        assert!(pauses[0] < pauses[19] && pauses[19] >= BACKOFF.1, "{pauses:?}");
        assert!(
            retries.failed(&object("b")) < Duration::from_secs(1),
            "another object's failures do not count"
        );
        retries.succeeded(&object("a"));
        assert!(retries.failed(&object("a")) < Duration::from_secs(1));
    }
}
