//! A stand-in of the baremetal-operator's validating webhook, as a `ValidatingAdmissionPolicy`.
//!
//! Both judge the whole object as it would be stored, on CREATE and UPDATE, and refuse the write; neither sees the status
//! subresource. Of the webhook's rules this is the one that a host of ours broke: a BMC driver that needs a MAC address to boot
//! (Redfish without virtual media) has none. It refuses every write to such a host, that of an annotation too. The source is `validateBMCAccess` in
//! `internal/webhooks/metal3.io/v1alpha1/baremetalhost_validation.go`, v0.13.2.

use kube::api::{DynamicObject, PostParams};
use sandbox::{inventory, region::HOSTS_NAMESPACE, site::Site};
use serde_json::json;

use crate::fixtures::Policy;

/// Installs it for all hosts of a site, and waits until the API server asks it.
pub(crate) async fn install(site: &Site) {
    let hosts = inventory::api(site.client(), HOSTS_NAMESPACE);
    let mut probe = DynamicObject::new("webhook-probe", &inventory::resource());
    let address = "redfish+http://127.0.0.1/redfish/v1/Systems/1";
    probe.data = json!({"spec": {"online": true, "bmc": {"address": address, "credentialsName": "none"}}});
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let policy = Policy {
        name: "baremetal-operator-webhook",
        matches: json!({"resourceRules": [{
            "apiGroups": ["metal3.io"], "apiVersions": ["v1alpha1"], "operations": ["CREATE", "UPDATE"],
            "resources": ["baremetalhosts"],
        }]}),
        expression: "!object.spec.?bmc.?address.orValue('').matches('^redfish(-uefihttp)?([+]https?)?:') \
                     || object.spec.?bootMACAddress.orValue('') != ''",
        message: "BMC driver redfish requires a BootMACAddress value (spec.bootMACAddress)",
    };
    policy
        .install(site, async || hosts.create(&params, &probe).await.is_ok())
        .await;
}
