//! What the Dex agent owns.

use api::conditions::{
    AUTH_READY,
    auth::{BINDINGS_REMAIN, STATIC_PASSWORDS},
};
use kit::{
    apply::Manager,
    service::{Children, Identity, Kind},
};
use render::dex::OUTPUTS_SUFFIX;

use crate::key_secret;

/// Its field manager; also the name of its process.
pub(crate) const MANAGER: Manager = Manager("sip-dex-agent");

pub(crate) const IDENTITY: &Identity = &Identity {
    manager: MANAGER,
    condition: AUTH_READY,
    component: "auth",
    name_prefixes: &["auth-"],
    // The Airship SIP operator announced identity providers, and never made one.
    sip_prefixes: &[],
    children: &[
        Children::named(Kind::Deployment),
        Children::named(Kind::Secret),
        Children::with_suffix(Kind::Secret, key_secret::SUFFIX),
        Children::with_suffix(Kind::ConfigMap, OUTPUTS_SUFFIX),
        Children::named(Kind::PodDisruptionBudget),
        Children::named(Kind::NetworkPolicy),
        Children::named(Kind::ServiceAccount),
    ],
    pod_labels: &[],
    pod_ports: &[],
    reports_drained: false,
    warnings: &[BINDINGS_REMAIN, STATIC_PASSWORDS],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_instance_has_the_name_of_anothers_keys() {
        // Names of instances are DNS labels.
        assert!(key_secret::SUFFIX.contains('.'));
    }
}
