//! The inventory itself: a map behind a lock, and what has changed since it was last reported.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use api::{BareMetalHost, NetworkData, SecretName};
use proto::inventory::v1 as wire;
use tokio::sync::watch;

use super::{complaints::Complaints, hosts::HostState};

/// Namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// What must be told since the last time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Hosts as they are now.
    pub hosts: Vec<wire::Host>,
    /// Hosts that are gone.
    pub deleted_hosts: Vec<wire::HostRef>,
    /// `SIPCluster`s as they are now.
    pub clusters: Vec<wire::ObservedCluster>,
    /// `SIPCluster`s that are gone.
    pub deleted_clusters: Vec<wire::ClusterRef>,
}

impl Changes {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The site's inventory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Inventory {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    hosts: BTreeMap<Key, HostState>,
    clusters: BTreeMap<Key, wire::ObservedCluster>,
    /// Addresses by the Secret that holds them.
    networks: BTreeMap<SecretName, NetworkData>,
    /// Hosts by the Secret that their `networkData` names.
    referrers: BTreeMap<SecretName, BTreeSet<Key>>,
    dirty_hosts: BTreeSet<Key>,
    dirty_clusters: BTreeSet<Key>,
    gone_hosts: BTreeMap<Key, wire::HostRef>,
    gone_clusters: BTreeMap<Key, wire::ClusterRef>,
    complaints: Complaints,
}

impl Default for Inventory {
    fn default() -> Self {
        Self {
            state: Arc::default(),
            changed: watch::Sender::new(()),
        }
    }
}

impl Inventory {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What cannot be read of hosts.
    #[must_use]
    pub fn complaints(&self) -> Complaints {
        self.lock().complaints.clone()
    }

    /// Told whenever there is something to report.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The host of that name.
    #[must_use]
    pub fn host(&self, key: &Key) -> Option<HostState> {
        self.lock().hosts.get(key).cloned()
    }

    /// Takes a host in.
    pub fn put_host(&self, object: &BareMetalHost) {
        let Some(host) = HostState::of(object) else {
            return;
        };
        if self.lock().put(host) {
            self.changed.send_replace(());
        }
    }

    /// Forgets a host.
    pub fn delete_host(&self, key: &Key) {
        self.lock().delete(key);
        self.changed.send_replace(());
    }

    /// Forgets every host of a namespace that is not among `present`: what a complete list did not have is gone.
    pub fn retain_hosts(&self, namespace: &str, present: &BTreeSet<Key>) {
        let mut state = self.lock();
        let gone: Vec<Key> = state
            .hosts
            .keys()
            .filter(|key| key.namespace == namespace && !present.contains(key))
            .cloned()
            .collect();
        for key in &gone {
            state.delete(key);
        }
        drop(state);
        if !gone.is_empty() {
            self.changed.send_replace(());
        }
    }

    /// Takes in what a Secret says, or that it says nothing. Hosts that refer to it are read again.
    pub fn put_network_data(&self, secret: &SecretName, data: Option<NetworkData>) {
        let mut state = self.lock();
        if state.networks.get(secret) == data.as_ref() {
            return;
        }
        match data {
            Some(data) => state.networks.insert(secret.clone(), data),
            None => state.networks.remove(secret),
        };
        let hosts = state.referrers.get(secret).cloned().unwrap_or_default();
        let mut changed = false;
        for host in hosts {
            if let Some(known) = state.hosts.get(&host).cloned() {
                changed |= state.put(known);
            }
        }
        drop(state);
        if changed {
            self.changed.send_replace(());
        }
    }

    /// Forgets every Secret of a namespace that is not among `present`.
    pub fn retain_network_data(&self, namespace: &str, present: &BTreeSet<Key>) {
        let is_present = |secret: &SecretName| {
            present.contains(&Key {
                namespace: secret.namespace.clone(),
                name: secret.name.clone(),
            })
        };
        let state = self.lock();
        let of_namespace = state
            .networks
            .keys()
            .filter(|secret| secret.namespace == namespace);
        let gone: Vec<SecretName> = of_namespace
            .filter(|secret| !is_present(secret))
            .cloned()
            .collect();
        drop(state);
        for secret in gone {
            self.put_network_data(&secret, None);
        }
    }

    /// Whether there is a `SIPCluster` of that name.
    #[must_use]
    pub fn has_cluster(&self, key: &Key) -> bool {
        self.lock().clusters.contains_key(key)
    }

