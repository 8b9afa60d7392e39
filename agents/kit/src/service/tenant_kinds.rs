//! The kinds of objects that are watched in each namespace with clusters, and what is kept of them there.

use std::marker::PhantomData;

use api::SIPCluster;
use futures::{StreamExt as _, TryStreamExt as _, future::BoxFuture, stream::BoxStream};
use kube::{
    Api, Client, Resource,
    api::ListParams,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        reflector::{ObjectRef, Store, store::Writer},
        watcher::{self, Event},
    },
};

use super::{
    by_namespace::{ByNamespace, TenantStore},
    kinds::Visit,
    made_for::Owner,
    versions::Versions,
};
use crate::{apply::Object, retries::watch_pauses};

/// A kind of objects that is watched in each namespace with clusters.
pub(super) trait TenantKind: Send + Sync {
    /// Opens the watch in a namespace. It never ends, and opens itself again after errors.
    fn watch(&self, client: &Client, namespace: &str) -> TenantWatch;

    /// Asks the API server whether its objects in a namespace may be listed.
    fn list<'a>(&self, client: &'a Client, namespace: &'a str) -> BoxFuture<'a, kube::Result<()>>;

    /// No longer keeps anything of a namespace.
    fn forget(&self, namespace: &str);
}

/// The watch of one kind in one namespace.
pub(super) struct TenantWatch {
    pub(super) events: BoxStream<'static, watcher::Result<ObservedEvent>>,
    /// Makes what the watch has shown available to passes. To be called once, when the watch has shown a complete list.
    pub(super) publish: Box<dyn FnOnce() + Send>,
}

/// What an event of a watch means to the clusters of its namespace.
#[derive(Debug)]
pub(super) enum ObservedEvent {
    /// An object that concerns these has changed, or is part of a list.
    Changed(Vec<ObjectRef<SIPCluster>>),
    /// The list is complete.
    Listed,
}

fn observed<K>(event: Event<K>, concerned: impl Fn(&K) -> Vec<ObjectRef<SIPCluster>>) -> ObservedEvent {
    match event {
        Event::Init => ObservedEvent::Changed(Vec::new()),
        Event::InitApply(object) | Event::Apply(object) | Event::Delete(object) => {
            ObservedEvent::Changed(concerned(&object))
        }
        Event::InitDone => ObservedEvent::Listed,
    }
}

/// The clusters that own an object, or, without such an owner, the one that it was made for.
pub(super) fn clusters_of(object: &impl Resource) -> Vec<ObjectRef<SIPCluster>> {
    let meta = object.meta();
    let namespace = meta.namespace.as_deref();
    if let Some(Owner::MadeFor(cluster)) = Owner::of_object(meta)
        && let Some(namespace) = namespace
    {
        return vec![ObjectRef::new(&cluster).within(namespace)];
    }
    let owners = meta.owner_references.iter().flatten();
    let owners = owners.filter_map(|owner| ObjectRef::from_owner_ref(namespace, owner, ()));
    owners.collect()
}

/// A kind whose objects are kept, but for what `trim` removes.
pub(super) struct KeptObjects<K, Trim, Concerned>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    pub(super) config: watcher::Config,
    pub(super) trim: Trim,
    pub(super) concerned: Concerned,
    pub(super) stores: TenantStore<K>,
}

impl<K, Trim, Concerned> TenantKind for KeptObjects<K, Trim, Concerned>
where
    K: Object + Send + Sync + 'static,
    Trim: Fn(&mut K) + Clone + Send + Sync + 'static,
    Concerned: Fn(&K) -> Vec<ObjectRef<SIPCluster>> + Clone + Send + Sync + 'static,
{
    fn watch(&self, client: &Client, namespace: &str) -> TenantWatch {
        let writer = Writer::default();
        let store: Store<K> = writer.as_reader();
        let (trim, concerned) = (self.trim.clone(), self.concerned.clone());
        let api = Api::namespaced(client.clone(), namespace);
        let events = watcher::watcher(api, self.config.clone())
            .backoff(watch_pauses())
            .modify(move |object: &mut K| {
                object.meta_mut().managed_fields = None;
                trim(object);
            })
            .reflect(writer)
            .map_ok(move |event| observed(event, &concerned));
        let (stores, namespace) = (self.stores.clone(), namespace.to_owned());
        TenantWatch {
            events: events.boxed(),
            publish: Box::new(move || stores.set(&namespace, store)),
        }
    }

    fn list<'a>(&self, client: &'a Client, namespace: &'a str) -> BoxFuture<'a, kube::Result<()>> {
        list::<K>(client, namespace)
    }

    fn forget(&self, namespace: &str) {
        self.stores.remove(namespace);
    }
}

/// A kind whose objects clusters own, and of which only the versions are kept.
struct OwnedVersions<K> {
    config: watcher::Config,
    versions: ByNamespace<Versions>,
    kind: PhantomData<fn() -> K>,
}

/// Makes that of a kind.
pub(super) struct WatchVersions {
    pub(super) config: watcher::Config,
    pub(super) versions: ByNamespace<Versions>,
}

impl Visit for WatchVersions {
    type Output = Box<dyn TenantKind>;

    fn visit<K: Object + Send + Sync + 'static>(self) -> Self::Output {
        let Self { config, versions } = self;
        Box::new(OwnedVersions::<K> {
            config,
            versions,
            kind: PhantomData,
        })
    }
}

impl<K: Object + Send + Sync + 'static> TenantKind for OwnedVersions<K> {
    fn watch(&self, client: &Client, namespace: &str) -> TenantWatch {
        let shown_versions = Versions::default();
        let observing = shown_versions.clone();
        let api = Api::<PartialObjectMeta<K>>::namespaced(client.clone(), namespace);
        let events = watcher::watcher(api, self.config.clone())
            .backoff(watch_pauses())
            .inspect_ok(move |event| observing.observe(event))
            .map_ok(|event| observed(event, clusters_of));
        let (versions, namespace) = (self.versions.clone(), namespace.to_owned());
        TenantWatch {
            events: events.boxed(),
            publish: Box::new(move || versions.set(&namespace, shown_versions)),
        }
    }

    fn list<'a>(&self, client: &'a Client, namespace: &'a str) -> BoxFuture<'a, kube::Result<()>> {
        list::<K>(client, namespace)
    }

    fn forget(&self, namespace: &str) {
        self.versions.remove(namespace);
    }
}

fn list<'a, K: Object + Send + Sync + 'static>(
    client: &'a Client,
    namespace: &'a str,
) -> BoxFuture<'a, kube::Result<()>> {
    Box::pin(async move {
        let api = Api::<K>::namespaced(client.clone(), namespace);
        api.list_metadata(&ListParams::default().limit(1)).await.map(drop)
    })
}
