//! Pending clusters are decided again, in order.

use std::{
    collections::{BTreeSet, VecDeque},
    future,
    sync::Arc,
    time::{Duration, Instant},
};

use ::placement::ClusterName;
use futures::FutureExt as _;

use super::{Region, SCHEDULER_CALLER, shared::SharedSite};
use crate::{ledger::commit::Stopped, site::Author};

/// Minimum time between two rounds of decisions for pending clusters, per site.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time of the decisions of one round; the next round decides the remaining clusters. So one site with many pending clusters takes
/// half a core at most, and its other calls are decided in between.
const MAX_ROUND_DURATION: Duration = Duration::from_millis(500);

/// Maximum wait for a point in time: the clock may be set meanwhile.
const MAX_WAIT: Duration = Duration::from_mins(1);

impl Region {
    /// Decides again for clusters that wait, whenever claims or inventory have changed, at most once a second per
    /// site. Ends when the ledger has stopped.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn run_retries(self) -> Result<(), Stopped> {
        let mut rounds = tokio::task::JoinSet::new();
        let mut known = BTreeSet::new();
        loop {
            for (name, site) in self.sites() {
                if known.insert(name.clone()) {
                    let (region, contained) = (self.clone(), self.contained(name, "retry"));
                    rounds.spawn(async move {
                        let begin = || region.clone().retry_site(Arc::clone(&site));
                        contained.always(begin).await
                    });
                }
            }
            tokio::select! {
                () = self.inner.appeared.notified() => {}
                Some(ended) = rounds.join_next() => return ended.unwrap_or(Err(Stopped)),
            }
        }
    }

    /// Waits until claims or inventory have changed, or a time is over: of a cluster without `SIPCluster`, or of a member
    /// whose host may be unwell only for so long.
    async fn awaken(&self, site: &SharedSite) {
        let now = self.now();
        let next = {
            let site = site.reading().await;
            site.next_forgotten(now)
                .into_iter()
                .chain(site.next_failure())
                .min()
        };
        let left = next.map(|time| time.duration_since(now).unwrap_or_default().min(MAX_WAIT));
        let over = async {
            match left {
                Some(left) => tokio::time::sleep(left).await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            () = site.retry.notified() => {}
            () = over => {}
        }
    }

    async fn retry_site(self, site: Arc<SharedSite>) -> Result<(), Stopped> {
        let mut pace = tokio::time::interval(ROUND_INTERVAL);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut rest = VecDeque::new();
        loop {
            let has_changed = if rest.is_empty() {
                self.awaken(&site).await;
                true
            } else {
                site.retry.notified().now_or_never().is_some()
            };
            pace.tick().await;
            let forgotten = site.reading().await.forgotten(self.now());
            for cluster in forgotten {
                let permit = self.reserve(&site).await?;
                let author = Author {
                    caller: SCHEDULER_CALLER,
                    action: "forget",
                    now: self.now(),
                };
                site.changing().await.forget(&cluster, &author, permit);
            }
            let failed = site.reading().await.failed_meanwhile(self.now());
            for cluster in failed {
                let permit = self.reserve(&site).await?;
                let author = Author {
                    caller: SCHEDULER_CALLER,
                    action: "observe",
                    now: self.now(),
                };
                site.changing().await.settle(&cluster, &author, permit);
            }
            // What has changed meanwhile is for the first in the order, also while the order before is not done.
            let mut order = VecDeque::new();
            let mut left = MAX_ROUND_DURATION;
            if has_changed {
                order = site.reading().await.waiting(self.now()).into();
                let (of_order, of_rest) = if rest.is_empty() {
                    (MAX_ROUND_DURATION, Duration::ZERO)
                } else {
                    (MAX_ROUND_DURATION / 2, MAX_ROUND_DURATION / 2)
                };
                left = self.retry_in_order(&site, &mut order, of_order).await? + of_rest;
            }
            self.retry_in_order(&site, &mut rest, left).await?;
            if rest.is_empty() {
                rest = order;
            }
        }
    }

    /// Decides again for clusters in this order, for so long or until all are decided. Returns how much time is left.
    async fn retry_in_order(
        &self,
        site: &SharedSite,
        order: &mut VecDeque<ClusterName>,
        time: Duration,
    ) -> Result<Duration, Stopped> {
        let mut decided = Duration::ZERO;
        while decided < time
            && let Some(cluster) = order.pop_front()
        {
            let permit = self.reserve(site).await?;
            let author = Author {
                caller: SCHEDULER_CALLER,
                action: "retry",
                now: self.now(),
            };
            let begun = Instant::now();
            self.decide_blocking(site, author.action, |site| site.retry(&cluster, &author, permit))
                .await;
            decided += begun.elapsed();
            tokio::task::yield_now().await;
        }
        Ok(time.saturating_sub(decided))
    }
}