    /// Takes a `SIPCluster` in.
    pub fn put_cluster(&self, key: Key, cluster: wire::ObservedCluster) {
        let mut state = self.lock();
        if state.clusters.get(&key) == Some(&cluster) {
            return;
        }
        state.gone_clusters.remove(&key);
        state.dirty_clusters.insert(key.clone());
        state.clusters.insert(key, cluster);
        drop(state);
        self.changed.send_replace(());
    }

    /// Forgets a `SIPCluster`.
    pub fn delete_cluster(&self, key: &Key) {
        let mut state = self.lock();
        if let Some(cluster) = state.clusters.remove(key) {
            state.dirty_clusters.remove(key);
            state
                .gone_clusters
                .insert(key.clone(), cluster.r#ref.unwrap_or_default());
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// Forgets every `SIPCluster` that is not among `present`.
    pub fn retain_clusters(&self, present: &BTreeSet<Key>) {
        let gone: Vec<Key> = self
            .lock()
            .clusters
            .keys()
            .filter(|key| !present.contains(key))
            .cloned()
            .collect();
        for key in gone {
            self.delete_cluster(&key);
        }
    }

    /// Highest epoch and revision that any `SIPCluster`'s status holds.
    #[must_use]
    pub fn highest_seen(&self) -> Option<wire::Revision> {
        let state = self.lock();
        let seen = state.clusters.values().filter_map(|cluster| cluster.revision);
        seen.max_by_key(|revision| (revision.epoch, revision.revision))
    }

    /// Everything is to be told again: a new stream begins with a snapshot.
    pub fn tell_all(&self) {
        let mut state = self.lock();
        state.dirty_hosts = state.hosts.keys().cloned().collect();
        state.dirty_clusters = state.clusters.keys().cloned().collect();
        state.gone_hosts.clear();
        state.gone_clusters.clear();
    }

    /// At most `limit` of each kind of what must be told, which counts as told then.
    #[must_use]
    pub fn take(&self, limit: usize) -> Changes {
        let mut state = self.lock();
        let mut changes = Changes::default();
        for _ in 0..limit {
            if let Some(key) = state.dirty_hosts.pop_first() {
                changes
                    .hosts
                    .extend(state.hosts.get(&key).map(|known| known.host.clone()));
            }
            if let Some((_, host)) = state.gone_hosts.pop_first() {
                changes.deleted_hosts.push(host);
            }
            if let Some(key) = state.dirty_clusters.pop_first() {
                changes.clusters.extend(state.clusters.get(&key).cloned());
            }
            if let Some((_, cluster)) = state.gone_clusters.pop_first() {
                changes.deleted_clusters.push(cluster);
            }
        }
        changes
    }
}

impl State {
    fn put(&mut self, mut next: HostState) -> bool {
        let key = next.key();
        let before = self.hosts.get(&key).and_then(|known| known.secret.clone());
        if before != next.secret {
            if let Some(before) = before {
                self.unrefer(&before, &key);
            }
            if let Some(secret) = &next.secret {
                self.referrers
                    .entry(secret.clone())
                    .or_default()
                    .insert(key.clone());
            }
        }
        next.read(&self.networks);
        let known = self.hosts.get(&key);
        next.remember(known, SystemTime::now());
        let before = known.map(|known| &*known.host.problems).unwrap_or_default();
        self.complaints.seen(&key, before, &next.host);
        let changed = known.map(|known| &known.host) != Some(&next.host);
        self.hosts.insert(key.clone(), next);
        if changed {
            // A host that was made again under its name is another one: the scheduler sees it by the uid.
            self.gone_hosts.remove(&key);
            self.dirty_hosts.insert(key);
        }
        changed
    }

    fn delete(&mut self, key: &Key) {
        if let Some(known) = self.hosts.remove(key) {
            if let Some(secret) = &known.secret {
                self.unrefer(secret, key);
            }
            self.dirty_hosts.remove(key);
            self.complaints.gone(key);
            self.gone_hosts
                .insert(key.clone(), known.host.r#ref.unwrap_or_default());
        }
    }

    fn unrefer(&mut self, secret: &SecretName, host: &Key) {
        if let Some(hosts) = self.referrers.get_mut(secret) {
            hosts.remove(host);
            if hosts.is_empty() {
                self.referrers.remove(secret);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{host, inventory, key, labelled, parse, with};

    fn secret(name: &str) -> SecretName {
        SecretName {
            namespace: "metal".to_owned(),
            name: name.to_owned(),
        }
    }

    fn data(address: &str) -> NetworkData {
        let text =
            json!({ "networks": [{ "id": "oam", "type": "ipv4", "ip_address": address }] }).to_string();
        NetworkData::parse(&secret("h1-network-data"), text.as_bytes())
    }

    fn addresses(changes: &Changes) -> Vec<Option<String>> {
        changes
            .hosts
            .iter()
            .map(|host| host.addresses.get("oam").cloned())
            .collect()
    }

    #[test]
    fn a_host_is_told_again_when_its_secret_comes_changes_and_goes() {
        let inventory = inventory([host("h1"), host("h2")]);
        assert_eq!(addresses(&inventory.take(10)), [None, None]);
        for (secret_data, expected) in [
            (Some(data("192.0.2.7")), Some("192.0.2.7")),
            (Some(data("192.0.2.8")), Some("192.0.2.8")),
            (None, None),
        ] {
            inventory.put_network_data(&secret("h1-network-data"), secret_data);
            assert_eq!(addresses(&inventory.take(10)), [expected.map(str::to_owned)]);
        }
    }

    #[test]
    fn a_missing_secret_is_a_problem_of_its_host_and_of_no_other() {
        let bare = with(host("h2"), "/spec/networkData", json!(null));
        let inventory = inventory([host("h1"), bare]);
        let problems: Vec<usize> = inventory
            .take(10)
            .hosts
            .iter()
            .map(|host| host.problems.len())
            .collect();
        assert_eq!(problems, [1, 0]);
    }

    #[test]
    fn what_has_not_changed_is_not_told_but_a_write_uses_the_newest_version() {
        let inventory = inventory([host("h1")]);
        assert_eq!(inventory.take(10).hosts.len(), 1);
        inventory.put_host(&parse(with(host("h1"), "/metadata/resourceVersion", json!("8"))));
        assert!(inventory.take(10).is_empty());
        assert_eq!(inventory.host(&key("h1")).unwrap().resource_version, "8");
        inventory.put_host(&parse(labelled(host("h1"), "one", "Worker")));
        assert_eq!(inventory.take(10).hosts.len(), 1);
    }

    #[test]
    fn a_host_that_goes_and_comes_back_before_it_is_told_is_told_as_it_is() {
        let inventory = inventory([host("h1")]);
        let _ = inventory.take(10);
        inventory.delete_host(&key("h1"));
        inventory.put_host(&parse(with(host("h1"), "/metadata/uid", json!("another"))));
        let changes = inventory.take(10);
        assert_eq!((changes.hosts.len(), changes.deleted_hosts.len()), (1, 0));
        assert_eq!(changes.hosts[0].r#ref.as_ref().unwrap().uid, "another");
    }

    #[test]
    fn a_new_list_ends_what_it_does_not_name_in_its_namespace_only() {
        let elsewhere = with(host("h3"), "/metadata/namespace", json!("other"));
        let inventory = inventory([host("h1"), host("h2"), elsewhere]);
        let _ = inventory.take(10);
        inventory.retain_hosts("metal", &BTreeSet::from([key("h2")]));
        let gone: Vec<String> = inventory
            .take(10)
            .deleted_hosts
            .into_iter()
            .map(|host| host.name)
            .collect();
        assert_eq!(gone, ["h1"]);
    }

    #[test]
    fn a_snapshot_tells_everything_in_pieces() {
        let inventory = inventory(["h1", "h2", "h3"].map(host));
        let _ = inventory.take(10);
        inventory.tell_all();
        let told: Vec<usize> = (0..3).map(|_| inventory.take(2).hosts.len()).collect();
        assert_eq!(told, [2, 1, 0]);
    }

    #[test]
    fn the_time_of_an_error_is_that_of_the_fall_if_it_was_seen() {
        let error = |message: &str| {
            let broken = with(host("h1"), "/status/operationalStatus", json!("error"));
            with(broken, "/status/errorMessage", json!(message))
        };
        let inventory = inventory([error("a")]);
        let since = || inventory.host(&key("h1")).unwrap().host.error_since;
        assert_eq!(since(), None, "nobody saw it fall");
        inventory.put_host(&parse(host("h1")));
        assert_eq!(since(), None);
        inventory.put_host(&parse(error("b")));
        let fell = since();
        assert!(fell.is_some());
        inventory.put_host(&parse(error("c")));
        assert_eq!(since(), fell);
    }
}
