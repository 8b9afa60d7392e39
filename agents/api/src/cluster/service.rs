//! The services of a cluster: load balancers, jump hosts, identity providers.

mod exposure;
mod fields;
mod parse;
mod resources;
mod unique_names;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::str::FromStr;

use vocabulary::{LabelKey, LabelValue, NetworkId};

use super::auth::Provider;
use super::names::{self, DesiredEntry, MadePorts, Takeover};
use super::ports::PortRange;

pub use exposure::{Exposure, Override};
pub(super) use parse::parse;
pub use resources::Resources;

/// Most pods that one service may have, as in the OpenStack operators.
pub const MAX_REPLICAS: u8 = 32;

/// A container image: not empty, no white space, no control characters.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Image(String);

/// Name of a service's objects (Deployment, Service, Secret, …): a DNS label, so also a valid label value.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectName(String);

macro_rules! text {
    ($($type:ident)*) => { $(
        impl $type {
            /// The text as it is written.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )* };
}

text!(Image ObjectName);

/// What the names of load balancers' objects begin with, by SIP.
pub(super) const CONTROL_PLANE: &str = "loadbalancer-controlplane";
pub(super) const WORKER: &str = "loadbalancer-worker";
/// The same of jump hosts.
pub(super) const JUMP_HOST: &str = "jumphost";
/// The same of identity providers.
pub(super) const AUTH: &str = "auth";

/// SIP's name of the objects of an entry: from the second of a kind on with its index.
fn indexed(prefix: &str, cluster: &str, index: usize) -> String {
    match index {
        0 => format!("{prefix}-{cluster}"),
        index => format!("{prefix}-{cluster}-{index}"),
    }
}

impl ObjectName {
    /// The name of an existing object, which the API server has accepted.
    pub(super) fn made(name: &str) -> Self {
        Self(name.to_owned())
    }
}

/// Gives the entries of a kind the names of the objects that were made for them.
pub(super) fn keep_names<'a>(
    (prefix, cluster, takeover): (&str, &str, Takeover),
    entries: impl Iterator<Item = (&'a mut Service, BTreeSet<u16>)>,
    made: &MadePorts,
) {
    let made = made.iter().filter(|(name, _)| name.starts_with(prefix));
    let made: MadePorts = made.map(|(name, ports)| (name.clone(), ports.clone())).collect();
    let (mut services, mut wanted) = (Vec::new(), Vec::new());
    for (service, ports) in entries {
        wanted.push(DesiredEntry {
            name: service.object_name.clone(),
            is_named: service.is_named,
            ports,
        });
        services.push(service);
    }
    let by_index = |index| ObjectName(indexed(prefix, cluster, index));
    let by_index: Vec<_> = (0..wanted.len() + made.len()).map(by_index).collect();
    let names = names::assign(&wanted, &by_index, &made, takeover);
    for (service, name) in services.into_iter().zip(names) {
        service.object_name = name;
    }
}

impl FromStr for Image {
    type Err = BadImage;

    fn from_str(text: &str) -> Result<Self, BadImage> {
        if text.is_empty() || text.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return Err(BadImage);
        }
        Ok(Self(text.to_owned()))
    }
}

impl Image {
    /// The image's tag, if a label can have it as a value; `None` for an image that is named by its digest alone.
    #[must_use]
    pub fn version(&self) -> Option<LabelValue> {
        let (name, _) = self.0.split_once('@').unwrap_or((&self.0, ""));
        // A colon before the last slash is that of a registry's port.
        let (_, last) = name.rsplit_once('/').unwrap_or(("", name));
        let (_, tag) = last.split_once(':').filter(|(_, tag)| !tag.is_empty())?;
        tag.parse().ok()
    }
}

/// The text is not the name of an image.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("must not be empty, nor contain white space or control characters")]
pub struct BadImage;

/// What every entry of every section has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Service {
    object_name: ObjectName,
    /// Whether the spec sets the name.
    is_named: bool,
    image: Image,
    node_labels: BTreeMap<LabelKey, LabelValue>,
    network_id: NetworkId,
    cluster_ip: Option<IpAddr>,
    replicas: u8,
    resources: Option<Resources>,
    network_attachments: Vec<String>,
    changes: Override,
}

impl Service {
    /// Name of its objects, unique among the services of the cluster.
    #[must_use]
    pub fn object_name(&self) -> &ObjectName {
        &self.object_name
    }

    /// Container image.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Labels that a node of the site needs to run the pods. Empty: any node.
    #[must_use]
    pub fn node_labels(&self) -> &BTreeMap<LabelKey, LabelValue> {
        &self.node_labels
    }

    /// Network of the hosts that the service connects to.
    #[must_use]
    pub fn network_id(&self) -> &NetworkId {
        &self.network_id
    }

    /// Address under which users reach the service.
    #[must_use]
    pub fn cluster_ip(&self) -> Option<IpAddr> {
        self.cluster_ip
    }

    /// Number of pods, at most [`MAX_REPLICAS`].
    #[must_use]
    pub fn replicas(&self) -> u8 {
        self.replicas
    }

    /// Requests and limits of the container; `None`: the agent's defaults.
    #[must_use]
    pub fn resources(&self) -> Option<&Resources> {
        self.resources.as_ref()
    }

    /// Names of the `NetworkAttachmentDefinition`s, in the SIPCluster's namespace, of networks that the pods join.
    #[must_use]
    pub fn network_attachments(&self) -> &[String] {
        &self.network_attachments
    }

    /// What the spec changes in the Service.
    #[must_use]
    pub fn changes(&self) -> &Override {
        &self.changes
    }
}

/// Which of the members that answer gets a connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Balance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The member with the fewest connections.
    LeastConn,
}

