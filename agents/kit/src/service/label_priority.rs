//! Labels of hosts have priority over pods: pods are started when no host of the site waits for its labels, or has waited long.
//!
//! A host needs minutes until something answers on it, and that begins with its labels; pods need seconds. When many clusters
//! are created at once, starting pods would take the API server's time from labelling hosts.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use api::{MemberState, SIPCluster};
use kube::runtime::reflector::{ObjectRef, Store};

use super::observed::is_decided;

/// Nothing waits longer than this for the hosts of any cluster.
const AT_MOST: Duration = Duration::from_secs(20);
/// Pause after which a cluster whose pods wait is reconciled again.
pub(super) const RESYNC: Duration = Duration::from_secs(1);

/// The clusters with hosts that wait for their labels, and since when this process has observed that.
#[derive(Debug, Default)]
pub(super) struct LabelPriority(Mutex<HashMap<ObjectRef<SIPCluster>, Instant>>);

impl LabelPriority {
    /// Records a cluster as it is now.
    pub(super) fn observe(&self, cluster: &SIPCluster, now: Instant) {
        let key = ObjectRef::from_obj(cluster);
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waits(cluster) {
            waiting.entry(key).or_insert(now);
        } else {
            waiting.remove(&key);
        }
    }

    /// Whether pods may be started for an instance that waits since `ready`.
    pub(super) fn admits(&self, clusters: &Store<SIPCluster>, ready: Instant, now: Instant) -> bool {
        let long = |since: Instant| now.saturating_duration_since(since) >= AT_MOST;
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|key, _| clusters.get(key).is_some());
        long(ready) || waiting.values().all(|since| long(*since))
    }
}

/// Whether hosts of the cluster are still to be labelled. A cluster that the scheduler has not decided on may get some.
fn waits(cluster: &SIPCluster) -> bool {
    if cluster.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let held = cluster
        .status
        .as_ref()
        .and_then(|status| status.placement.as_ref());
    match held {
        Some(held) => held
            .members
            .iter()
            .any(|member| member.state == MemberState::Claimed),
        None => !is_decided(cluster),
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector::store, watcher::Event};
    use serde_json::{Value, json};

    use super::*;

    fn cluster(name: &str, status: &Value) -> SIPCluster {
        let object = json!({
            "metadata": { "namespace": "tenant", "name": name }, "spec": {}, "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    fn holding(name: &str, state: &str) -> SIPCluster {
        let member = json!({
            "namespace": "hosts", "name": "h1", "uid": "u", "role": "Worker", "state": state, "revision": 1,
        });
        let placement = json!({ "epoch": 1, "revision": 1, "generation": 1, "members": [member] });
        cluster(name, &json!({ "placement": placement }))
    }

    fn refused(name: &str) -> SIPCluster {
        let condition = json!({
            "type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        cluster(name, &json!({ "conditions": [condition] }))
    }

    #[test]
    fn pods_wait_until_hosts_are_labelled_or_have_waited_long() {
        let (read, mut write) = store::<SIPCluster>();
        let priority = LabelPriority::default();
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let see =
            |write: &mut kube::runtime::reflector::store::Writer<SIPCluster>, object: SIPCluster, at| {
                priority.observe(&object, at);
                write.apply_watcher_event(&Event::Apply(object));
            };

        assert!(priority.admits(&read, start, start), "no host waits");
        see(&mut write, cluster("new", &json!(null)), start);
        assert!(!priority.admits(&read, start, start), "it may get hosts");
        see(&mut write, refused("new"), later(1));
        assert!(priority.admits(&read, start, later(1)), "it gets none");

        see(&mut write, holding("one", "Claimed"), later(1));
        assert!(!priority.admits(&read, later(1), later(2)));
        see(&mut write, holding("one", "Claimed"), later(19));
        assert!(
            priority.admits(&read, later(19), later(21)),
            "its hosts have waited long, and are not new because they are observed again"
        );
        see(&mut write, holding("one", "Bound"), later(21));
        see(&mut write, holding("two", "Claimed"), later(21));
        assert!(!priority.admits(&read, later(19), later(22)));
        assert!(
            priority.admits(&read, later(2), later(22)),
            "what could have been started long ago is started"
        );
        write.apply_watcher_event(&Event::Delete(holding("two", "Claimed")));
        assert!(priority.admits(&read, later(21), later(22)), "it is gone");
    }
}
