//! A load balancer without its members: what an entry of either section asks for.

use api::{Balance, Cluster, ControlPlaneBalancer, Image, Service as Entry, WorkerBalancer, labels};

use super::interface::API_SERVER_PORT;
use crate::metadata::Instance;

/// The container that makes a running HAProxy follow its configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sidecar {
    /// Image of the container.
    pub image: Image,
}

/// How a member is known to be healthy.
#[derive(Clone, Copy, Debug)]
pub(super) enum Health {
    /// `GET /readyz` over TLS answers 200.
    ApiServer,
    /// The port accepts connections.
    Connect,
}

/// One balanced port: listener, Service port and the members' port are the same number.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) number: u16,
    /// The port on the site's nodes; `None`: the API server picks one, or there is none.
    pub(super) at_nodes: Option<u16>,
}

impl Port {
    /// Name of the backend that it leads to.
    pub(super) fn backend(&self) -> String {
        format!("{}-backend", self.name)
    }
}

/// A load balancer without its members, of either kind.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) entry: &'a Entry,
    pub(super) health: Health,
    pub(super) balance: Balance,
    /// Whether members receive the client's address.
    pub(super) proxy_protocol: bool,
    pub(super) ports: Vec<Port>,
    pub(super) sidecar: Option<&'a Sidecar>,
}

impl<'a> Plan<'a> {
    /// A load balancer for API servers.
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

    /// A load balancer for workers.
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

    /// The same with a sidecar that makes a running HAProxy follow its configuration. Without it, new pods start for every change.
    #[must_use]
    pub fn with_sidecar(self, sidecar: Option<&'a Sidecar>) -> Self {
        Self { sidecar, ..self }
    }

    /// The same with the other values of what the tenant can choose.
    pub(super) fn with_other_choices(&self) -> Self {
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

    /// Names, labels and owner of its objects.
    pub(super) fn instance(&self) -> Instance<'a> {
        Instance::new(
            self.cluster,
            self.entry,
            labels::COMPONENT_LOAD_BALANCER,
            labels::NAME_HAPROXY,
        )
    }

    /// Port of the listener that answers probes (HAProxy itself, never the members behind it) and metrics requests. No Service
    /// leads there.
    pub(super) fn internal_port(&self) -> u16 {
        const PREFERRED_PORT: u16 = 8404;
        self.free_port(PREFERRED_PORT)
    }

    /// Port on which the sidecar reports what HAProxy runs.
    pub(super) fn report_port(&self) -> u16 {
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
