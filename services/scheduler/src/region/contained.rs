//! Work for a site that no caller has requested. A panic that one site's state causes must not end the term, which serves all sites: the work
//! starts again after growing pauses.

use std::{panic::AssertUnwindSafe, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use futures::FutureExt as _;
use tokio::time::Instant;

use crate::ledger::{StageMetrics, commit::Stopped};

/// Minimum and maximum pause between a panic and the next try.
const RETRY_BACKOFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(5)];
/// Time without a panic after which the pauses begin with the minimum again.
const BACKOFF_RESET: Duration = Duration::from_mins(10);

/// Work of a site.
#[derive(Clone, Debug)]
pub(super) struct Contained {
    pub(super) site: String,
    pub(super) work: &'static str,
    pub(super) metrics: StageMetrics,
}

impl Contained {
    /// Does it once. `None`: it has panicked.
    pub(super) async fn once<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let done = AssertUnwindSafe(work).catch_unwind().await;
        if let Err(panic) = &done {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let (site, work) = (&self.site, self.work);
            tracing::error!(
                site,
                work,
                panic = text.unwrap_or("without text"),
                "work for a site has panicked and is tried again"
            );
            self.metrics.panicked(site, work);
        }
        done.ok()
    }

    /// Does what only ends when the ledger has stopped.
    pub(super) async fn always<F>(&self, begin: impl Fn() -> F) -> Result<(), Stopped>
    where
        F: Future<Output = Result<(), Stopped>>,
    {
        let mut pauses = pauses();
        loop {
            let begun = Instant::now();
            if let Some(ended) = self.once(begin()).await {
                return ended;
            }
            if begun.elapsed() > BACKOFF_RESET {
                pauses = self::pauses();
            }
            tokio::time::sleep(pauses.next().unwrap_or(RETRY_BACKOFF[1])).await;
        }
    }
}

/// How long to wait before each try.
pub(super) fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(RETRY_BACKOFF[0])
        .with_max_delay(RETRY_BACKOFF[1])
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
        time::SystemTime,
    };

    use ::placement::{ClusterName, Namespace, Policy};
    use tokio::sync::watch;

    use super::*;
    use crate::{
        ledger::{Contents, RecordKey, commit},
        policy::Policies,
        record::Record,
        region::{Region, fixtures::contents_of},
        spec::Spec,
    };

    /// A region whose clock is this.
    fn region_with_clock(
        contents: Contents,
        clock: impl Fn() -> SystemTime + Send + Sync + 'static,
    ) -> (Region, commit::Writer) {
        let (committer, writer) = commit::committer(contents.commit);
        let region = Region::with_clock(contents, Policies::new(), committer, clock);
        (region, writer)
    }

    /// A region of two sites whose clock panics so many times.
    fn region(bugs: &Arc<AtomicU32>) -> (Region, commit::Writer) {
        let bugs = Arc::clone(bugs);
        region_with_clock(contents_of(&["a", "b"]), move || {
            let left = bugs.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            assert!(left.is_err(), "a bug");
            SystemTime::UNIX_EPOCH
        })
    }

    /// For every site.
    fn another_policy() -> (Policy, Policies) {
        let policy = Policy {
            namespace_preference: vec![Namespace::new("metal").unwrap()],
            ..Policy::default()
        };
        (policy.clone(), BTreeMap::from([("*".to_owned(), policy)]))
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_in_a_sites_round_does_not_end_the_term() {
        let bugs = Arc::new(AtomicU32::new(5));
        let (region, _writer) = region(&bugs);
        let rounds = tokio::spawn(region.clone().run_retries());
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(!rounds.is_finished());
        assert_eq!(bugs.load(Ordering::Relaxed), 0, "it was tried again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_over_a_policy_leaves_it_to_be_followed() {
        let bugs = Arc::new(AtomicU32::new(2));
        let (region, _writer) = region(&bugs);
        let (sender, policies) = watch::channel(Policies::new());
        let following = tokio::spawn(region.clone().run_policies(policies));
        let (policy, policies) = another_policy();
        sender.send_replace(policies);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(!following.is_finished());
        for (_, site) in region.sites() {
            assert_eq!(*site.read().model().policy(), policy);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_over_a_cluster_keeps_back_no_other() {
        let mut contents = Contents::default();
        for name in ["one", "other"] {
            let cluster = ClusterName::new("shop", name).unwrap();
            let key = RecordKey {
                site: "a".to_owned(),
                cluster: cluster.clone(),
            };
            let record = Record::new(cluster, "uid".to_owned(), None, 1, Spec::default());
            contents.records.insert(key, Arc::new(record));
        }
        // Each time that the clock is read in a task something is done: the site's policy changes, then each cluster is settled.
        let done = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&done);
        let (region, _writer) = region_with_clock(contents, move || {
            assert_ne!(counted.fetch_add(1, Ordering::Relaxed), 1, "a bug");
            SystemTime::UNIX_EPOCH
        });
        let before = done.swap(0, Ordering::Relaxed);
        assert_eq!(before, 0, "nothing is done yet");
        let (sender, policies) = watch::channel(Policies::new());
        let following = tokio::spawn(region.clone().run_policies(policies));
        sender.send_replace(another_policy().1);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(!following.is_finished());
        assert_eq!(
            done.load(Ordering::Relaxed),
            5,
            "the policy, one, other; the policy again, one"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_between_panics_grow() {
        let contained = Contained {
            site: "a".to_owned(),
            work: "test",
            metrics: StageMetrics::default(),
        };
        let tries = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&tries);
        let always = tokio::spawn(async move {
            let begin = || async {
                counted.fetch_add(1, Ordering::Relaxed);
                panic!("a bug")
            };
            contained.always(begin).await
        });
        tokio::time::sleep(Duration::from_hours(1)).await;
        let tries = tries.load(Ordering::Relaxed);
        assert!((12..30).contains(&tries), "{tries}");
        always.abort();
    }
}
