//! A jump host: what its entry asks for, and what it leads to.

use std::net::{IpAddr, SocketAddr};

use api::{Cluster, Image, JumpHost, labels};
use http::uri::Authority as Address;

use super::authorized_keys::{Authority, AuthorizedKey};
use super::host_keys::HostKeys;
use super::nodes::Node;
use crate::metadata::Instance;

/// Where the pods reach `PowerService`.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerService {
    /// Host and port of the service.
    pub address: Address,
    /// The CA certificates that its certificate is issued from (PEM), where they are known.
    pub ca: Option<String>,
    /// Namespace of its pods.
    pub namespace: String,
    /// Value of the label [`labels::NAME`] on its pods.
    pub app: String,
}

impl PowerService {
    pub(super) fn port(&self) -> u16 {
        self.address.port_u16().unwrap_or(443)
    }
}

/// Everything that a jump host is rendered from.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// The SIPCluster of the jump host.
    pub cluster: &'a Cluster,
    /// Entry of `services.jumpHost`.
    pub jump_host: &'a JumpHost,
    /// The image with our programs.
    pub tools: &'a Image,
    /// The `PowerService` that the command `host` calls.
    pub power: &'a PowerService,
    /// Keys that may log in.
    pub keys: Vec<AuthorizedKey>,
    /// Authorities whose certificates may log in.
    pub authorities: Vec<Authority>,
    /// Host keys of the jump host.
    pub host_keys: &'a HostKeys,
    /// The nodes that it leads to.
    pub nodes: Vec<Node>,
    /// Where the tenant's API server is reached besides its nodes, as far as that is known.
    pub api_endpoints: Vec<SocketAddr>,
    /// Names of the cluster's own load balancers in front of its API server.
    pub api_balancers: Vec<String>,
    /// Where the API server of the site is reached.
    pub site_api_servers: &'a [SocketAddr],
    /// Name servers of the site that are no pods of its DNS.
    pub name_servers: &'a [IpAddr],
}

impl Plan<'_> {
    /// Names, labels and owner of its objects.
    #[must_use]
    pub fn instance(&self) -> Instance<'_> {
        instance(self.cluster, self.jump_host)
    }
}

/// Names, labels and owner of a jump host's objects.
#[must_use]
pub fn instance<'a>(cluster: &'a Cluster, jump_host: &'a JumpHost) -> Instance<'a> {
    Instance::new(cluster, jump_host.service(), labels::JUMP_HOST, labels::JUMP_HOST)
}
