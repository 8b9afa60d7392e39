//! The objects of one instance: rendered, then with its Service and configuration on the API server, then all of them.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    hash::{DefaultHasher, Hasher as _},
    time::{Duration, Instant},
};

use api::PortSet;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::ResourceExt as _;

use super::{
    kinds::{Child, Kind},
    node_ports::leave_ports,
    served,
};

/// Rendered; nothing is on the API server yet.
#[derive(Clone, Copy, Debug)]
pub struct Prepared(());

/// The Service and what pods read are on the API server: members may be handed over.
#[derive(Clone, Debug)]
pub struct Exposed {
    since: Instant,
    running: Option<Box<Deployment>>,
}

/// All of them are on the API server.
#[derive(Clone, Copy, Debug)]
pub struct Applied {
    since: Instant,
}

/// The objects of one instance, all in the namespace of its cluster.
#[derive(Clone, Debug)]
pub struct Objects<State> {
    service: Box<Service>,
    configuration: Vec<Child>,
    access: Vec<Child>,
    deployment: Box<Deployment>,
    guards: Vec<Child>,
    without: Vec<Kind>,
    /// Labels of the pods, since the watch of Deployments keeps no selector.
    pod_labels: BTreeMap<String, String>,
    config_digest: String,
    service_only: bool,
    state: State,
}

impl Objects<Prepared> {
    /// A Service of the instance's name, which stands for all its objects, and a Deployment of the same name behind it.
    /// `config_digest`: tells the configuration that pods are to run from any other.
    #[must_use]
    pub fn new(service: Service, deployment: Deployment, config_digest: String) -> Self {
        let pod_labels = deployment.spec.selector.match_labels.clone();
        Self {
            service: Box::new(service),
            configuration: Vec::new(),
            access: Vec::new(),
            deployment: Box::new(deployment),
            guards: Vec::new(),
            without: Vec::new(),
            pod_labels: pod_labels.unwrap_or_default(),
            config_digest,
            service_only: false,
            state: Prepared(()),
        }
    }

    /// Adds an object that pods read. It is applied right after the Service.
    #[must_use]
    pub fn configuration(mut self, child: impl Into<Child>) -> Self {
        self.configuration.push(child.into());
        self
    }

    /// Adds an account or right of the pods. It is applied before the Deployment; `RoleBinding`s follow the Roles.
    #[must_use]
    pub fn access(mut self, child: impl Into<Child>) -> Self {
        self.access.push(child.into());
        self.access.sort_by_key(|child| child.kind() == Kind::RoleBinding);
        self
    }

    /// Adds an object that guards the pods. It is applied together with the Deployment.
    #[must_use]
    pub fn guard(mut self, child: impl Into<Child>) -> Self {
        self.guards.push(child.into());
        self
    }

    /// Adds an object that guards the pods; with `None`, an existing one of that kind is deleted.
    #[must_use]
    pub fn guard_or_none(mut self, kind: Kind, child: Option<impl Into<Child>>) -> Self {
        if let Some(child) = child {
            return self.guard(child);
        }
        self.without.push(kind);
        self
    }

    /// States that the pods have no accounts and rights: existing ones are deleted once the Deployment that does not use them is applied.
    #[must_use]
    pub fn without_access(mut self) -> Self {
        self.without
            .extend([Kind::RoleBinding, Kind::Role, Kind::ServiceAccount]);
        self
    }

    /// States that only the Service can be rendered yet, as the others need what the API server gives it, such as a port or an address. The other
    /// existing objects stay, so that an instance that runs is not stopped.
    #[must_use]
    pub fn service_only(mut self) -> Self {
        self.configuration.clear();
        self.service_only = true;
        self
    }

    /// Whether nothing but the Service can be rendered yet.
    pub(super) fn has_only_service(&self) -> bool {
        self.service_only
    }

    /// Leaves these node ports to another Service for now.
    pub(super) fn leave_node_ports(&mut self, taken: &PortSet) {
        *self.service = leave_ports(&self.service, taken);
    }

