//! The node ports that specs ask for, parsed once for each version of a `SIPCluster`. Each entry whose ports are taken is compared with all older
//! clusters of its namespace, in each pass: a tenant decides how many these are, and how long it takes to parse each.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use api::{PortSet, SIPCluster};
use kube::runtime::reflector::{ObjectRef, Store};

/// The ports of the clusters that were compared.
#[derive(Debug, Default)]
pub(super) struct ParsedPorts(Mutex<Known>);

type Known = HashMap<ObjectRef<SIPCluster>, Parsed>;

#[derive(Debug)]
struct Parsed {
    /// Resource version of the cluster.
    version: Option<String>,
    /// `None`: the spec is refused.
    ports: Option<Arc<PortSet>>,
}

impl ParsedPorts {
    /// The ports that the spec of a cluster asks for; `None` if it is refused. `parse` is called only if this version was not parsed before.
    /// `clusters`: the existing ones; what is kept of others is removed.
    pub(super) fn get(
        &self,
        clusters: &Store<SIPCluster>,
        cluster: &SIPCluster,
        parse: impl FnOnce(&SIPCluster) -> Option<PortSet>,
    ) -> Option<Arc<PortSet>> {
        let key = ObjectRef::from_obj(cluster);
        let version = &cluster.metadata.resource_version;
        if let Some(parsed) = self.known().get(&key)
            && version.is_some()
            && parsed.version == *version
        {
            return parsed.ports.clone();
        }
        // Without the lock: passes over other clusters do not wait meanwhile. Two of them may parse the same version.
        let ports = parse(cluster).map(Arc::new);
        let parsed = Parsed {
            version: version.clone(),
            ports: ports.clone(),
        };
        let mut known = self.known();
        // Not each time: of a site with many clusters, each new one would be compared with all others.
        if known.len().is_power_of_two() && !known.contains_key(&key) {
            known.retain(|key, _| clusters.get(key).is_some());
        }
        known.insert(key, parsed);
        ports
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector::store, watcher::Event};
    use serde_json::json;

    use super::*;

    fn cluster(name: &str, version: &str) -> SIPCluster {
        let metadata = json!({"namespace": "tenant", "name": name, "resourceVersion": version});
        serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap()
    }

    #[test]
    fn a_spec_is_parsed_once_for_each_version() {
        let (clusters, mut writer) = store();
        for name in ["a", "b"] {
            writer.apply_watcher_event(&Event::Apply(cluster(name, "1")));
        }
        let known = ParsedPorts::default();
        let mut parsed = Vec::new();
        for (name, version) in [
            ("a", "1"),
            ("a", "1"),
            ("b", "1"),
            ("a", "2"),
            ("a", "2"),
            ("b", "1"),
        ] {
            let is_valid = name == "a";
            let ports = known.get(&clusters, &cluster(name, version), |_| {
                parsed.push((name, version));
                is_valid.then(|| [30_000].into_iter().collect())
            });
            assert_eq!(ports.is_some(), is_valid);
        }
        assert_eq!(parsed, [("a", "1"), ("b", "1"), ("a", "2")]);
    }

    #[test]
    fn a_long_parse_delays_no_other_cluster() {
        let (clusters, _writer) = store();
        let known = ParsedPorts::default();
        let mut is_free = false;
        known.get(&clusters, &cluster("a", "1"), |_| {
            is_free = known.0.try_lock().is_ok();
            None
        });
        assert!(is_free);
    }

    #[test]
    fn ports_of_clusters_that_are_gone_are_forgotten() {
        let (clusters, mut writer) = store();
        let known = ParsedPorts::default();
        for number in 0..100 {
            let new = cluster(&format!("c{number}"), "1");
            writer.apply_watcher_event(&Event::Apply(new.clone()));
            assert!(known.get(&clusters, &new, |_| None).is_none());
            writer.apply_watcher_event(&Event::Delete(new));
        }
        assert!(known.0.lock().unwrap().len() <= 2);
    }
}
