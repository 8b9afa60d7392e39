//! Watches of the API server, into the inventory. Each is a task that never ends: it lists again when it must.

use std::{collections::BTreeSet, convert::Infallible, pin::pin};

use api::{BareMetalHost, ClusterApiCluster, NetworkData, SecretName, TolerantCluster, labels};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kit::{config::ReservedNetworks, pages, placement::ObjectKey, retries::watch_pauses};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;

use super::{cluster_report, first_list::FirstList, store::Inventory};

/// What the task of one watch does with what it observes.
trait Sink<K> {
    /// An object as it is now.
    fn put(&self, object: K);
    /// An object that is gone.
    fn delete(&self, object: K);
    /// All objects that there are.
    fn retain(&self, present: &BTreeSet<ObjectKey>);
}

/// Watches one namespace's hosts. `changed` is called for each host that changed, and `listed` is set once the
/// first list is complete.
///
/// # Errors
/// None: it runs until it is dropped.
pub async fn watch_hosts(
    client: Client,
    namespace: String,
    inventory: Inventory,
    listed: FirstList,
    changed: impl Fn(ObjectKey) + Send + Sync + 'static,
) -> Result<(), Infallible> {
    let api = Api::<BareMetalHost>::namespaced(client, &namespace);
    run(
        api,
        watcher::Config::default(),
        listed,
        &Hosts {
            namespace,
            inventory,
            changed,
        },
    )
    .await
}

struct Hosts<F> {
    namespace: String,
    inventory: Inventory,
    changed: F,
}

impl<F: Fn(ObjectKey)> Sink<BareMetalHost> for Hosts<F> {
    fn put(&self, object: BareMetalHost) {
        // Called even when nothing that is reported changed: a write waits for the new resourceVersion.
        self.inventory.put_host(&object);
        (self.changed)(ObjectKey::for_object(&object));
    }

    fn delete(&self, object: BareMetalHost) {
        let key = ObjectKey::for_object(&object);
        self.inventory.delete_host(&key);
        (self.changed)(key);
    }

    fn retain(&self, present: &BTreeSet<ObjectKey>) {
        // While the watch was interrupted they were deleted without an event, and a release may wait for that.
        for gone in self.inventory.retain_hosts(&self.namespace, present) {
            (self.changed)(gone);
        }
    }
}

/// Watches one namespace's Secrets and keeps the addresses of those that hold networkData; every other is dropped at
/// once.
///
/// # Errors
/// None: it runs until it is dropped.
pub async fn watch_network_data(
    client: Client,
    namespace: String,
    reserved: ReservedNetworks,
    inventory: Inventory,
    listed: FirstList,
) -> Result<(), Infallible> {
    let api = Api::<Secret>::namespaced(client, &namespace);
    let secrets = Secrets {
        namespace,
        reserved,
        inventory,
    };
    run(api, watcher::Config::default(), listed, &secrets).await
}

struct Secrets {
    namespace: String,
    reserved: ReservedNetworks,
    inventory: Inventory,
}

impl Sink<Secret> for Secrets {
    fn put(&self, object: Secret) {
        let secret = secret(&object);
        // CAPM3 labels what it renders by a data template.
        let is_rendered = object.labels().contains_key(labels::CLUSTER_API);
        let data = object.data.unwrap_or_default().remove(api::NETWORK_DATA_KEY);
        let parsed = data.map(|data| {
            let data = NetworkData::parse(&secret, &data.0)
                .without_reserved(&secret, |address| self.reserved.contains(address));
            if is_rendered { data.rendered() } else { data }
        });
        self.inventory.put_network_data(&secret, parsed.as_ref());
    }

    fn delete(&self, object: Secret) {
        self.inventory.put_network_data(&secret(&object), None);
    }

    fn retain(&self, present: &BTreeSet<ObjectKey>) {
        self.inventory.retain_network_data(&self.namespace, present);
    }
}

/// Watches the site's `SIPCluster`s, for what is reported of them.
///
/// # Errors
/// None: it runs until it is dropped.
pub async fn watch_clusters(
    client: Client,
    inventory: Inventory,
    listed: FirstList,
) -> Result<(), Infallible> {
    run(
        Api::<TolerantCluster>::all(client),
        pages::in_pages(watcher::Config::default()),
        listed,
        &Clusters { inventory },
    )
    .await
}

struct Clusters {
    inventory: Inventory,
}

impl Sink<TolerantCluster> for Clusters {
    fn put(&self, object: TolerantCluster) {
        let object = object.into_inner();
        let key = ObjectKey::for_object(&object);
        // What cannot be parsed is refused when the cluster is reconciled.
        let named = ClusterApiCluster::parse(&object).ok().flatten();
        let served = named.as_ref().map_or(&*key.name, ClusterApiCluster::name);
        self.inventory.put_served(&key, Some(served));
        let report = cluster_report::report(&object);
        if object.spec.left_out.placement.is_some() {
            self.inventory.put_unreadable_cluster(key, report);
        } else {
            self.inventory.put_cluster(key, report);
        }
    }

    fn delete(&self, object: TolerantCluster) {
        self.inventory.delete_cluster(&ObjectKey::for_object(&object));
    }

    fn retain(&self, present: &BTreeSet<ObjectKey>) {
        self.inventory.retain_clusters(present);
    }
}

fn secret(object: &Secret) -> SecretName {
    SecretName {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    }
}

async fn run<K>(
    api: Api<K>,
    config: watcher::Config,
    listed: FirstList,
    sink: &impl Sink<K>,
) -> Result<(), Infallible>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let kind = K::plural(&());
    let mut events = pin!(watcher::watcher(api, config).backoff(watch_pauses()));
    let mut present = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => present.clear(),
            Ok(Event::InitApply(object)) => {
                present.insert(ObjectKey::for_object(&object));
                sink.put(object);
            }
            Ok(Event::InitDone) => {
                sink.retain(&std::mem::take(&mut present));
                listed.set();
            }
            Ok(Event::Apply(object)) => sink.put(object),
            Ok(Event::Delete(object)) => sink.delete(object),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(%kind, error, "a watch was interrupted; retrying");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::fixtures::{host, inventory, key};

    #[test]
    fn a_host_that_a_new_list_lacks_has_changed() {
        let changed = RefCell::new(Vec::new());
        let hosts = Hosts {
            namespace: "metal".to_owned(),
            inventory: inventory([host("h1"), host("h2")]),
            changed: |host: ObjectKey| changed.borrow_mut().push(host),
        };
        hosts.retain(&BTreeSet::from([key("h2")]));
        assert_eq!(*changed.borrow(), [key("h1")]);
    }
}
