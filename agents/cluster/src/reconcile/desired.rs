//! A checked `SIPCluster` as it is declared to the scheduler.

use api::{Cluster, Operator, Role, SIPCluster};
use kube::ResourceExt as _;
use proto::{
    inventory::v1::{ClusterSpec, LabelSelector, LabelSelectorRequirement, Role as WireRole},
    placement::v1::ApplyClusterRequest,
};

use crate::inventory;

/// The whole wanted shape.
#[must_use]
pub(super) fn declaration(object: &SIPCluster, cluster: &Cluster) -> ApplyClusterRequest {
    ApplyClusterRequest {
        site: String::new(),
        cluster: Some(inventory::reference(object)),
        generation: cluster.generation(),
        created: object.creation_timestamp().map(|time| inventory::time(&time)),
        spec: Some(ClusterSpec {
            roles: cluster.roles().iter().map(role).collect(),
            network_ids: cluster
                .network_ids()
                .into_iter()
                .map(|id| id.as_str().to_owned())
                .collect(),
        }),
    }
}

fn role(role: &Role) -> WireRole {
    let requirements = role
        .selector()
        .requirements()
        .iter()
        .map(|requirement| LabelSelectorRequirement {
            key: requirement.key().as_str().to_owned(),
            operator: match requirement.operator() {
                Operator::In => "In",
                Operator::NotIn => "NotIn",
                Operator::Exists => "Exists",
                Operator::DoesNotExist => "DoesNotExist",
            }
            .to_owned(),
            values: requirement
                .values()
                .iter()
                .map(|value| value.as_str().to_owned())
                .collect(),
        });
    WireRole {
        name: role.name().as_str().to_owned(),
        label_selector: Some(LabelSelector {
            match_labels: std::collections::BTreeMap::new(),
            match_expressions: requirements.collect(),
        }),
        topology_key: role
            .topology_key()
            .map(|key| key.as_str().to_owned())
            .unwrap_or_default(),
        active: role.active(),
        standby: role.standby(),
        replace_after_error: role.replace_after_error().and_then(|grace| grace.try_into().ok()),
    }
}
