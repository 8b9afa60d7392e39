//! What a service agent watches besides `SIPCluster`s: each watch fills a store and triggers a pass over the cluster that a change
//! concerns. `SIPCluster`s and Services are watched in the whole site; everything else, in the namespaces with clusters only.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use api::{
    SIPCluster,
    annotations::{CONFIG_HASH, TEMPLATE},
};
use futures::{Stream, TryStreamExt as _, channel::mpsc};
use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentSpec},
    core::v1::{Pod, PodTemplateSpec, Service},
};
use kube::{
    Api, Client, Resource,
    api::ObjectMeta,
    runtime::{
        Controller, WatchStreamExt as _,
        reflector::{ObjectRef, Store, store::Writer},
        watcher,
    },
};
use serde::de::DeserializeOwned;

use super::{
    by_namespace::{ByNamespace, TenantStore},
    existing_ports::trim_service,
    identity::Identity,
    kept_metadata,
    kinds::Kind,
    last_applied::LastApplied,
    made_for, pods,
    readiness::{config_hash, shows_service},
    stores::Stores,
    tenant_kinds::{KeptObjects, TenantKind, WatchVersions, clusters_of},
    tenant_watches::{TenantAccess, TenantWatches},
    tenants::Tenants,
    watch_progress::WatchProgress,
};
use crate::{apply::Object, clusters, metrics::AgentMetrics, pages, retries::watch_pauses};

/// Most clusters that wait in [`Watches::triggers`].
const MAX_QUEUED_TRIGGERS: usize = 256;

/// Adds one source of passes to a controller.
type Source = Box<dyn FnOnce(Controller<SIPCluster>) -> Controller<SIPCluster> + Send>;

/// The watches of a service agent, before they run. A service adds those that only it needs.
pub struct Watches {
    client: Client,
    namespace: String,
    controller: Controller<SIPCluster>,
    sources: Vec<Source>,
    tenant_kinds: Vec<Box<dyn TenantKind>>,
    stores: Stores,
    last_applied: Arc<LastApplied>,
    /// Ends a wait until every added watch has shown a complete list.
    listed: Vec<FirstList>,
    triggers: mpsc::Sender<ObjectRef<SIPCluster>>,
}

/// Waits until a watch has shown a complete list.
pub(super) type FirstList = futures::future::BoxFuture<'static, bool>;

/// Everything that runs passes.
pub(super) struct Running {
    pub(super) controller: Controller<SIPCluster>,
    pub(super) tenants: TenantWatches,
    pub(super) stores: Stores,
    pub(super) last_applied: Arc<LastApplied>,
    /// The waits for the watches that the service has added.
    pub(super) added: Vec<FirstList>,
}

impl Debug for Watches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watches").finish_non_exhaustive()
    }
}

