//! The policies on hosts, for a site with other host namespaces or with users whom it exempts.

use serde_json::{Value, json};

use super::{Error, Site};
use crate::repository;

/// Name of the policy on consumers of hosts and of its binding, in `deploy/policies`.
pub const HOST_CONSUMERS: &str = "sip-host-consumers";
/// The same, of the policy on SIP's labels of hosts.
const HOST_LABELS: &str = "sip-host-labels";
/// The user of [`Site::client`] and of [`Site::kubectl`].
pub const ADMINISTRATOR: &str = "sandbox-admin";

impl Site {
    /// Applies `deploy/policies` as it is shipped: for hosts in the namespace `metal`. Nobody is exempt from the policy on consumers.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn apply_policies(&self) -> Result<(), Error> {
        let directory = repository::deploy().join("policies");
        self.apply_kustomization(&directory).await.map(drop)
    }

    /// Changes the applied policies as a site's own kustomization would: the namespaces of its hosts, and who may set consumers.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn guard_hosts(&self, namespaces: &[&str], exempt: &[&str]) -> Result<(), Error> {
        let users: Vec<String> = exempt.iter().map(|user| format!("'{user}'")).collect();
        let condition = format!("!(request.userInfo.username in [{}])", users.join(", "));
        self.patch_policy(
            "validatingadmissionpolicy",
            HOST_CONSUMERS,
            &json!([
                {"op": "test", "path": "/spec/matchConditions/0/name", "value": "user-is-not-exempt"},
                {"op": "replace", "path": "/spec/matchConditions/0/expression", "value": condition},
            ]),
        )
        .await?;
        let path = "/spec/matchResources/namespaceSelector/matchExpressions/0/values";
        let patch = json!([{"op": "replace", "path": path, "value": namespaces}]);
        for name in [HOST_CONSUMERS, HOST_LABELS] {
            self.patch_policy("validatingadmissionpolicybinding", name, &patch)
                .await?;
        }
        Ok(())
    }

    async fn patch_policy(&self, kind: &str, name: &str, patch: &Value) -> Result<(), Error> {
        let patch = patch.to_string();
        self.kubectl_ok(&["patch", kind, name, "--type=json", "--patch", &patch])
            .await
            .map(drop)
    }
}
