//! A cluster as it was observed: its status, and the instances that exist for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::{Applied, Drained, Endpoint, MadePorts, Placement, SIPCluster, conditions::SCHEDULED};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::ResourceExt as _;

use super::{
    endpoints, existing_ports,
    identity::Identity,
    kinds::Kind,
    last_applied::{Outdated, Written},
    made_for,
    readiness::may_serve,
    served,
    site::Site,
};
use crate::conditions::find;

/// A cluster as it was observed.
#[derive(Debug)]
pub struct Observed<'a> {
    object: &'a SIPCluster,
    identity: &'static Identity,
    services: Vec<Arc<Service>>,
    names: BTreeSet<String>,
    deployments: Vec<Arc<Deployment>>,
    /// The Deployments that are shown of an earlier generation than the API server answered to this process last, or as another object; by name.
    outdated: BTreeMap<String, Outdated>,
    /// The resource versions of the instances' `ConfigMap`s, by name.
    config_maps: BTreeMap<String, String>,
    /// What pods read, by instance, as this process has written it, where that is the newest that is known.
    written: BTreeMap<String, Written>,
}

impl<'a> Observed<'a> {
    /// A cluster, with what the watches have shown of its instances, and what this process has written of them.
    pub(super) fn new(object: &'a SIPCluster, site: &Site) -> Self {
        let (identity, stores) = (site.identity, &site.stores);
        let namespace = object.namespace().unwrap_or_default();
        let deployments = stores.deployments.within(&namespace);
        let mut observed = Self::among(object, identity, stores.services.state(), &deployments);
        let (uid, name) = (object.uid().unwrap_or_default(), object.name_any());
        let cluster = (&*uid, &*name);
        let left = stores.instances_with_children(identity, &namespace, cluster);
        observed.names.extend(left);
        let outdated = observed.deployments.iter().filter_map(|deployment| {
            let outdated = site.last_applied.outdated(deployment)?;
            Some((deployment.name_any(), outdated))
        });
        observed.outdated = outdated.collect();
        observed.take_newer(|name, shown| site.last_applied.newer_service(&namespace, name, shown));
        let suffixes = identity.children.iter();
        let suffixes = suffixes.filter(|children| children.kind == Kind::ConfigMap);
        for suffix in suffixes.map(|children| children.suffix) {
            let names = observed.names.iter().map(|name| format!("{name}{suffix}"));
            let versions = names.filter_map(|name| {
                let version = stores.config_map_version(&namespace, &name, cluster)?;
                Some((name, version))
            });
            observed.config_maps.extend(versions);
        }
        let written = observed.names.iter().filter_map(|name| {
            let shown = observed.config_map_version(name);
            let written = site.last_applied.written(&namespace, name, shown)?;
            Some((name.clone(), written))
        });
        observed.written = written.collect();
        observed
    }

    /// By Services and Deployments: the Airship SIP operator made these too. Of a name that it used the owner of the Service is not
    /// known yet.
    pub(super) fn among(
        object: &'a SIPCluster,
        identity: &'static Identity,
        mut services: Vec<Arc<Service>>,
        deployments: &[Arc<Deployment>],
    ) -> Self {
        services.retain(|service| {
            is_own(&**service, object, identity) || is_unowned(&**service, object, identity)
        });
        let deployments = deployments.iter();
        let deployments = deployments.filter(|deployment| {
            is_own(&***deployment, object, identity) || is_unowned(&***deployment, object, identity)
        });
        let deployments: Vec<Arc<Deployment>> = deployments.cloned().collect();
        let mut names: BTreeSet<String> = services.iter().map(|service| service.name_any()).collect();
        names.extend(deployments.iter().map(|deployment| deployment.name_any()));
        // A watch may not have shown these yet.
        let applied = object.status.iter().flat_map(|status| &status.applied);
        let applied = applied.map(|applied| &applied.service);
        names.extend(applied.filter(|name| identity.owns(name)).cloned());
        Self {
            object,
            identity,
            services,
            names,
            deployments,
            outdated: BTreeMap::new(),
            config_maps: BTreeMap::new(),
            written: BTreeMap::new(),
        }
    }

