//! How long hosts have waited for pods. The time counts from when this process asked the pods first: they get the configuration without the host
//! from this agent, which may not have run when the release began.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use api::{Drained, SIPCluster};
use kube::runtime::reflector::{ObjectRef, Store};

/// The newest release for which the pods of each cluster are asked, and since when.
#[derive(Debug, Default)]
pub(crate) struct ReleaseWaitTimes(Mutex<HashMap<ObjectRef<SIPCluster>, (Drained, Instant)>>);

impl ReleaseWaitTimes {
    /// How long the pods of a cluster have been asked whether they no longer route to hosts that are released up to `goal`. `clusters`: the existing
    /// ones; the times of others are removed.
    pub(crate) fn waited(
        &self,
        clusters: &Store<SIPCluster>,
        cluster: &SIPCluster,
        goal: Drained,
        now: Instant,
    ) -> Duration {
        let key = ObjectRef::from_obj(cluster);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(&key).is_none_or(|(known, _)| *known != goal) {
            all.retain(|key, _| clusters.get(key).is_some());
            all.insert(key, (goal, now));
            return Duration::ZERO;
        }
        let since = all.get(&key).map(|(_, since)| *since);
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Nothing waits for the pods of a cluster.
    pub(crate) fn end(&self, cluster: &SIPCluster) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&ObjectRef::from_obj(cluster));
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector::store, watcher::Event};
    use serde_json::json;

    use super::*;

    fn cluster(name: &str) -> SIPCluster {
        let cluster = json!({"metadata": {"namespace": "tenant", "name": name, "uid": name}, "spec": {}});
        serde_json::from_value(cluster).unwrap()
    }

    #[test]
    fn hosts_wait_since_pods_were_asked_first() {
        let (clusters, mut writer) = store();
        let shop = cluster("shop");
        writer.apply_watcher_event(&Event::Apply(shop.clone()));
        let waits = ReleaseWaitTimes::default();
        let start = Instant::now();
        let waited = |revision, seconds| {
            let goal = Drained { epoch: 1, revision };
            let now = start + Duration::from_secs(seconds);
            waits.waited(&clusters, &shop, goal, now).as_secs()
        };
        assert_eq!(waited(5, 0), 0, "the release may have begun long ago");
        assert_eq!(waited(5, 50), 50);
        assert_eq!(waited(6, 60), 0, "another host leaves");
        assert_eq!(waited(6, 70), 10);
        waits.end(&shop);
        assert_eq!(waited(6, 80), 0, "it waits again");
    }

    #[test]
    fn wait_times_of_deleted_clusters_are_forgotten() {
        let (clusters, mut writer) = store();
        let (shop, bank) = (cluster("shop"), cluster("bank"));
        let goal = Drained {
            epoch: 1,
            revision: 5,
        };
        writer.apply_watcher_event(&Event::Apply(shop.clone()));
        let waits = ReleaseWaitTimes::default();
        let now = Instant::now();
        waits.waited(&clusters, &shop, goal, now);
        writer.apply_watcher_event(&Event::Delete(shop.clone()));
        writer.apply_watcher_event(&Event::Apply(bank.clone()));
        waits.waited(&clusters, &bank, goal, now);
        assert_eq!(waits.0.lock().unwrap().len(), 1);
    }
}
