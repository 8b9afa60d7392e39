//! What distinguishes one service agent from another: what it owns of a cluster, and how its objects are found.

use std::collections::BTreeMap;

use api::{
    conditions::{ConditionType, Reason},
    labels,
};

use super::kinds::{Children, Kind};
use crate::apply::Manager;

/// What tells one service agent from another.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Its field manager; also the reporter of its Events.
    pub manager: Manager,
    /// Its condition on a `SIPCluster`.
    pub condition: ConditionType,
    /// Value of the label [`labels::COMPONENT`] on its objects and pods.
    pub component: &'static str,
    /// The names of its objects begin with one of these. Agents share the lists of a status: each owns the entries that are named so.
    pub name_prefixes: &'static [&'static str],
    /// Names of the objects that the Airship SIP operator made begin with these; the name of the cluster follows.
    pub sip_prefixes: &'static [&'static str],
    /// The children of an instance besides its Service, in the order in which they are deleted. The Service is made first and
    /// deleted last; as long as any of them exists, what is left of the instance is found.
    pub children: &'static [Children],
    /// Further labels of pods that the watch keeps, since the service reads them.
    pub pod_labels: &'static [&'static str],
    /// Names of the ports of pods that the watch keeps: those that the service connects to.
    pub pod_ports: &'static [&'static str],
    /// Whether this agent writes `status.drained`.
    pub reports_drained: bool,
    /// Reasons of warnings by rank: the condition has the first one that applies.
    pub warnings: &'static [Reason],
}

impl Identity {
    /// Whether an object or an entry of the status, by its name, is this agent's.
    #[must_use]
    pub fn owns(&self, name: &str) -> bool {
        self.name_prefixes.iter().any(|prefix| name.starts_with(prefix))
    }

    /// Whether an object is deleted with an instance, by its kind and name.
    pub(super) fn is_child(&self, kind: Kind, name: &str, instance: &str) -> bool {
        let mut children = self.children.iter();
        self.owns(instance)
            && children
                .any(|children| children.kind == kind && name.strip_prefix(instance) == Some(children.suffix))
    }

    /// Kind of an instance of this agent, by its name: load balancers of API servers are another kind than those of workers.
    #[must_use]
    pub fn kind_of(&self, name: &str) -> Option<&'static str> {
        let mut prefixes = self.sip_prefixes.iter().chain(self.name_prefixes);
        prefixes.find(|prefix| name.starts_with(**prefix)).copied()
    }

    /// Whether the Airship SIP operator gave this name to an object of the cluster.
    #[must_use]
    pub fn is_sip_name(&self, name: &str, cluster: &str) -> bool {
        let mut prefixes = self.sip_prefixes.iter();
        prefixes.any(|prefix| name.strip_prefix(prefix) == Some(cluster))
    }

    /// Whether an object with these labels is among those that [`selector`](Self::selector) selects.
    #[must_use]
    pub fn is_labelled(&self, on_object: Option<&BTreeMap<String, String>>) -> bool {
        let has = |label: &str, value: &str| {
            on_object
                .and_then(|all| all.get(label))
                .is_some_and(|found| found == value)
        };
        has(labels::PART_OF, labels::PART_OF_SIP) && has(labels::COMPONENT, self.component)
    }

    /// Selects its objects and pods, whoever made them.
    #[must_use]
    pub fn selector(&self) -> String {
        format!(
            "{}={},{}={}",
            labels::PART_OF,
            labels::PART_OF_SIP,
            labels::COMPONENT,
            self.component
        )
    }
}

/// An agent of load balancers, for tests.
#[cfg(test)]
pub(super) const BALANCERS: &Identity = &Identity {
    manager: crate::apply::Manager("test"),
    condition: api::conditions::LOAD_BALANCER_READY,
    component: "loadbalancer",
    name_prefixes: &["loadbalancer-"],
    sip_prefixes: &["loadbalancer-controlplane-", "loadbalancer-worker-"],
    children: &[],
    pod_labels: &[],
    pod_ports: &[],
    reports_drained: false,
    warnings: &[],
};
