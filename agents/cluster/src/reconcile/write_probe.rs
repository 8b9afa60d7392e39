//! Hosts of which the API server refuses every write: the webhook of the baremetal-operator refuses hosts that are not valid, whatever the write.
//! The agent can neither label nor release such a host, so the scheduler replaces it by another.

use std::{convert::Infallible, time::Duration};

use api::BareMetalHost;
use kit::{apply, placement::HostId};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::context::MANAGER;
use crate::{inventory::Inventory, triggers::Triggers};

/// Pause after which writes of refused hosts are retried. A host that changes is retried at once.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
/// Pause between two rounds, at least, so that a host that changes continuously does not cause a call for each change.
const MIN_PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The answer to a dry-run write that changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// The API server would take a write, or has no such host.
    Accepted,
    /// The API server refuses even this; its message.
    Refused(String),
    /// The response does not show that, such as a timeout.
    Unknown,
}

/// Tries a dry-run write that changes nothing.
pub(super) async fn probe(client: &Client, host: &HostId) -> Probe {
    let hosts: Api<BareMetalHost> = Api::namespaced(client.clone(), &host.key().namespace);
    let params = PatchParams {
        dry_run: true,
        field_manager: Some(MANAGER.0.to_owned()),
        ..PatchParams::default()
    };
    // The API server answers 409 to the uid of another host of this name.
    let nothing = Patch::Merge(json!({ "metadata": { "uid": host.uid() } }));
    match hosts.patch_metadata(&host.key().name, &params, &nothing).await {
        Ok(_) => Probe::Accepted,
        Err(error) => match apply::code(&error) {
            Some(404 | 409) => Probe::Accepted,
            Some(403 | 422) if !lacks_right(&error) => Probe::Refused(apply::reason(&error)),
            _ => Probe::Unknown,
        },
    }
}

/// Whether the agent itself has no right to patch hosts, which does not concern this host.
fn lacks_right(error: &kube::Error) -> bool {
    apply::reason(error).contains("cannot patch resource")
}

/// Retries writes of the hosts whose writes the API server refused, and triggers the cluster of each host that can be written now.
///
/// # Errors
/// None: it runs until it is dropped.
pub async fn run(client: Client, inventory: Inventory, triggers: Triggers) -> Result<(), Infallible> {
    loop {
        tokio::select! {
            () = tokio::time::sleep(PROBE_INTERVAL) => {}
            () = inventory.refused_has_changed() => {}
        }
        for host in inventory.refused() {
            if probe(&client, &host).await == Probe::Accepted {
                inventory.write_accepted(host.key());
                triggers.host(host.key());
            }
        }
        tokio::time::sleep(MIN_PROBE_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;

    use super::*;
    use crate::fixtures::key;

    async fn answered(code: u16, message: &'static str) -> Probe {
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let body = if code == 200 {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "h1"}})
            } else {
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "", "message": message})
            };
            let response = http::Response::builder().status(code);
            let response = response
                .body(Body::from(serde_json::to_vec(&body).unwrap()))
                .unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let host = HostId::new(key("h1"), "uid-h1");
        probe(&Client::new(service, "metal"), &host).await
    }

    #[tokio::test]
    async fn only_admission_refuses_a_host() {
        let refused = |message: &str| Probe::Refused(message.to_owned());
        let webhook = "admission webhook denied the request: bootMACAddress";
        let rights = "baremetalhosts is forbidden: User \"a\" cannot patch resource \"baremetalhosts\"";
        for (code, message, expected) in [
            (200, "", Probe::Accepted),
            (404, "", Probe::Accepted),
            (409, "another uid", Probe::Accepted),
            (403, webhook, refused(webhook)),
            (422, "invalid", refused("invalid")),
            (403, rights, Probe::Unknown),
            (429, "", Probe::Unknown),
            (500, "the webhook cannot be reached", Probe::Unknown),
        ] {
            assert_eq!(answered(code, message).await, expected, "{code} {message}");
        }
    }
}
