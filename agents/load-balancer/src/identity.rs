//! What the load-balancer agent owns.

use api::{conditions::LOAD_BALANCER_READY, labels};
use kit::{
    apply::Manager,
    load_balancers::SIP_PREFIXES,
    service::{Children, Identity, Kind},
};
use render::load_balancer::{INTERNAL_PORT_NAME, REPORT_PORT_NAME};

/// Its field manager; also the name of its process.
pub(crate) const MANAGER: Manager = Manager("sip-load-balancer-agent");

pub(crate) const IDENTITY: &Identity = &Identity {
    manager: MANAGER,
    condition: LOAD_BALANCER_READY,
    component: labels::COMPONENT_LOAD_BALANCER,
    name_prefixes: &["loadbalancer-"],
    sip_prefixes: &SIP_PREFIXES,
    children: &[
        Children::named(Kind::Deployment),
        Children::named(Kind::ConfigMap),
        Children::named(Kind::PodDisruptionBudget),
        Children::named(Kind::NetworkPolicy),
        Children::named(Kind::RoleBinding),
        Children::named(Kind::Role),
        Children::named(Kind::ServiceAccount),
    ],
    pod_labels: &[labels::TEMPLATE_CHECK],
    pod_ports: &[REPORT_PORT_NAME, INTERNAL_PORT_NAME],
    reports_drained: true,
    warnings: &[],
};
