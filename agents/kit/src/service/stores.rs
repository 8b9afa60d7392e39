//! The objects of the site as the watches of one service agent have them.

use std::{collections::BTreeMap, sync::Arc};

use api::SIPCluster;
use futures::try_join;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
};
use kube::runtime::reflector::{ObjectRef, Store, store::WriterDropped};

use super::{
    kinds::{Child, Kind},
    objects::Objects,
    versions::Versions,
};

/// The objects of the site as the watches have them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stores {
    /// The site's clusters.
    pub clusters: Store<SIPCluster>,
    /// The agent's Deployments. Of the spec only `replicas`; without labels and conditions.
    pub deployments: Store<Deployment>,
    /// Every Service of the site: a node port belongs to the Service that has it, whoever made it. Without labels, annotations
    /// and selectors.
    pub services: Store<Service>,
    /// The pods of the agent's instances, as `pods::trim` leaves them.
    pub pods: Store<Pod>,
    pub(super) versions: Arc<BTreeMap<Kind, Versions>>,
}

impl Stores {
    /// Waits until every watch but that of pods has shown a complete list: what pods run is never concluded from a watch alone. A
    /// store wakes one of those that wait for it, so only one may.
    ///
    /// # Errors
    /// When a watch has ended.
    pub(super) async fn listed(self) -> Result<(), WriterDropped> {
        let Self {
            clusters,
            deployments,
            services,
            pods: _,
            versions,
        } = self;
        for versions in versions.values() {
            versions.listed().await;
        }
        try_join!(
            clusters.wait_until_ready(),
            deployments.wait_until_ready(),
            services.wait_until_ready(),
        )
        .map(drop)
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
        let children = objects.configuration_children().iter();
        children.map(|child| self.version(child)).collect()
    }

    /// The versions of what runs an instance besides its Deployment, with `None` for every object that is not there.
    pub(super) fn workload<State>(&self, objects: &Objects<State>) -> Vec<Option<String>> {
        let access = objects.access_children().iter();
        let children = access.chain(objects.guard_children());
        let unwanted = objects.without().iter().map(|kind| {
            let versions = self.versions.get(kind)?;
            versions.get(objects.service())
        });
        children
            .map(|child| self.version(child))
            .chain(unwanted)
            .collect()
    }

    fn version(&self, child: &Child) -> Option<String> {
        child.version_in(self.versions.get(&child.kind())?)
    }
}
