//! Reads objects of Cluster API and of metal3 by the references that other objects hold.
//!
//! Tenants write some of these references, for example in a `HostClaim`. A text that no API server accepts as the name of an object or of a
//! version never becomes part of a path.

use kit::apply;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    core::{GroupVersionKind, PartialObjectMeta},
};

/// Versions of the kinds of Cluster API and CAPM3, the newest first: any serves the metadata of an object.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// Bytes of a name, at most.
const MAX_NAME_BYTES: usize = 253;

/// A kind and an object of it, as another object names them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    pub(super) group: &'a str,
    pub(super) kind: &'a str,
    /// The version in the reference, if it has one. The API server may no longer serve that version.
    pub(super) version: Option<&'a str>,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

/// The metadata of an object, with the version and the client for writing it.
#[derive(Debug)]
pub(super) struct FoundObject {
    pub(super) version: String,
    pub(super) api: Api<DynamicObject>,
    pub(super) metadata: PartialObjectMeta<DynamicObject>,
}

impl<'a> Named<'a> {
    /// Finds the metadata of the object; `None` when there is none, or no such kind: the API server answers 404 to both.
    ///
    /// # Errors
    /// What the API server answers.
    pub(super) async fn find(self, client: &Client) -> kube::Result<Option<FoundObject>> {
        if !is_name(self.namespace) || !is_name(self.name) {
            return Ok(None);
        }
        for version in self.versions() {
            let api = self.api(client, version);
            match api.get_metadata(self.name).await {
                Ok(metadata) => {
                    return Ok(Some(FoundObject {
                        version: version.to_owned(),
                        api,
                        metadata,
                    }));
                }
                // The API server answers 404 to a version that it does not have, too.
                Err(error) if apply::code(&error) == Some(404) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Finds the whole object by the version in the reference; `None` without such a version or object.
    ///
    /// # Errors
    /// What the API server answers.
    pub(super) async fn get(self, client: &Client) -> kube::Result<Option<DynamicObject>> {
        let version = self.version.filter(|version| is_name(version));
        let Some(version) = version.filter(|_| is_name(self.namespace) && is_name(self.name)) else {
            return Ok(None);
        };
        self.api(client, version).get_opt(self.name).await
    }

    /// The versions to try: the one in the reference first.
    fn versions(self) -> impl Iterator<Item = &'a str> {
        let named = self.version.filter(|version| is_name(version));
        let others = VERSIONS
            .into_iter()
            .filter(move |version| Some(*version) != named);
        named.into_iter().chain(others)
    }

    fn api(self, client: &Client, version: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(self.group, version, self.kind));
        Api::namespaced_with(client.clone(), self.namespace, &resource)
    }
}

/// Why an object cannot be read or written, for messages: the API server's message, which names the namespace, and, where rights are missing, what
/// grants them.
pub(super) fn refusal(error: &kube::Error) -> String {
    let message = apply::reason(error);
    // The API server's refusal for lack of rights, unlike that of a policy, states who cannot do what.
    let lacks_rights = apply::code(error) == Some(403) && message.contains("\" cannot ");
    if !lacks_rights {
        return message;
    }
    format!(
        "the cluster agent has no rights on it: apply the component deploy/agents/host-namespace in that namespace if it has hosts, or else \
         deploy/tenant-namespace; the API server: {message}"
    )
}

/// The version of an `apiVersion` of this group.
pub(super) fn version_of<'a>(api_version: &'a str, group: &str) -> Option<&'a str> {
    let (of, version) = api_version.split_once('/')?;
    (of == group).then_some(version)
}

/// Whether a text can be the name of an object or a version, and be written into a path or a message.
pub(super) fn is_name(text: &str) -> bool {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let ends = [text.bytes().next(), text.bytes().next_back()];
    let is_closed = ends
        .iter()
        .all(|byte| byte.is_some_and(|byte| byte.is_ascii_alphanumeric()));
    is_closed && text.len() <= MAX_NAME_BYTES && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_can_be_a_name_gets_into_a_path() {
        for (text, expected) in [
            ("m-0", true),
            ("orders-worker-0.rack-1", true),
            ("v1beta1", true),
            ("", false),
            (".", false),
            ("..", false),
            ("-a", false),
            ("a-", false),
            ("M", false),
            ("a/b", false),
            ("../../metal/machines/m-0", false),
            ("m-0?watch=1", false),
            ("m-0#", false),
            ("m%2f0", false),
            ("m 0", false),
            ("m\n0", false),
            (&"a".repeat(253), true),
            (&"a".repeat(254), false),
        ] {
            assert_eq!(is_name(text), expected, "{text:?}");
        }
    }

    #[test]
    fn missing_rights_are_told_with_what_grants_them() {
        const LACKING: &str = "hostclaims.metal3.io \"c\" is forbidden: User \"sip\" cannot get resource \"hostclaims\" in API group \"metal3.io\" \
            in the namespace \"shop\"";
        let answer = |code: u16, message: &str| {
            let status = json!({"status": "Failure", "code": code, "reason": "", "message": message});
            refusal(&kube::Error::Api(Box::new(
                serde_json::from_value(status).unwrap(),
            )))
        };
        for (code, message) in [(500, LACKING), (403, "denied by a policy")] {
            assert_eq!(answer(code, message), message);
        }
        let why = answer(403, LACKING);
        for part in ["deploy/agents/host-namespace", "deploy/tenant-namespace", LACKING] {
            assert!(why.contains(part), "{part}: {why}");
        }
    }

    #[test]
    fn the_version_that_is_named_is_tried_first() {
        for (version, expected) in [
            (None, &["v1beta2", "v1beta1"][..]),
            (Some("v1beta1"), &["v1beta1", "v1beta2"]),
            (Some("v1"), &["v1", "v1beta2", "v1beta1"]),
            (Some("../v1"), &["v1beta2", "v1beta1"]),
        ] {
            let named = Named {
                group: "cluster.x-k8s.io",
                kind: "Machine",
                version,
                namespace: "metal",
                name: "m-0",
            };
            assert_eq!(named.versions().collect::<Vec<_>>(), expected);
        }
        assert_eq!(version_of("a/v1", "a"), Some("v1"));
        assert_eq!(version_of("a/v1", "b"), None);
        assert_eq!(version_of("v1", "a"), None);
    }
}
