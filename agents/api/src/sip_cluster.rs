//! The `SIPCluster` resource as users write it. Never tighter than SIP's and treasuremap's schema: what is nonsense is
//! refused by [`crate::Cluster::parse`] with a condition, not by the API server.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::status::SIPClusterStatus;

mod amount;
mod auth;
mod cluster_api;
mod left_out;

pub use amount::Amount;
pub use auth::{
    AuthSpec, ConnectorSpec, ExpirySpec, GithubOrgSpec, GithubSpec, GroupSearchSpec, GroupSpec, LdapSpec,
    OidcClientSpec, SecretKeySpec, UpstreamOidcSpec, UserSearchSpec,
};
pub use cluster_api::{ClusterApiSpec, ReplicasSpec};
pub use left_out::{EmptySpec, LeftOut};

#[expect(clippy::duplicated_attributes, reason = "printer columns of the same type")]
/// What a tenant requests: hosts by role, and the services in front of them.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "airship.airshipit.org",
    version = "v1",
    kind = "SIPCluster",
    plural = "sipclusters",
    shortname = "sip",
    category = "airship",
    namespaced,
    status = "SIPClusterStatus",
    derive = "PartialEq",
    derive = "Default",
    annotation("airshipit.org/status-check", r#"[{"status":"Current","condition":"@.status.state==\"Ready\""},{"status":"InProgress","condition":"@.status.state==\"Progressing\""},{"status":"Failed","condition":"@.status.state==\"Stalled\""}]"#),
    doc = "A tenant's cluster: which bare-metal hosts it holds, and the services in front of them.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(
        name = "Control-Plane",
        type_ = "string",
        json_path = ".status.counts.controlPlane",
        description = "Control-plane members bound / wanted"
    ),
    printcolumn(
        name = "Workers",
        type_ = "string",
        json_path = ".status.counts.workers",
        description = "Members of all roles but ControlPlane, bound / wanted"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct SIPClusterSpec {
    /// Hosts to place, by role. Load balancers use the roles `ControlPlane` and `Worker`; any valid label value is accepted as a role.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, NodeSet>,
    /// Services in front of the hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<Services>,
    /// Cluster API objects whose `spec.replicas` the cluster agent sets. Default: it sets none.
    #[serde(default, rename = "clusterAPI", skip_serializing_if = "Option::is_none")]
    pub cluster_api: Option<ClusterApiSpec>,
    /// What the object of the API server has and this one does not.
    #[serde(skip)]
    pub left_out: LeftOut,
}

/// The hosts that one role wants.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSet {
    /// Required. Selects `BareMetalHost`s for this role by their labels; `{}` selects every host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Label of a host whose value is its failure domain: at most one host of this role per value. Without it there is no such limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_key: Option<String>,
    /// How many hosts the role wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<NodeCount>,
    /// How long `operationalStatus` of a host of this role may be `error` before the host is replaced, for example `30m`; `""` means 10
    /// minutes. Without this field, a host is never replaced for that alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_after_error: Option<String>,
}

/// Number of hosts of a role: the role wants the sum.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCount {
    /// Hosts in use. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<i64>,
    /// Further hosts as spares for upgrades: the role gets `active` + `standby` hosts, all claimed and labelled. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<i64>,
}

/// Services in front of a cluster's hosts. Each list may hold several entries.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Services {
    /// Load balancers in front of the tenant's API servers, port 6443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer_control_plane: Option<Vec<LoadBalancerControlPlaneSpec>>,
    /// Load balancers in front of the workers, for a range of ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer_worker: Option<Vec<LoadBalancerWorkerSpec>>,
    /// Jump hosts: ssh access to the cluster's nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jump_host: Option<Vec<JumpHostSpec>>,
    /// OIDC identity providers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Vec<AuthSpec>>,
}

