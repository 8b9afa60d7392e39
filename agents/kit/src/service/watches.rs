//! What a service agent watches besides `SIPCluster`s: each watch fills a store and triggers a pass over the cluster that a change
//! concerns.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use api::SIPCluster;
use futures::{Stream, TryStreamExt as _, channel::mpsc};
use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentSpec},
    core::v1::{Pod, Service},
};
use kube::{
    Api, Client, Resource,
    core::PartialObjectMeta,
    runtime::{
        Controller, WatchStreamExt as _,
        reflector::{ObjectRef, Store, store::Writer},
        watcher,
    },
};
use serde::de::DeserializeOwned;

use super::{
    identity::Identity,
    kinds::{Kind, Visit},
    pods,
    stores::Stores,
    versions::Versions,
};
use crate::{apply::Object, clusters, retries::watch_pauses};

/// Clusters that may be named at once by [`Watches::triggers`].
const TRIGGERS: usize = 256;

/// Adds one source of passes to a controller.
type Source = Box<dyn FnOnce(Controller<SIPCluster>) -> Controller<SIPCluster> + Send>;

/// The watches of a service agent, before they run. A service adds those that only it needs.
pub struct Watches {
    client: Client,
    namespace: String,
    controller: Controller<SIPCluster>,
    sources: Vec<Source>,
    stores: Stores,
    /// Ends a wait until every added watch has shown a complete list.
    listed: Vec<Listed>,
    triggers: mpsc::Sender<ObjectRef<SIPCluster>>,
}

/// Waits until a watch has shown a complete list.
pub(super) type Listed = futures::future::BoxFuture<'static, bool>;

impl Debug for Watches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watches").finish_non_exhaustive()
    }
}

impl Watches {
    /// Of the clusters and of what a service with this identity makes. `namespace`: the agents' own.
    #[must_use]
    pub fn new(client: Client, namespace: String, identity: &'static Identity) -> Self {
        let controller = clusters::controller(&client);
        let own = watcher::Config::default().labels(&identity.selector());
        let mut sources = Vec::new();
        let deployments = owned(&mut sources, &client, own.clone(), trim_deployment);
        let services = owned(&mut sources, &client, watcher::Config::default(), trim_service);
        let mut versions = BTreeMap::new();
        for children in identity.children {
            // The Deployments are kept as they are.
            if children.kind != Kind::Deployment {
                versions.entry(children.kind).or_insert_with(|| {
                    let watch = WatchVersions(&mut sources, &client, own.clone());
                    children.kind.visit(watch)
                });
            }
        }
        let seen = Writer::default();
        let pods = seen.as_reader();
        let watched = touched(Api::all(client.clone()), own, seen, |pod: &mut Pod| {
            pods::trim(pod, identity.pod_labels);
        });
        sources.push(Box::new(|controller| {
            controller.watches_stream(watched, |pod| pods::cluster(&pod))
        }));
        let (triggers, triggered) = mpsc::channel(TRIGGERS);
        sources.push(Box::new(|controller| controller.reconcile_on(triggered)));
        Self {
            stores: Stores {
                clusters: controller.store(),
                deployments,
                services,
                pods,
                versions: Arc::new(versions),
            },
            client,
            namespace,
            controller,
            sources,
            listed: Vec::new(),
            triggers,
        }
    }

    /// The site's API server.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The namespace that the agents are in, with what operators of the site configure there.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// What the watches of every service show.
    #[must_use]
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// Triggers passes over clusters of which something is known that no watch shows.
    #[must_use]
    pub fn triggers(&self) -> mpsc::Sender<ObjectRef<SIPCluster>> {
        self.triggers.clone()
    }

    /// Watches objects that are read; a change triggers passes over the clusters that `concerned` names. The first pass comes after
    /// the first complete list.
    pub fn read<K, Clusters>(
        &mut self,
        objects: Api<K>,
        config: watcher::Config,
        concerned: impl Fn(K) -> Clusters + Send + Sync + 'static,
    ) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        Clusters: IntoIterator<Item = ObjectRef<SIPCluster>> + 'static,
        Clusters::IntoIter: Send,
    {
        let writer = Writer::default();
        let store = writer.as_reader();
        let objects = touched(objects, config, writer, |_| ());
        self.sources.push(Box::new(|controller| {
            controller.watches_stream(objects, concerned)
        }));
        let listed = store.clone();
        self.listed
            .push(Box::pin(async move { listed.wait_until_ready().await.is_ok() }));
        store
    }

    /// Watches objects that concern every cluster.
    pub fn read_for_all<K>(&mut self, objects: Api<K>, config: watcher::Config) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let clusters = self.stores.clusters.clone();
        self.read(objects, config, move |_| {
            let clusters = clusters.state().into_iter();
            clusters
                .map(|cluster| ObjectRef::from_obj(&*cluster))
                .collect::<Vec<_>>()
        })
    }

    /// The controller with all of them, what they show, and the waits for the added ones.
    pub(super) fn into_controller(self) -> (Controller<SIPCluster>, Stores, Vec<Listed>) {
        let controller = self
            .sources
            .into_iter()
            .fold(self.controller, |controller, add| add(controller));
        (controller, self.stores, self.listed)
    }
}

pub(super) fn trim_deployment(deployment: &mut Deployment) {
    deployment.metadata.labels = None;
    deployment.spec = DeploymentSpec {
        replicas: deployment.spec.replicas,
        ..DeploymentSpec::default()
    };
    if let Some(status) = &mut deployment.status {
        status.conditions = None;
    }
}

fn trim_service(service: &mut Service) {
    service.metadata.labels = None;
    service.metadata.annotations = None;
    if let Some(spec) = &mut service.spec {
        spec.selector = None;
    }
}

/// Watches the objects of a kind that clusters own, and keeps only their versions.
struct WatchVersions<'a>(&'a mut Vec<Source>, &'a Client, watcher::Config);

impl Visit for WatchVersions<'_> {
    type Output = Versions;

    fn visit<K: Object + Send + Sync + 'static>(self) -> Versions {
        let Self(sources, client, config) = self;
        let versions = Versions::default();
        let observing = versions.clone();
        let objects = watcher::watcher(Api::<PartialObjectMeta<K>>::all(client.clone()), config)
            .backoff(watch_pauses())
            .inspect_ok(move |event| observing.observe(event))
            .touched_objects();
        sources.push(Box::new(|controller| controller.owns_stream(objects)));
        versions
    }
}

/// Objects that clusters own; `trim` removes what no agent needs.
fn owned<K>(sources: &mut Vec<Source>, client: &Client, config: watcher::Config, trim: fn(&mut K)) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let writer = Writer::default();
    let store = writer.as_reader();
    let objects = touched(Api::all(client.clone()), config, writer, trim);
    sources.push(Box::new(|controller| controller.owns_stream(objects)));
    store
}

fn touched<K>(
    api: Api<K>,
    config: watcher::Config,
    writer: Writer<K>,
    trim: impl Fn(&mut K) + Send + Sync + 'static,
) -> impl Stream<Item = Result<K, watcher::Error>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let trimmed = watcher::watcher(api, config)
        .backoff(watch_pauses())
        .modify(move |object| {
            object.meta_mut().managed_fields = None;
            trim(object);
        });
    trimmed.reflect(writer).touched_objects()
}
