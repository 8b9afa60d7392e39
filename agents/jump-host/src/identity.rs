//! What the jump-host agent owns.

use api::{conditions::JUMP_HOST_READY, labels};
use kit::{
    apply::Manager,
    service::{Children, Identity, Kind},
};
use render::jump_host::interface::{REPORT_PORT_NAME, SESSIONS_PORT_NAME};

/// Its field manager; also the name of its process.
pub(crate) const MANAGER: Manager = Manager("sip-jump-host-agent");

pub(crate) const IDENTITY: &Identity = &Identity {
    manager: MANAGER,
    condition: JUMP_HOST_READY,
    component: labels::JUMP_HOST,
    name_prefixes: &["jumphost-"],
    sip_prefixes: &["jumphost-"],
    children: &[
        Children::named(Kind::Deployment),
        Children::named(Kind::ConfigMap),
        Children::named(Kind::Secret),
        Children::named(Kind::PodDisruptionBudget),
        Children::named(Kind::NetworkPolicy),
        Children::named(Kind::RoleBinding),
        Children::named(Kind::Role),
        Children::named(Kind::ServiceAccount),
    ],
    pod_labels: &[],
    pod_ports: &[REPORT_PORT_NAME, SESSIONS_PORT_NAME],
    reports_drained: false,
    warnings: &[],
};
