//! `spec.clusterAPI`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Cluster API objects whose `spec.replicas` the cluster agent sets. It writes no other field of them.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterApiSpec {
    /// By role of `nodes`, the object whose `spec.replicas` the cluster agent sets to `count.active` of the role. It raises the number after
    /// the new hosts are labelled, and lowers it after it has marked the Machines on surplus hosts so that Cluster API deletes them first.
    /// The object is in the namespace of the hosts, and its `Metal3MachineTemplate` selects the hosts of this `SIPCluster` in this role.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replicas: BTreeMap<String, ReplicasSpec>,
}

/// The object whose replicas the cluster agent sets; exactly one is named.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicasSpec {
    /// Name of a `MachineDeployment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_deployment: Option<String>,
    /// Name of a `KubeadmControlPlane`. The agent never sets its replicas to an even number or to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeadm_control_plane: Option<String>,
}