/// Resource requests and limits of a container, as in a pod's manifest: amounts by the name of the resource.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourcesSpec {
    /// Requests, such as `cpu: 100m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<BTreeMap<String, Amount>>,
    /// Limits, such as `memory: 512Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<BTreeMap<String, Amount>>,
}

/// A load balancer in front of the tenant's API servers.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerControlPlaneSpec {
    /// Distinguishes the entry from others of its kind, and is part of the names of its objects: lowercase letters, digits and '-', not only
    /// digits. Default: the agent identifies the entry by its ports, and the names of the objects of the second and later entries end with
    /// the index of the entry, or with the first unused number if other objects have that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Required. Container image with HAProxy 2.2 or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// nodeSelector of the pods: they run only on nodes of the site's cluster that have all these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_labels: Option<BTreeMap<String, String>>,
    /// Required. `id` of the network, in the hosts' networkData, whose address the load balancer connects to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_interface_id: Option<String>,
    /// IP address at which users reach the service, such as that of a node or of a load balancer in front of the site. The agents only
    /// publish it in `status.endpoints`: they do not assign it, and it is not `spec.clusterIP` of the Service.
    #[serde(default, rename = "clusterIP", skip_serializing_if = "Option::is_none")]
    pub cluster_ip: Option<String>,
    /// Number of pods, 0 to 32. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// Resource requests and limits of the container, instead of the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesSpec>,
    /// Multus networks that the pods join: names of `NetworkAttachmentDefinition`s in the namespace of the SIPCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_attachments: Option<Vec<String>>,
    /// Fields of the Service: `service.metadata.labels` and `.annotations`, `service.spec.type` (`NodePort` or `LoadBalancer`),
    /// `.loadBalancerClass`, `.allocateLoadBalancerNodePorts` and `.externalTrafficPolicy`.
    #[serde(
        default,
        rename = "override",
        deserialize_with = "crate::bounded::shallow",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "crate::crd::any_object")]
    pub changes: Option<Value>,
    /// How new connections are distributed over the members that answer: `roundrobin`, in turn, or `leastconn`, to the member with the fewest
    /// connections. Default: `roundrobin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
    /// Node port that leads to port 6443 of the API servers. Default: a node port that the site's API server assigns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<i64>,
}

/// A load balancer in front of the workers. Service port, node port and the workers' port are the same number.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerWorkerSpec {
    /// Distinguishes the entry from others of its kind, and is part of the names of its objects: lowercase letters, digits and '-', not only
    /// digits. Default: the agent identifies the entry by its ports, and the names of the objects of the second and later entries end with
    /// the index of the entry, or with the first unused number if other objects have that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Required. Container image with HAProxy 2.2 or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// nodeSelector of the pods: they run only on nodes of the site's cluster that have all these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_labels: Option<BTreeMap<String, String>>,
    /// Required. `id` of the network, in the hosts' networkData, whose address the load balancer connects to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_interface_id: Option<String>,
    /// IP address at which users reach the service, such as that of a node or of a load balancer in front of the site. The agents only
    /// publish it in `status.endpoints`: they do not assign it, and it is not `spec.clusterIP` of the Service.
    #[serde(default, rename = "clusterIP", skip_serializing_if = "Option::is_none")]
    pub cluster_ip: Option<String>,
    /// Number of pods, 0 to 32. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// Resource requests and limits of the container, instead of the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesSpec>,
    /// Multus networks that the pods join: names of `NetworkAttachmentDefinition`s in the namespace of the SIPCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_attachments: Option<Vec<String>>,
    /// Fields of the Service: `service.metadata.labels` and `.annotations`, `service.spec.type` (`NodePort` or `LoadBalancer`),
    /// `.loadBalancerClass`, `.allocateLoadBalancerNodePorts` and `.externalTrafficPolicy`.
    #[serde(
        default,
        rename = "override",
        deserialize_with = "crate::bounded::shallow",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "crate::crd::any_object")]
    pub changes: Option<Value>,
    /// How new connections are distributed over the members that answer: `roundrobin`, in turn, or `leastconn`, to the member with the fewest
    /// connections. Default: `roundrobin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
    /// Whether each connection to a worker begins with a header of the PROXY protocol, version 2, which has the client's address. The
    /// programs that listen on these ports of the workers must accept it. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<bool>,
    /// Ignored: `nodePortRange` sets the ports. Manifests of Airship SIP may have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<i64>,
    /// Required. Ports that are balanced, at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port_range: Option<PortRangeSpec>,
}

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PortRangeSpec {
    /// Required. First port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<i64>,
    /// Required. Last port, at least `start`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<i64>,
}

