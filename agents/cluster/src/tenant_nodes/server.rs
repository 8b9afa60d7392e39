//! Calls to a tenant's API server: lists of few objects a page, of which little is read, and writes of single objects.

use api::annotations::CORDONED_FOR;
use k8s_openapi::api::core::v1 as core;
use kit::{
    apply,
    tenant::{self, Tenant},
};
use kube::{
    Api,
    api::{DeleteParams, EvictParams, Patch, PatchParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{
    Problem,
    eviction::{self, Pod},
    node::{self, Node, Page},
};

/// Objects of a page: a Node with the images of its kubelet has some 20 KB, and an answer may have 1 MiB.
const PAGE: usize = 20;
/// Most Nodes of a cluster, and most pods of a Node, that are read.
const MOST: usize = 2_000;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The server answers that this is not allowed to the user of the kubeconfig.
    #[error("{0}")]
    Refused(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        let words = tenant::reason(&error);
        match apply::code(&error) {
            Some(401 | 403) => Self::Refused(words),
            _ => Self::Failed(words),
        }
    }
}

/// What has come of an eviction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Evicted {
    /// The pod ends, or is gone.
    Done,
    /// A `PodDisruptionBudget` does not allow it now.
    NotNow,
}

/// The API server of one tenant.
pub(super) struct Server(pub(super) Tenant);

impl Server {
    /// What went wrong, for people.
    pub(super) fn problem(&self, action: &str, error: &Error) -> Problem {
        let server = self.0.server();
        match error {
            Error::Refused(words) => Problem {
                passes: false,
                message: format!("the tenant's API server {server} refuses to {action}: {words}"),
            },
            Error::Failed(words) => Problem {
                passes: true,
                message: format!("the tenant's API server {server} does not {action}: {words}"),
            },
        }
    }

    pub(super) async fn nodes(&self) -> Result<Vec<Node>, Error> {
        let listed = self.list::<node::Listed>("/api/v1/nodes", "").await?;
        Ok(listed.into_iter().filter_map(node::Listed::parse).collect())
    }

    /// The pods of a Node.
    pub(super) async fn pods(&self, node: &Node) -> Result<Vec<eviction::Listed>, Error> {
        let selector = format!("fieldSelector=spec.nodeName%3D{}&", node.name);
        self.list("/api/v1/pods", &selector).await
    }

    async fn list<T: DeserializeOwned>(&self, path: &str, selector: &str) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let from = next
                .map(|token| format!("&continue={}", escaped(&token)))
                .unwrap_or_default();
            let request = http::Request::get(format!("{path}?{selector}limit={PAGE}{from}"));
            let request = request.body(Vec::new());
            let request =
                request.map_err(|_| Error::Failed("it answers with no token of a list".to_owned()))?;
            let Page { metadata, items } = self.0.client().request::<Page<T>>(request).await?;
            all.extend(items);
            next = metadata.next.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(all);
            }
            if all.len() >= MOST {
                return Err(Error::Failed(format!(
                    "it has more than {MOST} objects in a list"
                )));
            }
        }
    }

    /// Has no pods scheduled to a Node, for the host with this uid; or has them again.
    pub(super) async fn cordon(&self, node: &Node, host: Option<&str>) -> Result<(), Error> {
        let change = json!({
            "metadata": {"uid": node.uid, "annotations": {(CORDONED_FOR): host}},
            "spec": {"unschedulable": host.map(|_| true)},
        });
        let nodes: Api<core::Node> = Api::all(self.0.client().clone());
        let patched = nodes
            .patch_metadata(&node.name, &PatchParams::default(), &Patch::Merge(change))
            .await;
        patched?;
        Ok(())
    }

    pub(super) async fn evict(&self, Pod { namespace, name, uid }: &Pod) -> Result<Evicted, Error> {
        let pods: Api<core::Pod> = Api::namespaced(self.0.client().clone(), namespace);
        let this = EvictParams {
            delete_options: Some(this(uid)),
            ..EvictParams::default()
        };
        match pods.evict(name, &this).await {
            Ok(_) => Ok(Evicted::Done),
            // It is gone, or there is another one of its name.
            Err(error) if matches!(apply::code(&error), Some(404 | 409)) => Ok(Evicted::Done),
            Err(error) if apply::code(&error) == Some(429) => Ok(Evicted::NotNow),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a Node. Returns whether it was there.
    pub(super) async fn delete(&self, node: &Node) -> Result<bool, Error> {
        let nodes: Api<core::Node> = Api::all(self.0.client().clone());
        match nodes.delete(&node.name, &this(&node.uid)).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(apply::code(&error), Some(404 | 409)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Only the object with this uid.
fn this(uid: &str) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    })
}

/// A text as a value of a query.
fn escaped(text: &str) -> String {
    let byte = |byte: u8| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(byte).collect()
}
