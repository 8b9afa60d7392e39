//! The Cluster API cluster that the hosts of a `SIPCluster` serve, and whether the consumer of a host belongs to it.
//!
//! Where the policy on consumers is in force, a consumer of another Cluster can only be an older one or that of an exempt user.

use api::{ClusterApiCluster, ConsumerReference, Ownership, describe_consumer};
use kit::placement::ClusterId;
use serde_json::{Value, json};

use crate::inventory::ObservedHost;

/// The Cluster API cluster that the hosts of a `SIPCluster` serve, as the host must name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServedCluster {
    tenant: String,
    cluster: ClusterApiCluster,
    /// Value of the host's annotation; `None` where the Cluster has the name of the `SIPCluster`.
    annotation: Option<String>,
}

/// Who uses a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum User {
    /// It has no consumer.
    Nobody,
    /// A consumer of the Cluster that it is for.
    Own,
    /// A consumer whose Cluster nothing on the host names.
    Unknown,
    /// A consumer of another Cluster.
    Foreign,
}

impl ServedCluster {
    /// `named`: what the `SIPCluster` names by its annotation.
    pub(super) fn new(cluster: &ClusterId, named: Option<&ClusterApiCluster>) -> Self {
        let annotation = named.map(ToString::to_string);
        Self {
            tenant: cluster.namespace().to_owned(),
            cluster: ClusterApiCluster::served_by(annotation.as_deref(), cluster.name()),
            annotation,
        }
    }

    /// What a merge patch sets the annotation to, if the host has another one: a text, or null to remove it.
    pub(super) fn annotation_change(&self, host: &ObservedHost) -> Option<Value> {
        (self.annotation.as_deref() != host.cluster_annotation()).then(|| json!(self.annotation))
    }

    /// Whether a consumer is of this Cluster. `label`: of the host, [`api::labels::CLUSTER_API`].
    pub(super) fn owns(&self, consumer: &ConsumerReference, label: Option<&str>) -> Ownership {
        self.cluster.owns(consumer, &self.tenant, label)
    }

    /// Who uses a host.
    pub(super) fn user(&self, host: &ObservedHost) -> User {
        let Some(consumer) = host.consumer() else {
            return User::Nobody;
        };
        match self.owns(consumer, host.cluster_label()) {
            Ownership::Own => User::Own,
            Ownership::Foreign => User::Foreign,
            Ownership::Unknown => User::Unknown,
        }
    }

    /// States that a consumer of another Cluster uses a host, for messages. The caller adds what helps, which depends on whether the cluster keeps
    /// the host.
    pub(super) fn foreign_consumer(&self, host: &ObservedHost) -> String {
        let consumer = host.consumer().cloned().unwrap_or_default();
        format!(
            "it is used by {}, and this SIPCluster serves {}",
            describe_consumer(&consumer, host.cluster_label()),
            self.cluster,
        )
    }
}