/// SSH access to the cluster's nodes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JumpHostSpec {
    /// Distinguishes the entry from others of its kind, and is part of the names of its objects: lowercase letters, digits and '-', not only
    /// digits. Default: the agent identifies the entry by its node port, and the names of the objects of the second and later entries end
    /// with the index of the entry, or with the first unused number if other objects have that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Required. Container image with sshd of OpenSSH 7.6 or later, a shell, and the user `ubuntu` with uid 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// nodeSelector of the pods: they run only on nodes of the site's cluster that have all these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_labels: Option<BTreeMap<String, String>>,
    /// Required. `id` of the network, in the hosts' networkData, whose address ssh connects to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_interface_id: Option<String>,
    /// IP address at which users reach the service, such as that of a node or of a load balancer in front of the site. The agents only
    /// publish it in `status.endpoints`: they do not assign it, and it is not `spec.clusterIP` of the Service.
    #[serde(default, rename = "clusterIP", skip_serializing_if = "Option::is_none")]
    pub cluster_ip: Option<String>,
    /// Number of pods, 0 to 32. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// Resource requests and limits of the container, instead of the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesSpec>,
    /// Multus networks that the pods join: names of `NetworkAttachmentDefinition`s in the namespace of the SIPCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_attachments: Option<Vec<String>>,
    /// Fields of the Service: `service.metadata.labels` and `.annotations`, `service.spec.type` (`NodePort` or `LoadBalancer`),
    /// `.loadBalancerClass`, `.allocateLoadBalancerNodePorts` and `.externalTrafficPolicy`.
    #[serde(
        default,
        rename = "override",
        deserialize_with = "crate::bounded::shallow",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "crate::crd::any_object")]
    pub changes: Option<Value>,
    /// Node port that leads to sshd. Default: a node port that the site's API server assigns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port: Option<i64>,
    /// Power control of the cluster's hosts through their BMCs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<BmcSpec>,
    /// Public keys that may log in, one `authorized_keys` line each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_authorized_keys: Option<Vec<String>>,
    /// Public keys of certificate authorities, one line each. A user with a certificate that one of them signed can log in if the certificate
    /// has the principal `ubuntu` or the name of the SIPCluster.
    #[serde(default, rename = "sshUserCA", skip_serializing_if = "Option::is_none")]
    pub ssh_user_ca: Option<Vec<String>>,
    /// Secret in the SIPCluster's namespace whose values are private keys for the nodes. A value under the key `known_hosts` is not a private
    /// key: it holds the host keys of the nodes.
    #[serde(
        default,
        rename = "nodeSSHPrivateKeys",
        skip_serializing_if = "Option::is_none"
    )]
    pub node_ssh_private_keys: Option<String>,
    /// Secret in the SIPCluster's namespace with a kubeconfig under the key `value`, as Cluster API writes it. `kubectl` on the
    /// jump host uses it. The cluster agent also reads and drains Nodes with it if no entry of `auth` has a `kubeconfigSecret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret: Option<String>,
}

/// Power control of the cluster's hosts through their BMCs.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BmcSpec {
    /// Whether power control reaches BMCs through the proxy of the jump-host agent's option `--bmc-proxy`, which the site administrator sets.
    /// Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<bool>,
}
