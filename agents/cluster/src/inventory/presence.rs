//! Whether a member has lost its host. Only the API server's own answer counts: a watch may be behind, and no watch covers a namespace that
//! is not in the site's configuration.

use api::BareMetalHost;
use kit::{apply, placement::HostId};
use kube::{Api, Client, ResourceExt as _};

/// What the API server answers when it is asked for the host of a member by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// There is no host of this name.
    Gone,
    /// The member's host exists.
    Present,
    /// The member's host was deleted, and another one was created under its name.
    Recreated,
    /// It does not answer that; why, and what would help, for messages.
    Unknown(String),
}

/// Whether a member has lost its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It has.
    Confirmed,
    /// It has not: the watch of the namespace is behind, and will deliver the host.
    Refuted,
    /// The member counts as one that has its host; why, and what would help, for messages.
    Unconfirmed(String),
}

impl Presence {
    /// `found`: the uid of the host that has the name of the member's host now.
    #[must_use]
    pub fn new(host: &HostId, found: Option<&str>) -> Self {
        match found {
            None => Self::Gone,
            Some(uid) if uid == host.uid() => Self::Present,
            Some(_) => Self::Recreated,
        }
    }

    /// Where the API server does not answer which hosts a namespace has.
    #[must_use]
    pub fn unknown(namespace: &str, error: &kube::Error) -> Self {
        let why = apply::reason(error);
        Self::Unknown(match apply::code(error) {
            // The RoleBindings of a deleted Namespace went with it.
            Some(403) => format!(
                "{why}; apply the component deploy/agents/host-namespace in {namespace} (if the Namespace was deleted, create it first), so \
                 that the cluster agent may read its hosts"
            ),
            _ => why,
        })
    }

    /// Reads the host from the API server.
    pub async fn find(client: &Client, host: &HostId) -> Self {
        let key = host.key();
        let hosts = Api::<BareMetalHost>::namespaced(client.clone(), &key.namespace);
        match hosts.get_metadata(&key.name).await {
            Ok(found) => Self::new(host, Some(&found.uid().unwrap_or_default())),
            Err(error) if is_absent(&error) => Self::Gone,
            Err(error) => Self::unknown(&key.namespace, &error),
        }
    }

    /// Whether the member has lost its host. `is_watched`: whether the site's configuration lists the namespace.
    ///
    /// The machine of a recreated host may still run what the tenant has on it. In a namespace that is watched, the scheduler knows the
    /// recreated host and applies its rules for such hosts. Elsewhere no watch observes its labels and its consumer, so the member keeps its
    /// place until the namespace is watched again.
    #[must_use]
    pub fn loss(&self, namespace: &str, is_watched: bool) -> Loss {
        let what = match (self, is_watched) {
            (Self::Gone, _) | (Self::Recreated, true) => return Loss::Confirmed,
            (Self::Present, true) => return Loss::Refuted,
            (Self::Unknown(why), _) => return Loss::Unconfirmed(why.clone()),
            (Self::Present, false) => "exists",
            (Self::Recreated, false) => "was recreated",
        };
        Loss::Unconfirmed(format!(
            "it {what}, and hostNamespaces in the site's configuration lacks {namespace}: list it again"
        ))
    }
}

/// Whether the API server answers that it has no object of the name. A 404 without this reason is of a proxy, or of an API server that does
/// not serve the kind at the time: it does not show whether the object exists.
#[must_use]
pub fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "NotFound")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::fixtures::key;

    fn h1() -> HostId {
        HostId::new(key("h1"), "uid-h1")
    }

    async fn found(code: u16, body: String) -> Presence {
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let response = http::Response::builder().status(code);
            let response = response.body(Body::from(body.clone().into_bytes())).unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        Presence::find(&Client::new(service, "metal"), &h1()).await
    }

    fn with_uid(uid: &str) -> String {
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "h1", "uid": uid}})
            .to_string()
    }

    fn failure(code: u16, reason: &str, message: &str) -> String {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
            .to_string()
    }

    #[tokio::test]
    async fn only_a_stated_absence_means_that_a_host_is_gone() {
        let unknown = |why: &str| Presence::Unknown(why.to_owned());
        for (code, body, expected) in [
            (200, with_uid("uid-h1"), Presence::Present),
            (200, with_uid("another"), Presence::Recreated),
            (404, failure(404, "NotFound", "\"h1\" not found"), Presence::Gone),
            // The definition of BareMetalHosts is not served.
            (
                404,
                "404 page not found".to_owned(),
                unknown("404 page not found"),
            ),
            (
                500,
                failure(500, "InternalError", "no leader"),
                unknown("no leader"),
            ),
        ] {
            assert_eq!(found(code, body.clone()).await, expected, "{code} {body}");
        }
    }

    #[tokio::test]
    async fn a_missing_right_is_named_with_what_restores_it() {
        let message = "\"h1\" is forbidden: User \"a\" cannot get resource";
        let Presence::Unknown(why) = found(403, failure(403, "Forbidden", message)).await else {
            panic!("the host counts as known")
        };
        assert!(why.starts_with(message), "{why}");
        assert!(
            why.contains("deploy/agents/host-namespace in metal (if the Namespace was deleted"),
            "{why}"
        );
    }

    #[test]
    fn a_recreated_host_is_lost_only_where_it_is_watched() {
        let unconfirmed = |presence: &Presence| match presence.loss("metal", false) {
            Loss::Unconfirmed(why) => why,
            other => panic!("{presence:?}: {other:?}"),
        };
        assert_eq!(
            unconfirmed(&Presence::Recreated),
            "it was recreated, and hostNamespaces in the site's configuration lacks metal: list it again"
        );
        assert_eq!(
            unconfirmed(&Presence::Present),
            "it exists, and hostNamespaces in the site's configuration lacks metal: list it again"
        );
        let unknown = Presence::Unknown("forbidden".to_owned());
        for is_watched in [false, true] {
            assert_eq!(Presence::Gone.loss("metal", is_watched), Loss::Confirmed);
            assert_eq!(
                unknown.loss("metal", is_watched),
                Loss::Unconfirmed("forbidden".to_owned())
            );
        }
        assert_eq!(Presence::Recreated.loss("metal", true), Loss::Confirmed);
        assert_eq!(Presence::Present.loss("metal", true), Loss::Refuted);
    }
}