    /// Records at the Service whether pods of the instance have been available.
    pub(super) fn record_served(&mut self, has_served: bool) {
        served::record(&mut self.service, has_served);
    }

    /// Equal for renderings of this process with equal Services; it is never stored.
    pub(super) fn service_digest(&self) -> u64 {
        digest(&self.service)
    }

    /// The same for the configuration.
    pub(super) fn configuration_digest(&self) -> u64 {
        digest(&self.configuration)
    }

    /// Records that this Service is on the API server, and the configuration since then. `running`: the Deployment, if what runs the
    /// instance has not changed since it was applied.
    pub(super) fn exposed(
        self,
        service: Service,
        since: Instant,
        running: Option<Deployment>,
    ) -> Objects<Exposed> {
        let running = running.map(Box::new);
        let mut objects = self.with(Exposed { since, running });
        *objects.service = service;
        objects
    }
}

impl Objects<Exposed> {
    /// The Deployment, if what runs the instance has not changed since it was applied.
    pub(super) fn running(&self) -> Option<&Deployment> {
        self.state.running.as_deref()
    }

    /// Whether nothing but the Service is applied.
    pub(super) fn is_service_only(&self) -> bool {
        self.service_only
    }

    /// Since when a change of what runs the instance waits; `None` when nothing has changed.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        (self.state.running.is_none() && !self.service_only).then_some(self.state.since)
    }

    /// Records that all objects are applied. `deployment`: as the API server has it.
    pub(super) fn applied(self, deployment: Deployment) -> Objects<Applied> {
        let since = self.state.since;
        let mut objects = self.with(Applied { since });
        *objects.deployment = deployment;
        objects
    }
}

impl Objects<Applied> {
    /// For how long the configuration has been on the API server.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.state.since.elapsed()
    }
}

impl<State> Objects<State> {
    /// Its Service: as it was rendered, and from [`Exposed`] on as the API server has it, as far as the watch keeps it.
    #[must_use]
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Its Deployment: as it was rendered, and when [`Applied`] as the API server has it, as far as the watch keeps it.
    #[must_use]
    pub fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// The labels by which its Deployment selects pods.
    pub(super) fn pod_labels(&self) -> &BTreeMap<String, String> {
        &self.pod_labels
    }

    /// Name of the instance, and of its objects.
    #[must_use]
    pub fn name(&self) -> String {
        self.service.name_any()
    }

    /// Namespace of the instance.
    #[must_use]
    pub fn namespace(&self) -> String {
        self.service.namespace().unwrap_or_default()
    }

    /// Tells the configuration that pods are to run from any other.
    #[must_use]
    pub fn config_digest(&self) -> &str {
        &self.config_digest
    }

    /// The text under a key of a `ConfigMap` that pods read, as it was rendered.
    #[must_use]
    pub fn config_text(&self, key: &str) -> Option<&str> {
        self.configuration.iter().find_map(|child| match child {
            Child::ConfigMap(map) => map.data.as_ref()?.get(key).map(String::as_str),
            _ => None,
        })
    }

    pub(super) fn configuration_children(&self) -> &[Child] {
        &self.configuration
    }

    pub(super) fn access_children(&self) -> &[Child] {
        &self.access
    }

    pub(super) fn guard_children(&self) -> &[Child] {
        &self.guards
    }

    /// Kinds of which the instance has no object.
    #[must_use]
    pub fn without(&self) -> &[Kind] {
        &self.without
    }

    /// Equal for renderings of this process with equal objects that run the instance; it is never stored.
    pub(super) fn workload_digest(&self) -> u64 {
        digest(&(&self.deployment, &self.guards, &self.access, &self.without))
    }

    fn with<Next>(self, state: Next) -> Objects<Next> {
        let Self {
            service,
            configuration,
            access,
            deployment,
            guards,
            without,
            pod_labels,
            config_digest,
            service_only,
            state: _,
        } = self;
        Objects {
            service,
            configuration,
            access,
            deployment,
            guards,
            without,
            pod_labels,
            config_digest,
            service_only,
            state,
        }
    }
}

fn digest(rendered: &impl Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{rendered:?}").as_bytes());
    hasher.finish()
}
