//! What the agent watches besides `SIPCluster`s: each watch fills a store, and names the cluster that a change concerns.

use api::SIPCluster;
use futures::{Stream, TryStreamExt as _, try_join};
use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentSpec},
    core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use kit::{load_balancers::selector, retries::watch_pauses};
use kube::{
    Api, Client, Resource,
    core::PartialObjectMeta,
    runtime::{
        Controller, WatchStreamExt as _,
        reflector::{
            ObjectRef, Store,
            store::{Writer, WriterDropped},
        },
        watcher,
    },
};
use serde::de::DeserializeOwned;

use crate::reconcile::{CONTROL_PLANE, Guards, Place, Shown, WORKER, owner_of, trim};

/// What the watches show.
#[derive(Clone, Debug)]
pub(crate) struct Stores {
    /// Of the spec only how many pods it asks for; without labels and conditions.
    pub(crate) deployments: Store<Deployment>,
    /// All of the site: whose a node port is says its Service, whoever made it. Without labels, annotations and selectors.
    pub(crate) services: Store<Service>,
    pub(crate) secrets: Shown,
    pub(crate) guards: Guards,
    pub(crate) pods: Store<Pod>,
    /// Of API servers, and of workers.
    pub(crate) templates: (Store<ConfigMap>, Store<ConfigMap>),
}

impl Stores {
    /// Waits until every watch, but that of pods, has shown once what there is: what pods run is never concluded from a watch
    /// alone. A store wakes one of those that wait for it: only one may.
    ///
    /// # Errors
    /// When a watch has ended.
    pub(crate) async fn listed(self) -> Result<(), WriterDropped> {
        let Self {
            deployments,
            services,
            secrets,
            guards:
                Guards {
                    budgets,
                    policies,
                    accounts,
                    roles,
                    bindings,
                },
            pods: _,
            templates: (control_plane, worker),
        } = self;
        for shown in [secrets, budgets, policies, accounts, roles, bindings] {
            shown.listed().await;
        }
        try_join!(
            deployments.wait_until_ready(),
            services.wait_until_ready(),
            control_plane.wait_until_ready(),
            worker.wait_until_ready(),
        )
        .map(drop)
    }
}

/// Adds the watches to a controller. `namespace`: the agents' own, which has the templates.
pub(crate) fn add(
    controller: Controller<SIPCluster>,
    client: &Client,
    namespace: &str,
    pods: Writer<Pod>,
) -> (Controller<SIPCluster>, Stores) {
    let (controller, deployments) = owned(controller, client, made(), |deployment: &mut Deployment| {
        deployment.metadata.labels = None;
        deployment.spec = DeploymentSpec {
            replicas: deployment.spec.replicas,
            ..DeploymentSpec::default()
        };
        if let Some(status) = &mut deployment.status {
            status.conditions = None;
        }
    });
    let (controller, services) = owned(
        controller,
        client,
        watcher::Config::default(),
        |service: &mut Service| {
            service.metadata.labels = None;
            service.metadata.annotations = None;
            if let Some(spec) = &mut service.spec {
                spec.selector = None;
            }
        },
    );
    let (controller, secrets) = shown::<Secret>(controller, client);
    let (controller, budgets) = shown::<PodDisruptionBudget>(controller, client);
    let (controller, policies) = shown::<NetworkPolicy>(controller, client);
    let (controller, accounts) = shown::<ServiceAccount>(controller, client);
    let (controller, roles) = shown::<Role>(controller, client);
    let (controller, bindings) = shown::<RoleBinding>(controller, client);
    let seen = pods.as_reader();
    let pods = touched(Api::all(client.clone()), made(), pods, trim);
    let controller = controller.watches_stream(pods, owner_of);
    let maps = Api::namespaced(client.clone(), namespace);
    let (controller, control_plane) = template(controller, &maps, CONTROL_PLANE);
    let (controller, worker) = template(controller, &maps, WORKER);
    let stores = Stores {
        deployments,
        services,
        secrets,
        guards: Guards {
            budgets,
            policies,
            accounts,
            roles,
            bindings,
        },
        pods: seen,
        templates: (control_plane, worker),
    };
    (controller, stores)
}

/// What the agent has made.
fn made() -> watcher::Config {
    watcher::Config::default().labels(&selector())
}

/// A template concerns every cluster.
fn template(
    controller: Controller<SIPCluster>,
    maps: &Api<ConfigMap>,
    place: Place,
) -> (Controller<SIPCluster>, Store<ConfigMap>) {
    let clusters = controller.store();
    let every_cluster = move |_| {
        let clusters = clusters.state().into_iter();
        clusters.map(|cluster| ObjectRef::from_obj(&*cluster))
    };
    let by_name = watcher::Config::default().fields(&format!("metadata.name={}", place.name));
    let writer = Writer::default();
    let store = writer.as_reader();
    let maps = touched(maps.clone(), by_name, writer, |_| ());
    (controller.watches_stream(maps, every_cluster), store)
}

/// Objects that clusters own, of which only the versions are kept.
fn shown<K>(controller: Controller<SIPCluster>, client: &Client) -> (Controller<SIPCluster>, Shown)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + Sync + 'static,
{
    let shown = Shown::default();
    let taking = shown.clone();
    let objects = watcher::watcher(Api::<PartialObjectMeta<K>>::all(client.clone()), made())
        .backoff(watch_pauses())
        .inspect_ok(move |event| taking.take(event))
        .touched_objects();
    (controller.owns_stream(objects), shown)
}

/// Objects that clusters own; `trim` takes from them what nobody asks for.
fn owned<K>(
    controller: Controller<SIPCluster>,
    client: &Client,
    config: watcher::Config,
    trim: fn(&mut K),
) -> (Controller<SIPCluster>, Store<K>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    let writer = Writer::default();
    let store = writer.as_reader();
    let objects = touched(Api::all(client.clone()), config, writer, trim);
    (controller.owns_stream(objects), store)
}

fn touched<K>(
    api: Api<K>,
    config: watcher::Config,
    writer: Writer<K>,
    trim: fn(&mut K),
) -> impl Stream<Item = Result<K, watcher::Error>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    let trimmed = watcher::watcher(api, config)
        .backoff(watch_pauses())
        .modify(move |object| {
            object.meta_mut().managed_fields = None;
            trim(object);
        });
    trimmed.reflect(writer).touched_objects()
}
