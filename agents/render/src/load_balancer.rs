//! HAProxy in front of a cluster's API servers or workers: a Secret with its configuration, a Deployment, a Service, and
//! what guards its pods.

mod check;
mod config;
mod guards;
pub mod membership;
mod objects;
pub mod running;
mod servers;
mod sidecar;
pub mod template;

use std::net::IpAddr;

use api::{Balance, Cluster, ControlPlaneBalancer, Service as Entry, WorkerBalancer, annotations};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

pub use check::Check;
pub use sidecar::{Access, DRAIN_SECONDS, Sidecar};
use template::{Error, Template};

/// Key of the Secret, and file in the pod, that holds the configuration.
pub const CONFIG_FILE: &str = "haproxy.cfg";
/// Key of the Secret that holds the [`membership::Membership`] as JSON, where a sidecar reads it and no template has made the
/// configuration.
pub const MEMBERSHIP_FILE: &str = "membership.json";
/// Name of the socket, in the directory of the configuration, on which HAProxy's master takes orders.
pub const MASTER_SOCKET: &str = "master.sock";
/// Port of the tenant's API servers, and of the Service in front of them.
pub const API_SERVER_PORT: u16 = 6443;

/// Name of the pods' port on which they answer probes and tell metrics.
pub const INTERNAL_PORT_NAME: &str = "metrics";
/// Path on that port that answers 200 while HAProxy runs.
const HEALTH_PATH: &str = "/healthz";
/// Name of the pods' port on which the sidecar says what HAProxy runs.
pub const REPORT_PORT_NAME: &str = "config";
/// Path on the internal port that answers 200 while any member answers on any port, and 503 otherwise.
pub const MEMBERS_PATH: &str = "/members";

/// A host that is balanced to. Ordered by namespace and name, which together are unique in a site.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Member {
    /// Namespace of the BareMetalHost.
    pub namespace: String,
    /// Name of the BareMetalHost.
    pub name: String,
    /// Its address in the network that the load balancer's entry names.
    pub address: IpAddr,
}

/// Everything that one load balancer consists of. Apply the Secret and the access first: the pods need them.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    /// Holds the configuration under [`CONFIG_FILE`].
    pub secret: Secret,
    /// Runs HAProxy. Without a sidecar its pod template carries the configuration's hash, so that a change rolls out.
    pub deployment: Deployment,
    /// Leads to the pods, by node port.
    pub service: Service,
    /// Keeps people who empty nodes from taking all pods at once. `None` with fewer than two pods: it could only be in their
    /// way.
    pub budget: Option<PodDisruptionBudget>,
    /// Who may connect to the pods.
    pub policy: NetworkPolicy,
    /// What the sidecar may do; `None` without one.
    pub access: Option<Access>,
    /// The configuration as text.
    pub config: String,
}

impl Objects {
    /// SHA-256 of the configuration, in hexadecimal digits: by that pods say which one they run.
    #[must_use]
    pub fn config_digest(&self) -> String {
        objects::digest(&self.config)
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

/// How a member is known to be healthy.
#[derive(Clone, Copy, Debug)]
enum Health {
    /// `GET /readyz` over TLS answers 200.
    ApiServer,
    /// It accepts connections.
    Connect,
}

/// One balanced port: listener, Service port and the members' port are the same number.
#[derive(Clone, Debug)]
struct Port {
    name: String,
    number: u16,
    /// The port on the site's nodes; `None`: the API server picks one, or there is none.
    at_nodes: Option<u16>,
}

impl Port {
    /// Name of the backend that it leads to.
    fn backend(&self) -> String {
        format!("{}-backend", self.name)
    }
}

/// A load balancer without its members: what both kinds come down to.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    cluster: &'a Cluster,
    entry: &'a Entry,
    health: Health,
    balance: Balance,
    /// Whether members are told the client's address.
    proxy_protocol: bool,
    ports: Vec<Port>,
    sidecar: Option<&'a Sidecar>,
}

impl<'a> Plan<'a> {
    /// In front of API servers.
    #[must_use]
    pub fn control_plane(cluster: &'a Cluster, balancer: &'a ControlPlaneBalancer) -> Self {
        let port = Port {
            // SIP's name for it; users may refer to it.
            name: "http".to_owned(),
            number: API_SERVER_PORT,
            at_nodes: balancer.node_port().map(std::num::NonZeroU16::get),
        };
        Self {
            cluster,
            entry: balancer.service(),
            health: Health::ApiServer,
            balance: balancer.balance(),
            // API servers do not understand it.
            proxy_protocol: false,
            ports: vec![port],
            sidecar: None,
        }
    }

