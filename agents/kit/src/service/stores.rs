//! The objects of the site as the watches of one service agent have them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::SIPCluster;
use futures::try_join;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
};
use kube::{
    ResourceExt as _,
    runtime::reflector::{ObjectRef, Store, store::WriterDropped},
};

use super::{
    by_namespace::{ByNamespace, TenantStore},
    identity::Identity,
    kinds::{Child, Kind},
    made_for::{self, Maker},
    objects::Objects,
    tenant_watches::TenantAccess,
    versions::Versions,
};

/// The objects of the site as the watches have them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stores {
    /// The site's clusters.
    pub clusters: Store<SIPCluster>,
    /// Every Service of the site: a node port belongs to the Service that has it, whoever made it. Without selectors, most
    /// annotations and most labels; of Services that are no cluster's, with their ports on nodes only.
    pub services: Store<Service>,
    /// The agent's Deployments. Of the spec only `replicas` and the pods' configuration hash; without most labels, and only
    /// the conditions that show that pods were available.
    pub deployments: TenantStore<Deployment>,
    /// The pods of the agent's instances, as `pods::trim` leaves them. What pods run is never concluded from a watch alone.
    pub pods: TenantStore<Pod>,
    pub(super) versions: Arc<BTreeMap<Kind, ByNamespace<Versions>>>,
    pub(super) access: TenantAccess,
}

impl Stores {
    /// Waits until the watches of the whole site have shown a complete list. Only one task may wait, since a store wakes only one.
    ///
    /// # Errors
    /// When a watch has ended.
    pub(super) async fn listed(self) -> Result<(), WriterDropped> {
        let Self {
            clusters,
            services,
            deployments: _,
            pods: _,
            versions: _,
            access: _,
        } = self;
        try_join!(clusters.wait_until_ready(), services.wait_until_ready()).map(drop)
    }

    /// Whether the watches in every namespace with clusters have shown a complete list. If not, an object that is not found may exist.
    #[must_use]
    pub fn has_every_tenant(&self) -> bool {
        self.access.is_complete()
    }

    /// The Service of an instance.
    pub(super) fn service<State>(&self, objects: &Objects<State>) -> Option<Arc<Service>> {
        self.services.get(&ObjectRef::from_obj(objects.service()))
    }

    /// The Deployment of an instance. It is one of the agent's by its labels.
    pub(super) fn deployment<State>(&self, objects: &Objects<State>) -> Option<Arc<Deployment>> {
        self.deployments.get(&ObjectRef::from_obj(objects.deployment()))
    }

    /// The versions of the objects that pods read.
    pub(super) fn configuration<State>(&self, objects: &Objects<State>) -> Vec<Option<String>> {
        let namespace = objects.namespace();
        let children = objects.configuration_children().iter();
        children.map(|child| self.version(&namespace, child)).collect()
    }

    /// The versions of what runs an instance besides its Deployment, with `None` for every object that is not there.
    pub(super) fn workload<State>(&self, objects: &Objects<State>) -> Vec<Option<String>> {
        let namespace = objects.namespace();
        let access = objects.access_children().iter();
        let children = access.chain(objects.guard_children());
        let unwanted = objects.without().iter();
        let unwanted = unwanted.map(|kind| self.version_named(objects, *kind));
        children
            .map(|child| self.version(&namespace, child))
            .chain(unwanted)
            .collect()
    }

    /// Whether a watch shows an object of this kind that has the name of an instance.
    pub(super) fn shows<State>(&self, objects: &Objects<State>, kind: Kind) -> bool {
        self.version_named(objects, kind).is_some()
    }

    fn version_named<State>(&self, objects: &Objects<State>, kind: Kind) -> Option<String> {
        self.versions(&objects.namespace(), kind)?.get(objects.service())
    }

    /// The version of an object, as the watch of the agent's objects shows it.
    pub(super) fn version(&self, namespace: &str, child: &Child) -> Option<String> {
        child.version_in(&self.versions(namespace, child.kind())?)
    }

    /// The resource version of a `ConfigMap`, as the watch of the agent's objects shows it.
    pub(super) fn config_map_version(
        &self,
        namespace: &str,
        name: &str,
        cluster: (&str, &str),
    ) -> Option<String> {
        self.versions(namespace, Kind::ConfigMap)?.by_name(name, cluster)
    }

    /// The instances of which a cluster, by its uid and name, has a child in a namespace, as the watches of the agent's objects show it.
    pub(super) fn instances_with_children(
        &self,
        identity: &Identity,
        namespace: &str,
        cluster: (&str, &str),
    ) -> BTreeSet<String> {
        let mut instances = BTreeSet::new();
        for kind in self.versions.keys() {
            let versions = self.versions(namespace, *kind);
            let own = versions.map(|versions| versions.of_cluster(cluster));
            let children = own.unwrap_or_default().into_iter();
            let children = children.filter(|(name, instance)| identity.is_child(*kind, name, instance));
            instances.extend(children.map(|(_, instance)| instance));
        }
        instances
    }

    /// The uids of the site's clusters.
    pub(super) fn cluster_uids(&self) -> BTreeSet<String> {
        let clusters = self.clusters.state();
        clusters.iter().filter_map(|cluster| cluster.uid()).collect()
    }

    /// Instances that have an object which stays and which none of the clusters with these uids owns, as the watches of the agent's objects show
    /// it: their namespaces, their names, and their makers.
    pub(super) fn without_live_owner(
        &self,
        identity: &Identity,
        live: &BTreeSet<String>,
    ) -> BTreeSet<(String, String, Maker)> {
        let mut instances = BTreeSet::new();
        for deployment in self.deployments.state() {
            if deployment.metadata.deletion_timestamp.is_none()
                && made_for::is_of_instance(&deployment.metadata, &deployment.name_any())
                && let Some(maker) = Maker::of_object(&deployment.metadata)
                && !maker.is_owner_among(live)
                && let Some(namespace) = deployment.namespace()
            {
                instances.insert((namespace, deployment.name_any(), maker));
            }
        }
        for (kind, of_kind) in &*self.versions {
            for (namespace, versions) in of_kind.entries() {
                let children = versions.without_live_owner(live).into_iter();
                let children =
                    children.filter(|(name, instance, _)| identity.is_child(*kind, name, instance));
                instances.extend(children.map(|(_, instance, maker)| (namespace.clone(), instance, maker)));
            }
        }
        instances
    }

    fn versions(&self, namespace: &str, kind: Kind) -> Option<Versions> {
        self.versions.get(&kind)?.value(namespace)
    }
}
