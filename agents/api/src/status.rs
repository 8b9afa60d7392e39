//! The status of a `SIPCluster`. Several agents write it with server-side apply, each its own entries; so every list is
//! a map with keys, and nothing is required. A field that cannot be read counts as absent, and an entry of a list too; the others are read. A
//! placement that cannot be read is an error: it is not the same as none.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lenient;

/// Observed state of a SIPCluster.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SIPClusterStatus {
    /// Generation of the spec that the cluster agent last acted on.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    pub observed_generation: Option<i64>,
    /// When the cluster agent first acted on `observedGeneration`; for a SIPCluster that is being deleted, when it released the last host.
    /// The timeout for the answers of the other agents starts then.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    pub observed_since: Option<Time>,
    /// Conditions of the cluster. Every type has one owner.
    #[serde(
        default,
        deserialize_with = "lenient::entries",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Which hosts the cluster holds. An agent acts on a claim only if it is here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// What each service agent has applied.
    #[serde(
        default,
        deserialize_with = "lenient::entries",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["service"]))]
    pub applied: Vec<Applied>,
    /// Confirmation by the load-balancer agent that no pod of any load balancer routes to hosts that are being released, up to `revision`.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    pub drained: Option<Drained>,
    /// Where the cluster's services are reached.
    #[serde(
        default,
        deserialize_with = "lenient::entries",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub endpoints: Vec<Endpoint>,
    /// What the cluster agent knows of the Nodes of the tenant's cluster, if the spec names a kubeconfig (`kubeconfigSecret`).
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant_nodes: Option<TenantNodes>,
    /// Members per role, for `kubectl get`.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    pub counts: Option<Counts>,
    /// Members per role, for programs.
    #[serde(
        default,
        deserialize_with = "lenient::entries",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["role"]))]
    pub roles: Vec<RoleCount>,
    /// What the conditions state in one word, for programs that cannot read a condition, such as `airshipctl cluster status`.
    #[serde(
        default,
        deserialize_with = "lenient::field",
        skip_serializing_if = "Option::is_none"
    )]
    pub state: Option<State>,
}

/// What the conditions `Ready` and `Stalled` state together.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum State {
    /// `Ready` is `True`.
    Ready,
    /// `Ready` is not `True`, and that can change without an action of a user.
    Progressing,
    /// `Ready` is not `True`, and `Stalled` is `True`.
    Stalled,
}

/// The members of one role.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RoleCount {
    /// The role.
    pub role: String,
    /// Number that the spec sets; 0 for a role that it no longer names.
    #[schemars(with = "i64", range(min = 0))]
    pub wanted: u32,
    /// Number of members that are claimed and that the scheduler has not observed with the labels of the cluster yet.
    #[schemars(with = "i64", range(min = 0))]
    pub claimed: u32,
    /// Number of members that the scheduler has observed with the labels of the cluster.
    #[schemars(with = "i64", range(min = 0))]
    pub bound: u32,
    /// Number of members that are being released.
    #[schemars(with = "i64", range(min = 0))]
    pub releasing: u32,
}

/// The placement that the scheduler decided, as last seen by the cluster agent.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// The scheduler raises it when it detects that its ledger was lost or restored. An agent never acts on a placement with a lower epoch
    /// than it has observed.
    #[schemars(with = "i64", range(min = 0))]
    pub epoch: u64,
    /// Revision of the cluster's record in the ledger; comparable only within one epoch.
    #[schemars(with = "i64", range(min = 0))]
    pub revision: u64,
    /// Generation of the spec for which the scheduler made the placement.
    pub generation: i64,
    /// Hosts that the cluster holds, by namespace and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["namespace", "name"]))]
    pub members: Vec<Member>,
    /// Highest revision at which the scheduler released addresses that no entry of `members` has any more: those of a deleted host that was
    /// recreated under the same name, or those that the host of a member has lost. No load balancer routes to them once `drained.revision` is
    /// at least this value. Absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>", range(min = 0))]
    pub former_release: Option<u64>,
    /// When `formerRelease` was last set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_since: Option<Time>,
}