    /// Takes Services as this process has applied them, in place of those that a watch shows as they were before: the ports of
    /// Services say which of the entries without a name is which.
    fn take_newer(&mut self, newer: impl Fn(&str, Option<&str>) -> Option<Arc<Service>>) {
        for name in &self.names {
            let shown = self.services.iter_mut();
            let mut shown = shown.filter(|service| service.metadata.name.as_ref() == Some(name));
            match shown.next() {
                Some(shown) => {
                    if let Some(newer) = newer(name, shown.metadata.resource_version.as_deref()) {
                        *shown = newer;
                    }
                }
                None => self.services.extend(newer(name, None)),
            }
        }
    }

    /// The cluster.
    #[must_use]
    pub fn object(&self) -> &'a SIPCluster {
        self.object
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> String {
        self.object.namespace().unwrap_or_default()
    }

    /// The Services of the cluster's instances.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.iter().map(AsRef::as_ref)
    }

    /// Names of the instances that exist, and of those that are applied by the status.
    #[must_use]
    pub fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// Names of the instances that have served since they were last to have no pods.
    pub(super) fn have_served(&self) -> BTreeSet<&str> {
        self.names_of(|name, service, deployment| {
            served::has_served(service, deployment, self.outdated.get(name).copied())
        })
    }

    /// Names of the instances that may serve at present: those with a Service, and a Deployment that is to have pods and had available ones,
    /// whatever changes of it are under way. The record does not decide here, since an instance that does not serve is deleted. Its value is `false`
    /// also where pods were available only while the scheduler did not answer or the entry was refused, and where an agent that found no record
    /// started while they were away. So an instance that was scaled up from 0 counts, even if its pods never came.
    pub(super) fn serving(&self) -> BTreeSet<&str> {
        self.names_of(|_, _, deployment| may_serve(deployment))
    }

    /// Names of the instances with a Service and a Deployment of which this holds.
    fn names_of(&self, holds: impl Fn(&str, &Service, &Deployment) -> bool) -> BTreeSet<&str> {
        let services = self.services();
        let services: BTreeMap<&str, &Service> = services
            .filter_map(|service| Some((service.metadata.name.as_deref()?, service)))
            .collect();
        let named = self.deployments.iter().filter_map(|deployment| {
            let name = deployment.metadata.name.as_deref()?;
            holds(name, services.get(name)?, deployment).then_some(name)
        });
        named.collect()
    }

    /// The instances of this agent with their node ports; empty where these are not known.
    #[must_use]
    pub fn made_ports(&self) -> MadePorts {
        self.made_ports_by(
            existing_ports::entry_node_ports,
            existing_ports::recorded_on_nodes,
        )
    }

    /// The instances of this agent with the ports that tell them from each other: those of its Services, and what the status has recorded
    /// where no watch has shown a Service yet. Empty where they are not known.
    #[must_use]
    pub fn made_ports_by(
        &self,
        of_service: impl Fn(&Service) -> BTreeSet<u16>,
        of_endpoint: impl Fn(&Endpoint) -> BTreeSet<u16>,
    ) -> MadePorts {
        let mut made = existing_ports::recorded_ports(self.object, of_endpoint);
        made.retain(|name, _| self.identity.owns(name));
        for name in &self.names {
            made.entry(name.clone()).or_default();
        }
        let services = self.services();
        made.extend(services.map(|service| (service.name_any(), of_service(service))));
        made
    }

    /// The resource version that a `ConfigMap` of an instance had when the pass began.
    pub(super) fn config_map_version(&self, name: &str) -> Option<&str> {
        self.config_maps.get(name).map(String::as_str)
    }

    /// The configuration in the `ConfigMap` of an instance, as its objects were rendered with it, and the resource version that it has
    /// there: if this process has written it, and the watch has shown no other since. A write on the condition of this version is refused
    /// if there is another by now.
    #[must_use]
    pub fn written_configuration(&self, instance: &str) -> Option<(&str, &str)> {
        let written = self.written.get(instance)?;
        Some((&written.digest, &written.version))
    }

    /// Whether the cluster is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    /// What the cluster holds; `None` as long as its own agent has written no placement.
    #[must_use]
    pub fn placement(&self) -> Option<&'a Placement> {
        self.object.status.as_ref()?.placement.as_ref()
    }

    /// Whether there is a placement that cannot be read.
    pub(super) fn has_unreadable_placement(&self) -> bool {
        self.object.spec.left_out.placement.is_some()
    }

    /// This agent's `status.drained`.
    #[must_use]
    pub fn drained(&self) -> Option<Drained> {
        let status = self.object.status.as_ref();
        status
            .filter(|_| self.identity.reports_drained)
            .and_then(|status| status.drained)
    }

    pub(super) fn generation(&self) -> i64 {
        self.object.metadata.generation.unwrap_or_default()
    }

    /// This agent's entries of `status.applied`.
    pub(super) fn applied(&self) -> Vec<Applied> {
        let applied = self.object.status.iter().flat_map(|status| &status.applied);
        applied
            .filter(|applied| self.identity.owns(&applied.service))
            .cloned()
            .collect()
    }

    /// This agent's entries of `status.endpoints`.
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let endpoints = self.object.status.iter().flat_map(|status| &status.endpoints);
        endpoints
            .filter(|endpoint| self.identity.owns(&endpoint.name))
            .cloned()
            .collect()
    }

    /// Those of an instance that has a Service: users still reach it there.
    pub(super) fn endpoints_of_service(&self, instance: &str) -> Vec<Endpoint> {
        let mut services = self.services();
        let exists = services.any(|service| service.metadata.name.as_deref() == Some(instance));
        let mut endpoints = self.endpoints();
        endpoints.retain(|endpoint| exists && endpoints::instance(endpoint) == instance);
        endpoints
    }

    pub(super) fn conditions(&self) -> &'a [Condition] {
        let status = self.object.status.as_ref();
        status.map(|status| &*status.conditions).unwrap_or_default()
    }

    /// Whether the condition of this service tells of the present spec.
    pub(super) fn has_condition_of_generation(&self) -> bool {
        let condition = self.condition();
        condition.is_some_and(|condition| condition.observed_generation == Some(self.generation()))
    }

    /// This agent's condition.
    pub(super) fn condition(&self) -> Option<&'a Condition> {
        find(self.conditions(), self.identity.condition)
    }
}