impl Watches {
    /// Watches the clusters, and what a service with this identity makes. `namespace`: that of the agents.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: String,
        identity: &'static Identity,
        metrics: &AgentMetrics,
    ) -> Self {
        let tenants = Tenants::default();
        let observing = tenants.clone();
        let controller =
            clusters::observed_controller(&client, metrics, move |event| observing.observe(event));
        let last_applied = Arc::<LastApplied>::default();
        let (services, watched) = services(&client, WatchProgress::new(Arc::clone(&last_applied)));
        let (triggers, triggered) = mpsc::channel(MAX_QUEUED_TRIGGERS);
        let sources: Vec<Source> = vec![
            Box::new(|controller| controller.watches_stream(watched, |service| clusters_of(&service))),
            Box::new(|controller| controller.reconcile_on(triggered)),
        ];
        let mut watches = Self {
            stores: Stores {
                clusters: controller.store(),
                services,
                deployments: TenantStore::default(),
                pods: TenantStore::default(),
                versions: Arc::default(),
                access: TenantAccess::new(tenants),
            },
            client,
            namespace,
            controller,
            sources,
            tenant_kinds: Vec::new(),
            last_applied,
            listed: Vec::new(),
            triggers,
        };
        let own = watcher::Config::default().labels(&identity.selector());
        watches.stores.deployments = watches.read_in_tenants(own.clone(), trim_deployment, clusters_of);
        let trim_pod = move |pod: &mut Pod| pods::trim(pod, identity);
        watches.stores.pods = watches.read_in_tenants(own.clone(), trim_pod, |pod| {
            pods::cluster(pod).into_iter().collect()
        });
        watches.stores.versions = Arc::new(watches.versions(identity, &own));
        watches
    }

    /// Watches children of instances, keeping only their versions.
    fn versions(
        &mut self,
        identity: &Identity,
        config: &watcher::Config,
    ) -> BTreeMap<Kind, ByNamespace<super::versions::Versions>> {
        let mut versions = BTreeMap::new();
        for children in identity.children {
            if children.kind == Kind::Deployment || versions.contains_key(&children.kind) {
                continue;
            }
            let of_kind = ByNamespace::default();
            self.tenant_kinds.push(children.kind.visit(WatchVersions {
                config: pages::in_pages(config.clone()),
                versions: of_kind.clone(),
            }));
            versions.insert(children.kind, of_kind);
        }
        versions
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

    /// Triggers passes over clusters about which a service learns something that no watch shows.
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
        let objects = touched(objects, config, writer);
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

    /// Watches objects in the namespaces with clusters; a change triggers passes over the clusters that `concerned` names. No pass over a
    /// cluster comes before the first complete list in its namespace. `trim` removes what the service does not need.
    ///
    /// The agent needs the right to list and watch them in every tenant's namespace (`deploy/tenant-namespace`): where it has not, its
    /// condition reports that, and nothing else is done for the clusters there.
    pub fn read_in_tenants<K: Object + Send + Sync + 'static>(
        &mut self,
        config: watcher::Config,
        trim: impl Fn(&mut K) + Clone + Send + Sync + 'static,
        concerned: impl Fn(&K) -> Vec<ObjectRef<SIPCluster>> + Clone + Send + Sync + 'static,
    ) -> TenantStore<K> {
        let stores = TenantStore::default();
        self.tenant_kinds.push(Box::new(KeptObjects {
            config: pages::in_pages(config),
            trim,
            concerned,
            stores: stores.clone(),
        }));
        stores
    }

    /// The controller with all watches, and what they show.
    pub(super) fn into_running(self) -> Running {
        let controller = self
            .sources
            .into_iter()
            .fold(self.controller, |controller, add| add(controller));
        let tenants = TenantWatches {
            client: self.client,
            access: self.stores.access.clone(),
            clusters: self.stores.clusters.clone(),
            triggers: self.triggers,
            kinds: self.tenant_kinds,
        };
        Running {
            controller,
            tenants,
            stores: self.stores,
            last_applied: self.last_applied,
            added: self.listed,
        }
    }
}

pub(super) fn trim_deployment(deployment: &mut Deployment) {
    kept_metadata::trim(&mut deployment.metadata, &[TEMPLATE]);
    made_for::trim(&mut deployment.metadata.labels);
    let hash = config_hash(deployment).map(|hash| (CONFIG_HASH.to_owned(), hash.to_owned()));
    let metadata = hash.map(|hash| ObjectMeta {
        annotations: Some(BTreeMap::from([hash])),
        ..ObjectMeta::default()
    });
    deployment.spec = DeploymentSpec {
        replicas: deployment.spec.replicas,
        template: PodTemplateSpec { metadata, spec: None },
        ..DeploymentSpec::default()
    };
    if let Some(conditions) = deployment
        .status
        .as_mut()
        .and_then(|status| status.conditions.as_mut())
    {
        conditions.retain(shows_service);
        for condition in conditions {
            condition.message = None;
        }
    }
}

/// Every Service of the site, and the stream that keeps them so.
fn services(
    client: &Client,
    mut progress: WatchProgress,
) -> (
    Store<Service>,
    impl Stream<Item = watcher::Result<Service>> + Send + 'static,
) {
    let writer = Writer::default();
    let store = writer.as_reader();
    let trimmed = trimmed(Api::all(client.clone()), watcher::Config::default(), trim_service);
    let stored = trimmed
        .reflect(writer)
        .inspect_ok(move |event| progress.observe(event));
    (store, stored.touched_objects())
}

fn touched<K>(
    api: Api<K>,
    config: watcher::Config,
    writer: Writer<K>,
) -> impl Stream<Item = watcher::Result<K>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    trimmed(api, config, |_| ()).reflect(writer).touched_objects()
}

fn trimmed<K>(
    api: Api<K>,
    config: watcher::Config,
    trim: impl Fn(&mut K) + Send + Sync + 'static,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    watcher::watcher(api, pages::in_pages(config))
        .backoff(watch_pauses())
        .modify(move |object| {
            object.meta_mut().managed_fields = None;
            trim(object);
        })
}
