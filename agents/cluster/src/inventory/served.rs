//! Which Clusters of Cluster API the `SIPCluster`s serve, and which hosts those Clusters use though no `SIPCluster` holds them.
//!
//! Each question is answered by an index: a tenant may have tens of thousands of `SIPCluster`s, and a site as many hosts.

use std::collections::{BTreeMap, BTreeSet};

use kit::placement::ObjectKey;

/// Names of Clusters, with the `SIPCluster`s that serve them and the hosts that they use.
#[derive(Debug, Default)]
pub(super) struct Served {
    by_sip_cluster: BTreeMap<ObjectKey, String>,
    sip_clusters: BTreeMap<String, BTreeSet<ObjectKey>>,
    users: BTreeMap<String, BTreeSet<ObjectKey>>,
}

impl Served {
    /// The first `SIPCluster`, by namespace and name, that serves the Cluster of this name.
    pub(super) fn first_serving(&self, cluster: &str) -> Option<&ObjectKey> {
        self.sip_clusters.get(cluster)?.first()
    }

    /// Records which Cluster a `SIPCluster` serves; `None` when the `SIPCluster` is gone. Returns the hosts in use by a Cluster whose
    /// [`Self::first_serving`] has changed.
    pub(super) fn put(&mut self, sip_cluster: &ObjectKey, cluster: Option<&str>) -> BTreeSet<ObjectKey> {
        let before = match cluster {
            Some(cluster) => self
                .by_sip_cluster
                .insert(sip_cluster.clone(), cluster.to_owned()),
            None => self.by_sip_cluster.remove(sip_cluster),
        };
        if before.as_deref() == cluster {
            return BTreeSet::new();
        }
        let mut changed = BTreeSet::new();
        if let Some(before) = before {
            if self.first_serving(&before) == Some(sip_cluster) {
                changed.extend(self.users.get(&before).into_iter().flatten().cloned());
            }
            remove(&mut self.sip_clusters, &before, sip_cluster);
        }
        if let Some(cluster) = cluster {
            insert(&mut self.sip_clusters, cluster, sip_cluster);
            if self.first_serving(cluster) == Some(sip_cluster) {
                changed.extend(self.users.get(cluster).into_iter().flatten().cloned());
            }
        }
        changed
    }

    /// Records which Cluster uses a host that no `SIPCluster` holds, in place of the one that was recorded before.
    pub(super) fn put_user(&mut self, host: &ObjectKey, before: Option<&str>, now: Option<&str>) {
        if before == now {
            return;
        }
        if let Some(before) = before {
            remove(&mut self.users, before, host);
        }
        if let Some(now) = now {
            insert(&mut self.users, now, host);
        }
    }
}

fn insert(index: &mut BTreeMap<String, BTreeSet<ObjectKey>>, name: &str, key: &ObjectKey) {
    index.entry(name.to_owned()).or_default().insert(key.clone());
}

fn remove(index: &mut BTreeMap<String, BTreeSet<ObjectKey>>, name: &str, key: &ObjectKey) {
    if let Some(keys) = index.get_mut(name) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            namespace: "tenant".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn hosts_change_with_the_first_that_serves_their_user() {
        let mut served = Served::default();
        let host = BTreeSet::from([key("h1")]);
        served.put_user(&key("h1"), None, Some("shop"));
        assert_eq!(served.put(&key("b"), Some("shop")), host);
        assert_eq!(served.put(&key("b"), Some("shop")), BTreeSet::new());
        assert_eq!(
            served.put(&key("c"), Some("shop")),
            BTreeSet::new(),
            "not the first"
        );
        assert_eq!(served.put(&key("a"), Some("shop")), host);
        assert_eq!(served.first_serving("shop"), Some(&key("a")));
        assert_eq!(served.put(&key("a"), Some("stall")), host);
        served.put_user(&key("h1"), Some("shop"), Some("stall"));
        assert_eq!(
            served.put(&key("b"), None),
            BTreeSet::new(),
            "its host has another user"
        );
        assert_eq!(served.put(&key("a"), None), host);
        served.put_user(&key("h1"), Some("stall"), None);
        assert_eq!(served.put(&key("c"), None), BTreeSet::new());
        assert!(
            served.by_sip_cluster.is_empty() && served.sip_clusters.is_empty() && served.users.is_empty()
        );
    }
}