/// Whether the cluster agent has reported the scheduler's decision.
pub(super) fn is_decided(object: &SIPCluster) -> bool {
    let status = object.status.as_ref();
    status.is_some_and(|status| find(&status.conditions, SCHEDULED).is_some())
}

/// Whether every role has its hosts, as the cluster agent has reported it.
pub(super) fn is_placed(object: &SIPCluster) -> bool {
    let status = object.status.as_ref();
    let scheduled = status.and_then(|status| find(&status.conditions, SCHEDULED));
    scheduled.is_some_and(|condition| condition.status == "True")
}

/// Whether this incarnation of the cluster owns it, and it is an instance's of this agent.
fn is_own(object: &impl kube::ResourceExt, cluster: &SIPCluster, identity: &Identity) -> bool {
    let uid = cluster.metadata.uid.as_deref();
    let owners = object.owner_references().iter();
    object.namespace() == cluster.namespace()
        && identity.owns(&object.name_any())
        && owners
            .filter(|owner| owner.kind == "SIPCluster")
            .any(|owner| Some(owner.uid.as_str()) == uid)
}

/// Whether it was made for a cluster of this name and has lost its owner, as by `kubectl delete --cascade=orphan`, or the Airship SIP operator
/// may have made it.
fn is_unowned(object: &impl kube::ResourceExt, cluster: &SIPCluster, identity: &Identity) -> bool {
    let owned = object.owner_references().iter();
    let mut owned = owned.filter(|owner| owner.kind == "SIPCluster");
    object.namespace() == cluster.namespace()
        && owned.next().is_none()
        && match made_for::cluster(object.labels()) {
            Some(named) => {
                let name = object.name_any();
                named == cluster.name_any()
                    && identity.owns(&name)
                    && made_for::is_of_instance(object.meta(), &name)
            }
            None => identity.is_sip_name(&object.name_any(), &cluster.name_any()),
        }
}

#[cfg(test)]
mod tests;
