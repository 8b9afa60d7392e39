//! The inventory itself: a map behind a lock, and what has changed since it was last reported.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use api::{BareMetalHost, NetworkData, SecretName};
use kit::placement::{HostId, ObjectKey};
use prost::Message as _;
use proto::inventory::v1 as wire;
use tokio::sync::{Notify, watch};

use super::{
    changes::Changes,
    cluster_report,
    gone_hosts::{GoneHost, GoneHosts, Verdict},
    host_faults::HostFaults,
    host_report,
    observed_host::ObservedHost,
    packed::{PackedHost, PackedNetworkData},
    served::Served,
};

/// Bytes after which a message ends. The scheduler takes 4 MiB: there is room for the one host or `SIPCluster` that comes over it, of
/// which an API server stores 1.5 MiB, and as much of a host's addresses.
const MESSAGE_BYTES: usize = 1 << 20;

/// The site's inventory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Inventory {
    state: Arc<Mutex<State>>,
    changed: watch::Sender<()>,
    refused_changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    hosts: BTreeMap<ObjectKey, PackedHost>,
    clusters: BTreeMap<ObjectKey, wire::ObservedCluster>,
    served: Served,
    /// Addresses by the Secret that holds them.
    networks: BTreeMap<SecretName, PackedNetworkData>,
    /// Hosts by each Secret that may hold their addresses.
    referrers: BTreeSet<(SecretName, ObjectKey)>,
    /// Hosts of which the API server refuses every write, and its message.
    refused: BTreeMap<ObjectKey, (HostId, String)>,
    changed_hosts: BTreeSet<ObjectKey>,
    changed_clusters: BTreeSet<ObjectKey>,
    deleted_hosts: BTreeMap<ObjectKey, wire::HostRef>,
    gone: GoneHosts,
    deleted_clusters: BTreeMap<ObjectKey, wire::ClusterRef>,
    host_faults: HostFaults,
}

impl Default for Inventory {
    fn default() -> Self {
        Self {
            state: Arc::default(),
            changed: watch::Sender::new(()),
            refused_changed: Arc::default(),
        }
    }
}

impl Inventory {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What cannot be read of hosts.
    #[must_use]
    pub fn host_faults(&self) -> HostFaults {
        self.lock().host_faults.clone()
    }

    /// Changes whenever there is something to report.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The host of that name.
    #[must_use]
    pub fn host(&self, key: &ObjectKey) -> Option<ObservedHost> {
        let state = self.lock();
        state.hosts.get(key).map(|host| host.observed(&state.networks))
    }

    /// Who used and owned a host that is gone, if that is remembered.
    #[must_use]
    pub fn gone_host(&self, host: &HostId) -> Option<GoneHost> {
        self.lock().gone.get(host).cloned()
    }

    /// Notes why a host is gone; the first verdict stays.
    pub fn judge_gone_host(&self, host: &HostId, verdict: Verdict) {
        self.lock().gone.judge(host, verdict);
    }

    /// Takes a host in.
    pub fn put_host(&self, object: &BareMetalHost) {
        let Some((host, report)) = PackedHost::parse(object) else {
            return;
        };
        let mut state = self.lock();
        let changed = state.put(host, report);
        let is_refused = state.refused.contains_key(&ObjectKey::for_object(object));
        drop(state);
        if changed {
            self.changed.send_replace(());
        }
        if is_refused {
            self.refused_changed.notify_one();
        }
    }

    /// The API server refuses every write of a host, with this message.
    pub fn write_refused(&self, host: &HostId, message: &str) {
        let mut state = self.lock();
        let refusal = (host.clone(), message.to_owned());
        state.refused.insert(host.key().clone(), refusal);
        let changed = state.refresh(host.key());
        drop(state);
        if changed {
            self.changed.send_replace(());
        }
    }

    /// The API server takes writes of a host.
    pub fn write_accepted(&self, key: &ObjectKey) {
        let mut state = self.lock();
        let changed = state.refused.remove(key).is_some() && state.refresh(key);
        drop(state);
        if changed {
            self.changed.send_replace(());
        }
    }

    /// Hosts of which the API server refuses every write.
    #[must_use]
    pub fn refused(&self) -> Vec<HostId> {
        let state = self.lock();
        state.refused.values().map(|(host, _)| host.clone()).collect()
    }

    /// Waits until one of them changes.
    pub async fn refused_has_changed(&self) {
        self.refused_changed.notified().await;
    }

