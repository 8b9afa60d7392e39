//! `spec.clusterAPI`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Objects of Cluster API that the cluster agent keeps in step with this `SIPCluster`. Nothing else of them is written.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterApiSpec {
    /// By role of `nodes`, the object whose `spec.replicas` follows the role's `count.active`: up once hosts are labelled, down once the
    /// Machines on surplus hosts are the first that Cluster API deletes. It is in the namespace of the hosts, and its
    /// `Metal3MachineTemplate` selects the hosts of this `SIPCluster` in this role.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replicas: BTreeMap<String, ReplicasSpec>,
}

/// The object whose replicas follow a role; exactly one is named.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicasSpec {
    /// Name of a `MachineDeployment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_deployment: Option<String>,
    /// Name of a `KubeadmControlPlane`. Its replicas are odd: it is never set to an even number, or to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeadm_control_plane: Option<String>,
}