    /// In front of workers.
    #[must_use]
    pub fn worker(cluster: &'a Cluster, balancer: &'a WorkerBalancer) -> Self {
        let at_nodes = balancer.service().changes().exposure().has_node_ports();
        let ports = balancer.ports().ports().map(|port| Port {
            name: format!("port-{port}"),
            number: port.get(),
            at_nodes: at_nodes.then(|| port.get()),
        });
        Self {
            cluster,
            entry: balancer.service(),
            health: Health::Connect,
            balance: balancer.balance(),
            proxy_protocol: balancer.proxy_protocol(),
            ports: ports.collect(),
            sidecar: None,
        }
    }

    /// With what makes a running HAProxy follow its configuration. Without it, new pods start for every change.
    #[must_use]
    pub fn followed_by(self, sidecar: Option<&'a Sidecar>) -> Self {
        Self { sidecar, ..self }
    }

    /// The same for a tenant that has chosen otherwise what can be chosen.
    fn chosen_otherwise(&self) -> Self {
        let balance = match self.balance {
            Balance::RoundRobin => Balance::LeastConn,
            Balance::LeastConn => Balance::RoundRobin,
        };
        let proxy_protocol = match self.health {
            Health::ApiServer => false,
            Health::Connect => !self.proxy_protocol,
        };
        Self {
            balance,
            proxy_protocol,
            ..self.clone()
        }
    }

    /// Everything, with the built-in configuration.
    #[must_use]
    pub fn objects(&self, members: &[Member]) -> Objects {
        let members = &once_each(members);
        let membership = self.sidecar.map(|_| membership::of(self, members).to_string());
        self.objects_of(config::Config { plan: self, members }.to_string(), membership)
    }

    /// Everything, with the configuration that a template makes of these members. The Deployment says by which template it
    /// is, and which image has accepted that.
    ///
    /// # Errors
    /// Why the template makes none.
    pub fn objects_by(
        &self,
        members: &[Member],
        template: &Template,
        accepted_by: &str,
    ) -> Result<Objects, Error> {
        let mut objects = self.objects_of(template.config(self, &once_each(members))?, None);
        let said = [
            (annotations::TEMPLATE, template.digest()),
            (annotations::TEMPLATE_IMAGE, accepted_by),
        ];
        objects.deployment.metadata.annotations =
            Some(said.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        Ok(objects)
    }

    /// What checks a template by the image's own haproxy, with these members.
    ///
    /// # Errors
    /// Why the template makes no configuration.
    pub fn check(&self, members: &[Member], template: &Template) -> Result<Check, Error> {
        check::of(self, members, template)
    }

    fn objects_of(&self, config: String, membership: Option<String>) -> Objects {
        Objects {
            secret: objects::secret(self, &config, membership),
            deployment: objects::deployment(self, &config),
            service: objects::service(self),
            budget: guards::budget(self),
            policy: guards::policy(self),
            access: self.sidecar.map(|_| sidecar::access(self)),
            config,
        }
    }

    /// Port of the listener that answers probes (HAProxy itself, never the members behind it) and tells metrics. No Service
    /// leads there.
    fn internal_port(&self) -> u16 {
        const PREFERRED: u16 = 8404;
        self.free_port(PREFERRED)
    }

    /// Port on which the sidecar says what HAProxy runs.
    fn report_port(&self) -> u16 {
        self.free_port(self.internal_port().saturating_add(1))
    }

    /// The first port from this one on that is not balanced.
    fn free_port(&self, from: u16) -> u16 {
        let balanced = |candidate: &u16| self.ports.iter().any(|port| port.number == *candidate);
        // A range holds at most a thousand ports, so one is free well before the end.
        (from..=u16::MAX)
            .find(|candidate| !balanced(candidate))
            .unwrap_or(from)
    }
}

/// In order, each host once.
fn once_each(members: &[Member]) -> Vec<&Member> {
    let mut members: Vec<_> = members.iter().collect();
    members.sort_unstable();
    members.dedup_by_key(|member| (&member.namespace, &member.name));
    members
}

#[cfg(test)]
mod tests;