    /// Forgets a host.
    pub fn delete_host(&self, key: &ObjectKey) {
        self.lock().delete(key);
        self.changed.send_replace(());
    }

    /// Forgets every host of a namespace that is not among `present`: what a complete list did not have is gone. Returns those hosts.
    #[must_use]
    pub fn retain_hosts(&self, namespace: &str, present: &BTreeSet<ObjectKey>) -> Vec<ObjectKey> {
        let mut state = self.lock();
        let gone: Vec<ObjectKey> = state
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
        gone
    }

    /// Takes in the addresses in a Secret, or that it has none. Hosts that refer to it are read again.
    pub fn put_network_data(&self, secret: &SecretName, data: Option<&NetworkData>) {
        let data = data.map(PackedNetworkData::pack);
        let mut state = self.lock();
        if state.networks.get(secret) == data.as_ref() {
            return;
        }
        match data {
            Some(data) => state.networks.insert(secret.clone(), data),
            None => state.networks.remove(secret),
        };
        let mut changed = false;
        for host in state.referring_to(secret) {
            changed |= state.refresh(&host);
        }
        drop(state);
        if changed {
            self.changed.send_replace(());
        }
    }

    /// Forgets every Secret of a namespace that is not among `present`.
    pub fn retain_network_data(&self, namespace: &str, present: &BTreeSet<ObjectKey>) {
        let is_present = |secret: &SecretName| {
            present.contains(&ObjectKey {
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
    pub fn has_cluster(&self, key: &ObjectKey) -> bool {
        self.lock().clusters.contains_key(key)
    }

    /// Records which Cluster API cluster a `SIPCluster` serves, by its name; `None` when it is gone. Hosts that this one uses are read
    /// again.
    pub fn put_served(&self, key: &ObjectKey, cluster: Option<&str>) {
        let mut state = self.lock();
        let users = state.served.put(key, cluster);
        let mut changed = false;
        for host in users {
            changed |= state.refresh(&host);
        }
        drop(state);
        if changed {
            self.changed.send_replace(());
        }
    }

    /// Takes a `SIPCluster` in.
    pub fn put_cluster(&self, key: ObjectKey, mut cluster: wire::ObservedCluster) {
        let mut state = self.lock();
        if let Some(before) = state.clusters.get(&key) {
            cluster_report::remember_keys(&mut cluster, before);
            if *before == cluster {
                return;
            }
        }
        state.deleted_clusters.remove(&key);
        state.changed_clusters.insert(key.clone());
        state.clusters.insert(key, cluster);
        drop(state);
        self.changed.send_replace(());
    }

    /// Records a `SIPCluster` whose placement cannot be read: the agent continues to report the one that it has read before, if this process has read
    /// one and what can be read of this one is not newer.
    pub fn put_unreadable_cluster(&self, key: ObjectKey, mut cluster: wire::ObservedCluster) {
        if let Some(before) = self.lock().clusters.get(&key) {
            cluster_report::remember_placement(&mut cluster, before);
        }
        self.put_cluster(key, cluster);
    }

    /// Forgets a `SIPCluster`.
    pub fn delete_cluster(&self, key: &ObjectKey) {
        self.put_served(key, None);
        let mut state = self.lock();
        if let Some(cluster) = state.clusters.remove(key) {
            state.changed_clusters.remove(key);
            state
                .deleted_clusters
                .insert(key.clone(), cluster.r#ref.unwrap_or_default());
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// Forgets every `SIPCluster` that is not among `present`.
    pub fn retain_clusters(&self, present: &BTreeSet<ObjectKey>) {
        let gone: Vec<ObjectKey> = self
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

    /// Everything is to be reported again: a new stream begins with a snapshot.
    pub fn report_all(&self) {
        let mut state = self.lock();
        state.changed_hosts = state.hosts.keys().cloned().collect();
        state.changed_clusters = state.clusters.keys().cloned().collect();
        state.deleted_hosts.clear();
        state.deleted_clusters.clear();
    }

    /// At most `limit` of each kind of what is to be reported, and no more than one message has room for. It counts as reported then.
    #[must_use]
    pub fn take(&self, limit: usize) -> Changes {
        let mut state = self.lock();
        let mut changes = Changes::default();
        let mut bytes = 0;
        for _ in 0..limit {
            if let Some((_, host)) = state.deleted_hosts.pop_first() {
                bytes += host.encoded_len();
                changes.deleted_hosts.push(host);
            }
            if let Some((_, cluster)) = state.deleted_clusters.pop_first() {
                bytes += cluster.encoded_len();
                changes.deleted_clusters.push(cluster);
            }
            if bytes >= MESSAGE_BYTES {
                break;
            }
            if let Some(key) = state.changed_hosts.pop_first()
                && let Some(host) = state.hosts.get(&key).map(PackedHost::report)
            {
                bytes += host.encoded_len();
                changes.hosts.push(host);
            }
            if bytes >= MESSAGE_BYTES {
                break;
            }
            if let Some(key) = state.changed_clusters.pop_first()
                && let Some(cluster) = state.clusters.get(&key).cloned()
            {
                bytes += cluster.encoded_len();
                changes.clusters.push(cluster);
            }
        }
        changes
    }
}

impl State {
    /// Takes a host in. Returns whether its report changed.
    fn put(&mut self, mut next: PackedHost, mut report: wire::Host) -> bool {
        let wire::HostRef { namespace, name, .. } = report.r#ref.clone().unwrap_or_default();
        let key = ObjectKey { namespace, name };
        let before = self.hosts.get(&key);
        let referred = before.map(PackedHost::secrets).cloned().unwrap_or_default();
        let used_by = before.and_then(PackedHost::unplaced_cluster);
        self.served.put_user(&key, used_by, next.unplaced_cluster());
        let before = before.map(PackedHost::report);
        if !referred.all().eq(next.secrets().all()) {
            for secret in referred.all() {
                self.referrers.remove(&(secret.clone(), key.clone()));
            }
            for secret in next.secrets().all() {
                self.referrers.insert((secret.clone(), key.clone()));
            }
        }
        // A host that was made again is another one.
        let uid = report.r#ref.as_ref().map_or("", |host| &*host.uid);
        if self.refused.get(&key).is_some_and(|(host, _)| host.uid() != uid) {
            self.refused.remove(&key);
        }
        let refused = self.refused.get(&key).map(|(_, message)| &**message);
        next.complete(&mut report, &self.networks, refused, &self.served);
        report.error_since = host_report::error_since(&report, before.as_ref(), SystemTime::now());
        next.pack(&report);
        self.gone.forget(&key);
        self.hosts.insert(key.clone(), next);
        self.reported(key, before.as_ref(), &report)
    }

    /// Reads the addresses of a host again. Returns whether its report changed.
    fn refresh(&mut self, key: &ObjectKey) -> bool {
        let Some(host) = self.hosts.get_mut(key) else {
            return false;
        };
        let before = host.report();
        let mut report = before.clone();
        let refused = self.refused.get(key).map(|(_, message)| &**message);
        host.complete(&mut report, &self.networks, refused, &self.served);
        host.pack(&report);
        self.reported(key.clone(), Some(&before), &report)
    }

    /// Notes what is to be reported of a host. Returns whether that is anything.
    fn reported(&mut self, key: ObjectKey, before: Option<&wire::Host>, now: &wire::Host) -> bool {
        let known = before.map(|known| &*known.problems).unwrap_or_default();
        let uid = now.r#ref.as_ref().map_or("", |host| &*host.uid);
        self.host_faults
            .observed(&HostId::new(key.clone(), uid), known, &now.problems);
        let changed = before != Some(now);
        if changed {
            // A host that was made again under its name is another one: the scheduler sees it by the uid.
            self.deleted_hosts.remove(&key);
            self.changed_hosts.insert(key);
        }
        changed
    }

    fn delete(&mut self, key: &ObjectKey) {
        if let Some(known) = self.hosts.remove(key) {
            self.served.put_user(key, known.unplaced_cluster(), None);
            for secret in known.secrets().all() {
                self.referrers.remove(&(secret.clone(), key.clone()));
            }
            self.changed_hosts.remove(key);
            self.refused.remove(key);
            self.host_faults.forget(key);
            self.gone.add(known.gone());
            self.deleted_hosts
                .insert(key.clone(), known.report().r#ref.unwrap_or_default());
        }
    }

    /// Hosts whose addresses this Secret may hold.
    fn referring_to(&self, secret: &SecretName) -> Vec<ObjectKey> {
        let first = ObjectKey {
            namespace: String::new(),
            name: String::new(),
        };
        let from = self.referrers.range((secret.clone(), first)..);
        from.take_while(|(named, _)| named == secret)
            .map(|(_, host)| host.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests;
