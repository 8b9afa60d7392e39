//! What the agents of a site read and write: `SIPCluster`, the part of metal3's `BareMetalHost` that placement needs,
//! and the networkData of a host; and the parsers that turn them into types which cannot be wrong.
//!
//! The serde types ([`SIPCluster`], [`BareMetalHost`]) are as loose as SIP's own schema, so that every manifest written
//! for SIP is still accepted by the API server. [`Cluster::parse`] and [`Host::parse`] are the doors: past them nothing
//! needs to be checked again, and what they refuse names the object, the field's path, the value and the rule.

mod bare_metal_host;
mod bounded;
mod cluster;
mod cluster_api;
mod crd;
mod fault;
#[cfg(test)]
mod fixtures;
mod host;
mod host_port;
mod lenient;
mod network_data;
mod network_secrets;
mod sip_cluster;
mod status;
mod tolerant;

pub mod annotations;
pub mod conditions;
pub mod events;
pub mod labels;

pub use bare_metal_host::{
    BareMetalHost, BareMetalHostSpec, BareMetalHostStatus, Bmc, ConsumerReference, HostCondition,
    Provisioning, SecretReference,
};
pub use cluster::{
    Auth, BadImage, Balance, BoundRole, Cluster, ClusterReference, Connector, ControlPlaneBalancer,
    DEFAULT_CLIENT, Expiry, Exposure, Github, GithubOrganization, GroupBinding, GroupSearch, HttpsUrl, Image,
    JumpHost, KUBELOGIN_REDIRECTS, Ldap, LdapAddress, MAX_PORTS_PER_RANGE, MAX_REPLICAS, MadePorts,
    ObjectName, OidcClient, Override, PortRange, PortSet, Provider, Resources, Role, Scaled, ScaledKind,
    Search, SecretKey, Service, Source, UpstreamOidc, UserSearch, WorkerBalancer,
    size::{MAX_PROVIDER_BYTES as PROVIDER_BYTES, stored as stored_bytes},
};
pub use cluster_api::{ClusterApiCluster, HOST_CLAIM, METAL3, Ownership, described as describe_consumer};
pub use crd::{custom_resource_definitions, to_yaml as crd_to_yaml};
pub use fault::{Fault, Invalid};
pub use host::{BmcAddress, Host};
pub use host_port::host_port;
pub use network_data::{KEY as NETWORK_DATA_KEY, NetworkData, SecretName};
pub use network_secrets::NetworkSecrets;

pub use sip_cluster::{
    Amount, AuthSpec, BmcSpec, ClusterApiSpec, ConnectorSpec, EmptySpec, ExpirySpec, GithubOrgSpec,
    GithubSpec, GroupSearchSpec, GroupSpec, JumpHostSpec, LdapSpec, LeftOut, LoadBalancerControlPlaneSpec,
    LoadBalancerWorkerSpec, NodeCount, NodeSet, OidcClientSpec, PortRangeSpec, ReplicasSpec, ResourcesSpec,
    SIPCluster, SIPClusterSpec, SecretKeySpec, Services, UpstreamOidcSpec, UserSearchSpec,
};
pub use status::{
    Applied, Counts, Drained, Endpoint, Member, MemberState, NotPreferred, Placement, RoleCount,
    SIPClusterStatus, State, TenantNodes,
};
pub use tolerant::TolerantCluster;
/// The words that the parsed types are made of; the scheduler has the same.
pub use vocabulary::{
    LabelKey, LabelValue, NetworkId, OperationalStatus, Operator, ProvisioningState, Requirement, RoleName,
    Selector,
};

/// Finalizer that keeps a SIPCluster until its hosts are released and its children are gone. Users' manifests carry it too.
pub const FINALIZER: &str = "sip.airship.airshipit.org/finalizer";
