//! Labels of hosts have priority over pods: the agent starts pods when no host of the site waits for its labels, or one has waited long.
//!
//! A host needs minutes after it is labelled until something answers on it; pods need seconds. When many clusters are created at once, starting
//! pods would take the API server's time from labelling hosts. The clusters of one namespace together have this priority for
//! [`MAX_PRIORITY_DURATION`], and again after [`PRIORITY_INTERVAL`].

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use api::{MemberState, SIPCluster};
use kube::{
    ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};

use super::observed::is_decided;

/// The longest time for which the clusters of one namespace have priority.
const MAX_PRIORITY_DURATION: Duration = Duration::from_secs(20);
/// Pause until a namespace has priority again: creating clusters without end must not keep others from starting pods.
const PRIORITY_INTERVAL: Duration = Duration::from_mins(5);
/// Pause after which a cluster whose pods wait is reconciled again.
pub(super) const LABEL_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The clusters with hosts that wait for their labels, by namespace.
#[derive(Debug, Default)]
pub(super) struct LabelPriority(Mutex<HashMap<String, WaitingClusters>>);

/// The waits in one namespace.
#[derive(Debug)]
struct WaitingClusters {
    /// Since when the namespace has priority, or had it last. It begins with a cluster that waits and lasts [`MAX_PRIORITY_DURATION`].
    since: Instant,
    clusters: HashSet<ObjectRef<SIPCluster>>,
}

impl LabelPriority {
    /// Records a cluster as it is now.
    pub(super) fn observe(&self, cluster: &SIPCluster, now: Instant) {
        let (key, namespace) = (
            ObjectRef::from_obj(cluster),
            cluster.namespace().unwrap_or_default(),
        );
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if awaits_labels(cluster) {
            let waits = waiting.entry(namespace).or_insert_with(|| WaitingClusters {
                since: now,
                clusters: HashSet::new(),
            });
            let is_new = waits.clusters.insert(key);
            if is_new && now.saturating_duration_since(waits.since) >= PRIORITY_INTERVAL {
                waits.since = now;
            }
        } else if let Some(waits) = waiting.get_mut(&namespace) {
            waits.clusters.remove(&key);
        }
    }

    /// Whether pods may be started for an instance that waits since `ready`.
    pub(super) fn admits(&self, clusters: &Store<SIPCluster>, ready: Instant, now: Instant) -> bool {
        let passed = |since: Instant| now.saturating_duration_since(since);
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, waits| {
            waits.clusters.retain(|key| clusters.get(key).is_some());
            // A namespace without waiting clusters is kept until it may have priority again.
            !waits.clusters.is_empty() || passed(waits.since) < PRIORITY_INTERVAL
        });
        let mut waiting = waiting.values();
        passed(ready) >= MAX_PRIORITY_DURATION
            || waiting.all(|waits| waits.clusters.is_empty() || passed(waits.since) >= MAX_PRIORITY_DURATION)
    }
}

/// Whether hosts of the cluster are still to be labelled. A cluster that the scheduler has not decided on may get some.
fn awaits_labels(cluster: &SIPCluster) -> bool {
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
        cluster_of("tenant", name, status)
    }

    fn cluster_of(namespace: &str, name: &str, status: &Value) -> SIPCluster {
        let object = json!({
            "metadata": { "namespace": namespace, "name": name }, "spec": {}, "status": status,
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
        let mut other = holding("two", "Claimed");
        other.metadata.namespace = Some("other".to_owned());
        see(&mut write, other.clone(), later(21));
        assert!(!priority.admits(&read, later(19), later(22)));
        assert!(
            priority.admits(&read, later(2), later(22)),
            "what could have been started long ago is started"
        );
        write.apply_watcher_event(&Event::Delete(other));
        assert!(priority.admits(&read, later(21), later(22)), "it is gone");
    }

    #[test]
    fn a_namespace_with_new_clusters_without_end_delays_others_once() {
        let (read, mut write) = store::<SIPCluster>();
        let priority = LabelPriority::default();
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut admitted = Vec::new();
        for second in 0..320 {
            let new = cluster_of("hostile", &format!("c{second}"), &json!(null));
            priority.observe(&new, later(second));
            write.apply_watcher_event(&Event::Apply(new));
            if let Some(before) = second.checked_sub(1) {
                let before = cluster_of("hostile", &format!("c{before}"), &json!(null));
                write.apply_watcher_event(&Event::Delete(before));
            }
            // An instance of another namespace that has just become ready.
            admitted.push(priority.admits(&read, later(second), later(second)));
        }
        let held: Vec<usize> = (0..admitted.len()).filter(|second| !admitted[*second]).collect();
        let expected: Vec<usize> = (0..20).chain(300..320).collect();
        assert_eq!(
            held, expected,
            "20 s in five minutes, and never longer than they may wait"
        );

        let known = priority.0.lock().unwrap().len();
        assert_eq!(known, 1);
        write.apply_watcher_event(&Event::Delete(cluster_of("hostile", "c319", &json!(null))));
        assert!(priority.admits(&read, later(700), later(700)));
        assert!(priority.0.lock().unwrap().is_empty(), "nothing of it is kept");
    }
}
