//! What the jump-host agent owns.

use api::{conditions::JUMP_HOST_READY, labels};
use kit::{
    apply::Manager,
    service::{Children, Identity, Kind},
};

/// Its field manager; also the name of its process.
pub(crate) const MANAGER: Manager = Manager("sip-jump-host-agent");

pub(crate) const IDENTITY: &Identity = &Identity {
    manager: MANAGER,
    condition: JUMP_HOST_READY,
    component: labels::JUMP_HOST,
    name_prefixes: &["jumphost-"],
    sip_prefixes: &["jumphost-"],
    children: &[
        Children::of(Kind::Deployment),
        Children::of(Kind::ConfigMap),
        Children::of(Kind::Secret),
        Children::of(Kind::PodDisruptionBudget),
        Children::of(Kind::NetworkPolicy),
        Children::of(Kind::RoleBinding),
        Children::of(Kind::Role),
        Children::of(Kind::ServiceAccount),
    ],
    pod_labels: &[],
    reports_drained: false,
};
