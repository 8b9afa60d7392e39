//! Calls to a tenant's API server: lists of few objects a page, of which little is read, and writes of single objects.

use api::annotations::CORDONED_FOR;
use k8s_openapi::api::core::v1 as core;
use kit::{
    apply,
    tenant::{
        self, Answered, Tenant,
        page::{First, Page},
    },
};
use kube::{
    Resource as _,
    api::{DeleteParams, EvictParams, Patch, PatchParams, Preconditions},
    core::{Request, request},
};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;

use super::{
    Problem,
    eviction::{self, Fate, Pod},
    node::{self, Node, Readiness},
};

#[cfg(test)]
mod tests;

/// Nodes of a cluster, and pods of a Node, that are read, each at most.
const MAX_OBJECTS: usize = 2_000;
/// Objects of a page: a Node with the images of its kubelet has some 20 KB, and a response may have 1 MiB.
const PAGE_SIZE: usize = 20;
/// Bytes of a list, at most: 32 KiB for each of [`MAX_OBJECTS`].
const MAX_LIST_BYTES: usize = MAX_OBJECTS * 32 * 1024;

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
        let message = tenant::reason(&error);
        match apply::code(&error) {
            Some(401 | 403) => Self::Refused(message),
            _ => Self::Failed(message),
        }
    }
}

/// The outcome of an eviction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Evicted {
    /// The pod ends, or is gone.
    Done,
    /// A `PodDisruptionBudget` does not allow it at present.
    NotNow,
    /// The server refuses it for another reason; its message.
    Failed(String),
}

/// The outcome of the deletion of a Node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Deleted {
    /// This call has deleted it.
    Now,
    /// It was deleted before.
    Before,
    /// It may be there: finalizers hold it, or another one has its name. The next list shows it.
    Unknown,
}

/// The API server of one tenant.
pub(super) struct Server(pub(super) Tenant);

impl Server {
    /// What went wrong, for messages.
    pub(super) fn problem(&self, action: &str, error: &Error) -> Problem {
        let server = self.0.server();
        match error {
            Error::Refused(message) => Problem {
                passes: false,
                message: format!("the tenant's API server {server} refuses to {action}: {message}"),
            },
            Error::Failed(message) => Problem {
                passes: true,
                message: format!("the tenant's API server {server} does not {action}: {message}"),
            },
        }
    }

    pub(super) async fn nodes(&self) -> Result<Vec<Node>, Error> {
        self.list("/api/v1/nodes", "", node::NodeItem::parse).await
    }

    /// What happens to the pods of a Node, those apart that stay.
    pub(super) async fn fates(&self, node: &Node) -> Result<Vec<Fate>, Error> {
        let selector = format!("fieldSelector=spec.nodeName%3D{}&", node.name);
        let is_ready = node.readiness == Readiness::Ready;
        let keep = |pod| Some(eviction::fate(pod, is_ready)).filter(|fate| *fate != Fate::Stays);
        self.list("/api/v1/pods", &selector, keep).await
    }

    /// Lists objects, and keeps of each what `keep` selects. The agent drops the rest of a page before it reads the next one.
    async fn list<T: DeserializeOwned, K>(
        &self,
        path: &str,
        selector: &str,
        keep: impl Fn(T) -> Option<K>,
    ) -> Result<Vec<K>, Error> {
        let (mut kept, mut objects, mut bytes, mut page) = (Vec::new(), 0, 0, PAGE_SIZE);
        let mut from = String::new();
        loop {
            let request = http::Request::get(format!("{path}?{selector}limit={page}{from}"));
            let request = request.body(Vec::new());
            let request =
                request.map_err(|_| Error::Failed("it answers with no token of a list".to_owned()))?;
            let next = match self.0.answer(request).await {
                // Few objects have so much.
                Err(error) if tenant::is_too_long(&error) && page > 1 => {
                    bytes += tenant::MAX_ANSWER_BYTES;
                    page = page.div_ceil(4);
                    Some(from)
                }
                answer => {
                    let answer = answer?;
                    bytes += answer.len();
                    let Page { metadata, items } = tenant::parsed::<Page<T, { MAX_OBJECTS + 1 }>>(&answer)?;
                    let First(items) = items;
                    objects += items.len();
                    kept.extend(items.into_iter().filter_map(&keep));
                    let next = metadata.next.filter(|token| !token.is_empty());
                    next.map(|token| format!("&continue={}", escaped(&token)))
                }
            };
            if objects > MAX_OBJECTS {
                return Err(Error::Failed(format!(
                    "it has more than {MAX_OBJECTS} objects in a list"
                )));
            }
            let Some(next) = next else {
                return Ok(kept);
            };
            if bytes > MAX_LIST_BYTES {
                return Err(Error::Failed(format!(
                    "it has a list of more than {MAX_LIST_BYTES} bytes"
                )));
            }
            from = next;
        }
    }

    /// Cordons a Node for the host with this uid; `None` uncordons it.
    pub(super) async fn cordon(&self, node: &Node, host: Option<&str>) -> Result<(), Error> {
        let change = json!({
            "metadata": {"uid": node.uid, "annotations": {(CORDONED_FOR): host}},
            "spec": {"unschedulable": host.map(|_| true)},
        });
        let request = nodes().patch_metadata(&node.name, &PatchParams::default(), &Patch::Merge(change));
        self.0.call::<IgnoredAny>(request).await?;
        Ok(())
    }

    /// Evicts a pod. Every failure counts for this pod only, such as that of a webhook, a `PodDisruptionBudget` or a namespace that is being
    /// deleted.
    pub(super) async fn evict(&self, Pod { namespace, name, uid }: &Pod) -> Evicted {
        let pods = Request::new(core::Pod::url_path(&(), Some(namespace)));
        let this = EvictParams {
            delete_options: Some(this(uid)),
            ..EvictParams::default()
        };
        match self.status(pods.evict(name, &this)).await {
            Ok(_) => Evicted::Done,
            Err(error) => match apply::code(&error) {
                // It is gone, or there is another one of its name.
                Some(404 | 409) => Evicted::Done,
                Some(429) => Evicted::NotNow,
                _ => Evicted::Failed(tenant::reason(&error)),
            },
        }
    }

    pub(super) async fn delete(&self, node: &Node) -> Result<Deleted, Error> {
        match self.status(nodes().delete(&node.name, &this(&node.uid))).await {
            Ok(true) => Ok(Deleted::Now),
            // The answer is the Node, whose deletion has begun and waits for finalizers.
            Ok(false) => Ok(Deleted::Unknown),
            Err(error) => match apply::code(&error) {
                Some(404) => Ok(Deleted::Before),
                Some(409) => Ok(Deleted::Unknown),
                _ => Err(error.into()),
            },
        }
    }

    /// Makes a call. Returns whether the answer is a Status of success; false if it is an object.
    async fn status(&self, request: Result<http::Request<Vec<u8>>, request::Error>) -> kube::Result<bool> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        let answer = self.0.answer(request).await?;
        let answered = tenant::parsed::<Answered>(&answer).unwrap_or_default();
        match answered.failure() {
            Some(error) => Err(error),
            None if answered.is_success() => Ok(true),
            None => tenant::parsed::<IgnoredAny>(&answer).map(|_| false),
        }
    }
}

fn nodes() -> Request {
    Request::new(core::Node::url_path(&(), None))
}

/// Parameters that restrict a deletion to the object with this uid.
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