/// One host that the cluster holds.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Namespace of the BareMetalHost.
    pub namespace: String,
    /// Name of the BareMetalHost.
    pub name: String,
    /// `metadata.uid` of the BareMetalHost: a re-created host is another host.
    pub uid: String,
    /// Role that the host serves.
    pub role: String,
    /// Number of the member in its role, from 0. It does not change, and a replacement gets the number of the member that it replaces, so
    /// both have it until the release ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>", range(min = 0, max = 4_294_967_295_i64))]
    pub ordinal: Option<u32>,
    /// Value of the role's topology key on the host; absent when the role has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// `Claimed`: the scheduler has not observed the labels on the host yet. `Bound`: it has. `Releasing`: the host is being released, and is
    /// not free yet.
    pub state: MemberState,
    /// The value of `placement.revision` when the member came into this state. If the member is releasing, no load balancer routes to it once
    /// `drained.revision` is at least this value.
    #[schemars(with = "i64", range(min = 0))]
    pub revision: u64,
    /// When the member came into this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// When the member became one to replace: its host failed, or a user requested the replacement of a host that works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_since: Option<Time>,
    /// The member that this one replaces, as `namespace/name`; absent once this one is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// Why the member is being released: `surplus`, `failed` (also where a user requested the replacement of a member that works), `gone`,
    /// `deleted` or `orphaned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_reason: Option<String>,
    /// While the member is being released and its host is in use: the Machine on the host, as `namespace/name`, which the cluster agent has
    /// marked so that Cluster API deletes it first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

/// How far a claim on a host has come.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub enum MemberState {
    /// The scheduler has decided; it has not observed the labels yet.
    Claimed,
    /// Observed with the labels of the cluster; Cluster API may use it.
    Bound,
    /// Being released; not free yet.
    Releasing,
}

/// What a service agent has applied to the API server.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// Name of the service's object, for example `loadbalancer-worker-wordpress`.
    pub service: String,
    /// Epoch of the placement that was applied.
    #[schemars(with = "i64", range(min = 0))]
    pub epoch: u64,
    /// Revision of the newest claim or release in the placement that was applied.
    #[schemars(with = "i64", range(min = 0))]
    pub revision: u64,
    /// Generation of the spec that was applied.
    pub generation: i64,
}

/// Up to which release no pod of any load balancer routes to a host. Load balancers that exist count, whether or not the spec names them.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drained {
    /// Epoch of the placement.
    #[schemars(with = "i64", range(min = 0))]
    pub epoch: u64,
    /// Highest revision for which that holds: no pod routes to a releasing member whose `members[].revision` is this or lower. It is not
    /// compared with `placement.revision`.
    #[schemars(with = "i64", range(min = 0))]
    pub revision: u64,
}

impl Drained {
    /// Whether it holds for a release of this revision in a placement of this epoch.
    #[must_use]
    pub fn covers(self, epoch: u64, released: u64) -> bool {
        self.epoch == epoch && self.revision >= released
    }
}

/// What is known of the Nodes of a tenant's cluster.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantNodes {
    /// Why the Nodes of the members are not known. While it is set, load balancers treat all members alike, and hosts that leave may be
    /// released before their Nodes are drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Members to which load balancers open connections only if no other member answers, since their Node is not ready. If no Node of a role
    /// is ready, the list has no member of that role: load balancers then treat all of them alike.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["namespace", "name"]))]
    pub not_preferred: Vec<NotPreferred>,
}

impl TenantNodes {
    /// Members that `notPreferred` has at most.
    pub const MAX_NOT_PREFERRED: usize = 64;
    /// Bytes of `problem`, at most.
    pub const MAX_PROBLEM_BYTES: usize = 1024;
}

/// A member whose Node is not ready.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotPreferred {
    /// Namespace of the BareMetalHost.
    pub namespace: String,
    /// Name of the BareMetalHost.
    pub name: String,
    /// `metadata.uid` of the BareMetalHost.
    pub uid: String,
    /// Name of the Node.
    pub node: String,
    /// Reason of the condition `Ready` of the Node when the agent observed that the Node is not ready.
    pub reason: String,
}

/// Where a service of the cluster is reached.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Name, unique within the cluster, for example `loadbalancer-controlplane-wordpress` or `loadbalancer-worker-wordpress:30003`.
    pub name: String,
    /// IP address or host name. Absent while none is known: any node of the site answers on the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Port at `address`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// Port on the site's nodes, if it differs from `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<i32>,
    /// Protocol: `https`, `tcp` or `ssh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// OIDC issuer URL, on an identity provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// OIDC client id, on an identity provider.
    #[serde(default, rename = "clientID", skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// No agent sets this: `caBundle` has the CA certificates themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret: Option<String>,
    /// CA certificates (PEM) that clients must trust to connect to an identity provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
    /// On a jump host: its public ssh host keys in base64, by algorithm, for `known_hosts`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_keys: BTreeMap<String, String>,
    /// On a jump host: the SHA-256 fingerprints of its host keys, by algorithm, as ssh prints them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_key_fingerprints: BTreeMap<String, String>,
}

/// Members bound of members wanted, such as `3/3`, for `kubectl get`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Members of the role `ControlPlane`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<String>,
    /// Members of all other roles together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<String>,
}
