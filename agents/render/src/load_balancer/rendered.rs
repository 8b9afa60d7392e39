//! Everything that one load balancer consists of.

use api::{Cluster, ControlPlaneBalancer, WorkerBalancer, annotations};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::check::{self, Check};
use super::config::{self, Config};
use super::interface::CONFIG_FILE;
use super::member::{Member, sort_unique};
use super::placement_line::with_placement;
use super::plan::Plan;
use super::sidecar::{self, Access};
use super::template::{Error, Template};
use super::{pods, server_list};
use crate::exposure::{self, ExposedPort};
use crate::guards;

/// Everything that one load balancer consists of. Apply the `ConfigMap` and the access first: the pods need them.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    /// Holds the configuration under [`super::CONFIG_FILE`].
    pub config_map: ConfigMap,
    /// Runs HAProxy. Without a sidecar its pod template carries the configuration's hash, so that a change rolls out.
    pub deployment: Deployment,
    /// Routes to the pods, by node port.
    pub service: Service,
    /// Limits evictions while nodes drain. `None` with fewer than two pods: it would block the drain.
    pub budget: Option<PodDisruptionBudget>,
    /// Who may connect to the pods.
    pub policy: NetworkPolicy,
    /// What the sidecar may do; `None` without one.
    pub access: Option<Access>,
    /// The configuration as text.
    pub config: String,
}

impl Objects {
    /// SHA-256 of the configuration, in hexadecimal digits: by it pods report which one they run.
    #[must_use]
    pub fn config_digest(&self) -> String {
        config::digest(&self.config)
    }

    /// The same, with a configuration that names the placement for which it was rendered: rendered for another one, it has another digest,
    /// also where the members are the same.
    #[must_use]
    pub fn for_placement(mut self, position: &str) -> Self {
        self.config = with_placement(&self.config, position);
        if let Some(text) = self
            .config_map
            .data
            .as_mut()
            .and_then(|data| data.get_mut(CONFIG_FILE))
        {
            text.clone_from(&self.config);
        }
        self
    }
}

/// A load balancer in front of the API servers on `members`. Without members its configuration is valid and refuses
/// connections.
#[must_use]
pub fn control_plane(cluster: &Cluster, balancer: &ControlPlaneBalancer, members: &[Member]) -> Objects {
    Plan::control_plane(cluster, balancer).objects(members)
}

/// A load balancer in front of the workers `members`, one port of the range to the same port of the workers.
#[must_use]
pub fn worker(cluster: &Cluster, balancer: &WorkerBalancer, members: &[Member]) -> Objects {
    Plan::worker(cluster, balancer).objects(members)
}

impl Plan<'_> {
    /// All objects, with the built-in configuration.
    #[must_use]
    pub fn objects(&self, members: &[Member]) -> Objects {
        let members = &sort_unique(members);
        let membership = self
            .sidecar
            .map(|_| server_list::server_list(self, members).to_string());
        self.assemble(Config { plan: self, members }.to_string(), membership)
    }

    /// All objects, with the configuration that a template makes of these members. The Deployment records the template, and the
    /// image that has accepted it.
    ///
    /// # Errors
    /// Why the template makes no configuration.
    pub fn objects_from_template(
        &self,
        members: &[Member],
        template: &Template,
        accepted_by: &str,
    ) -> Result<Objects, Error> {
        let mut objects = self.assemble(template.config(self, &sort_unique(members))?, None);
        let annotations = [
            (annotations::TEMPLATE, template.digest()),
            (annotations::TEMPLATE_IMAGE, accepted_by),
        ];
        objects.deployment.metadata.annotations = Some(
            annotations
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        );
        Ok(objects)
    }

    /// What checks a template by the image's own haproxy, with these members.
    ///
    /// # Errors
    /// Why the template makes no configuration.
    pub fn check(&self, members: &[Member], template: &Template) -> Result<Check, Error> {
        check::check(self, members, template)
    }

    fn assemble(&self, config: String, membership: Option<String>) -> Objects {
        Objects {
            config_map: pods::config_map(self, &config, membership),
            deployment: pods::deployment(self, &config),
            service: service(self),
            budget: guards::budget(&self.instance()),
            policy: policy(self),
            access: self.sidecar.map(|_| sidecar::access(self)),
            config,
        }
    }
}

/// Service port and members' port are the same number.
fn service(plan: &Plan<'_>) -> Service {
    let ports = plan.ports.iter().map(|port| ExposedPort {
        name: &port.name,
        number: port.number,
        target: port.number,
        node_port: port.at_nodes,
    });
    exposure::service(&plan.instance(), ports)
}

/// The balanced ports, which are one range, are public.
fn policy(plan: &Plan<'_>) -> NetworkPolicy {
    let balanced = plan.ports.first().zip(plan.ports.last());
    let balanced = balanced.map(|(first, last)| first.number..=last.number);
    let report = plan.sidecar.map(|_| plan.report_port());
    let internal = std::iter::once(plan.internal_port()).chain(report);
    guards::policy(&plan.instance(), balanced, internal)
}