impl Balance {
    /// The value in the spec, which is also HAProxy's name of the algorithm.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RoundRobin => "roundrobin",
            Self::LeastConn => "leastconn",
        }
    }
}

/// A load balancer in front of the API servers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ControlPlaneBalancer {
    service: Service,
    balance: Balance,
    node_port: Option<NonZeroU16>,
}

/// A load balancer in front of the workers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WorkerBalancer {
    service: Service,
    balance: Balance,
    proxy_protocol: bool,
    ports: PortRange,
}

/// An ssh entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JumpHost {
    service: Service,
    node_port: Option<NonZeroU16>,
    bmc_proxy: bool,
    ssh_authorized_keys: Vec<String>,
    ssh_user_ca: Vec<String>,
    node_ssh_private_keys: Option<String>,
    kubeconfig_secret: Option<String>,
}

/// An identity provider.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Auth {
    service: Service,
    node_port: Option<NonZeroU16>,
    ca_secret: Option<String>,
    provider: Provider,
}

macro_rules! service {
    ($($type:ident)*) => { $(
        impl $type {
            /// What it has in common with every other service.
            #[must_use]
            pub fn service(&self) -> &Service {
                &self.service
            }
        }
    )* };
}

macro_rules! node_port {
    ($($type:ident)*) => { $(
        impl $type {
            /// Port on the site's nodes; `None`: the API server picks one.
            #[must_use]
            pub fn node_port(&self) -> Option<NonZeroU16> {
                self.node_port
            }
        }
    )* };
}

macro_rules! balance {
    ($($type:ident)*) => { $(
        impl $type {
            /// Which member gets a connection.
            #[must_use]
            pub fn balance(&self) -> Balance {
                self.balance
            }
        }
    )* };
}

service!(ControlPlaneBalancer WorkerBalancer JumpHost Auth);
balance!(ControlPlaneBalancer WorkerBalancer);
node_port!(ControlPlaneBalancer JumpHost Auth);

macro_rules! entry_mut {
    ($($type:ident)*) => { $(
        impl $type {
            pub(super) fn entry_mut(&mut self) -> (&mut Service, BTreeSet<u16>) {
                let ports = self.node_port.map(NonZeroU16::get).into_iter().collect();
                (&mut self.service, ports)
            }
        }
    )* };
}

entry_mut!(ControlPlaneBalancer JumpHost Auth);

impl WorkerBalancer {
    pub(super) fn entry_mut(&mut self) -> (&mut Service, BTreeSet<u16>) {
        let ports = self.ports.ports().map(NonZeroU16::get).collect();
        (&mut self.service, ports)
    }

    /// Ports that are balanced: service port, node port and the workers' port are the same number.
    #[must_use]
    pub fn ports(&self) -> PortRange {
        self.ports
    }

    /// Whether workers receive the client's address, by version 2 of the PROXY protocol.
    #[must_use]
    pub fn proxy_protocol(&self) -> bool {
        self.proxy_protocol
    }
}

impl JumpHost {
    /// Whether BMCs are reached through a proxy.
    #[must_use]
    pub fn bmc_proxy(&self) -> bool {
        self.bmc_proxy
    }

    /// Lines for `authorized_keys`; whether each is a key on one line is for the jump host agent to check.
    #[must_use]
    pub fn ssh_authorized_keys(&self) -> &[String] {
        &self.ssh_authorized_keys
    }

    /// Public keys of certificate authorities; whether each is a key on one line is for the jump host agent to check.
    #[must_use]
    pub fn ssh_user_ca(&self) -> &[String] {
        &self.ssh_user_ca
    }

    /// Name of the Secret with private keys for the nodes.
    #[must_use]
    pub fn node_ssh_private_keys(&self) -> Option<&str> {
        self.node_ssh_private_keys.as_deref()
    }

    /// Name of the Secret with a kubeconfig for the tenant's cluster.
    #[must_use]
    pub fn kubeconfig_secret(&self) -> Option<&str> {
        self.kubeconfig_secret.as_deref()
    }
}

impl Auth {
    /// Name of the Secret with the CA.
    #[must_use]
    pub fn ca_secret(&self) -> Option<&str> {
        self.ca_secret.as_deref()
    }

    /// What it is to do.
    #[must_use]
    pub fn provider(&self) -> &Provider {
        &self.provider
    }
}

/// The sections that parsed. Not to be used when there was a fault.
#[derive(Default)]
pub(super) struct Parsed {
    pub(super) load_balancers_control_plane: Vec<ControlPlaneBalancer>,
    pub(super) load_balancers_worker: Vec<WorkerBalancer>,
    pub(super) jump_hosts: Vec<JumpHost>,
    pub(super) auth: Vec<Auth>,
}
