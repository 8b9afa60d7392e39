//! The kinds of objects that service agents make for a cluster, and one object of any of them.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Preconditions},
    core::{ObjectMeta, response::reason},
};

use super::versions::{Versions, version};
use crate::apply::{self, Manager, Object};

/// Everything that differs from kind to kind. A new kind is one more name here.
macro_rules! kinds {
    ($($kind:ident)*) => {
        /// A kind of object that a service agent makes.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        #[allow(missing_docs, reason = "each is the Kubernetes kind of that name")]
        pub enum Kind { $($kind,)* }

        /// An object of one of the kinds.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each holds the Kubernetes object of that name")]
        pub enum Child { $($kind(Box<$kind>),)* }

        $(impl From<$kind> for Child {
            fn from(object: $kind) -> Self {
                Self::$kind(Box::new(object))
            }
        })*

        impl Kind {
            /// Its name, as in manifests.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => stringify!($kind),)* }
            }

            pub(super) fn visit<V: Visit>(self, visitor: V) -> V::Output {
                match self { $(Self::$kind => visitor.visit::<$kind>(),)* }
            }

            /// The object of a name, without its content. A list, which agents may do in any case.
            pub(super) async fn find(
                self,
                client: &Client,
                namespace: &str,
                name: &str,
            ) -> kube::Result<Option<ObjectMeta>> {
                let named = ListParams::default().fields(&format!("metadata.name={name}"));
                match self {
                    $(Self::$kind => {
                        let found = Api::<$kind>::namespaced(client.clone(), namespace).list_metadata(&named).await?;
                        Ok(found.items.into_iter().next().map(|object| object.metadata))
                    })*
                }
            }

            /// Deletes this object; its dependents follow in the background. If it is gone, or another one has its name, there is
            /// nothing to do.
            pub(super) async fn delete(self, client: &Client, namespace: &str, found: &ObjectMeta) -> kube::Result<()> {
                let this = Preconditions {
                    uid: found.uid.clone(),
                    resource_version: None,
                };
                match self.delete_if(client, namespace, found, this).await {
                    Err(error) if matches!(apply::code(&error), Some(404 | 409)) => Ok(()),
                    deleted => deleted,
                }
            }

            /// Deletes this object as it was found. The API server refuses it (409) if somebody has changed it. A 404 without the reason that
            /// API servers state is an error: the object may exist.
            pub(super) async fn delete_unchanged(
                self,
                client: &Client,
                namespace: &str,
                found: &ObjectMeta,
            ) -> kube::Result<()> {
                let as_found = Preconditions {
                    uid: found.uid.clone(),
                    resource_version: found.resource_version.clone(),
                };
                match self.delete_if(client, namespace, found, as_found).await {
                    Err(kube::Error::Api(status)) if status.reason == reason::NOT_FOUND => Ok(()),
                    deleted => deleted,
                }
            }

            async fn delete_if(
                self,
                client: &Client,
                namespace: &str,
                found: &ObjectMeta,
                condition: Preconditions,
            ) -> kube::Result<()> {
                let name = found.name.as_deref().unwrap_or_default();
                let background = DeleteParams::background().preconditions(condition);
                match self {
                    $(Self::$kind => {
                        Api::<$kind>::namespaced(client.clone(), namespace).delete(name, &background).await.map(drop)
                    })*
                }
            }
        }

        impl Child {
            /// Its kind.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)* }
            }

            /// Applies it; returns the version that the API server has now.
            pub(super) async fn apply(&self, client: &Client, manager: Manager) -> kube::Result<Option<String>> {
                match self {
                    $(Self::$kind(object) => {
                        apply::apply::<$kind>(client, manager, object).await.map(|applied| version(&applied))
                    })*
                }
            }

            /// Applies it on the condition that the API server still has this resource version.
            pub(super) async fn apply_to(
                &self,
                client: &Client,
                manager: Manager,
                resource_version: &str,
            ) -> kube::Result<Option<String>> {
                match self {
                    $(Self::$kind(object) => {
                        let mut conditional = object.clone();
                        conditional.metadata.resource_version = Some(resource_version.to_owned());
                        let applied = apply::apply::<$kind>(client, manager, &conditional).await;
                        applied.map(|applied| version(&applied))
                    })*
                }
            }

            /// Its metadata, as it was rendered.
            pub(super) fn metadata(&self) -> &ObjectMeta {
                match self { $(Self::$kind(object) => &object.metadata,)* }
            }

            /// The version that a watch of its kind has shown last.
            pub(super) fn version_in(&self, versions: &Versions) -> Option<String> {
                match self { $(Self::$kind(object) => versions.get(&**object),)* }
            }
        }
    };
}

kinds!(ConfigMap Deployment NetworkPolicy PodDisruptionBudget Role RoleBinding Secret Service ServiceAccount);

/// What is done with the Kubernetes type of a kind.
pub(super) trait Visit {
    type Output;

    fn visit<K: Object + Send + Sync + 'static>(self) -> Self::Output;
}

/// Children of one kind: their name is that of their instance, with a suffix where there are several of a kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Children {
    pub(super) kind: Kind,
    pub(super) suffix: &'static str,
}

impl Children {
    /// One of this kind, named as the instance is.
    #[must_use]
    pub const fn named(kind: Kind) -> Self {
        Self { kind, suffix: "" }
    }

    /// Another one of this kind, for example `-host-keys`.
    #[must_use]
    pub const fn with_suffix(kind: Kind, suffix: &'static str) -> Self {
        Self { kind, suffix }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A client that gets this 404 whatever it requests.
    fn not_found(body: &str) -> Client {
        let body = body.to_owned();
        let server = tower::service_fn(move |_: http::Request<Body>| {
            let mut answer = http::Response::new(Body::from(body.clone().into_bytes()));
            *answer.status_mut() = http::StatusCode::NOT_FOUND;
            std::future::ready(Ok::<_, Infallible>(answer))
        });
        Client::new(server, "tenant")
    }

    #[tokio::test]
    async fn a_deletion_needs_the_answer_of_the_api_server() {
        let found = json!({"name": "lb", "uid": "u", "resourceVersion": "1"});
        let found: ObjectMeta = serde_json::from_value(found).unwrap();
        let of_api_server = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "message": "secrets \"lb\" not found", "reason": "NotFound", "code": 404,
        });
        for (body, is_deleted) in [
            (of_api_server.to_string(), true),
            // A proxy answers so.
            ("404 page not found".to_owned(), false),
        ] {
            let client = not_found(&body);
            let deleted = Kind::Secret.delete_unchanged(&client, "tenant", &found).await;
            assert_eq!(deleted.is_ok(), is_deleted, "{body}");
        }
    }
}
