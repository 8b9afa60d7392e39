//! The tenant's API server, to which the bindings of groups are applied.
//!
//! Its address and everything that it answers are the tenant's choice. The agent uses no credentials there but those of the same
//! kubeconfig, connects to no address that it must not, reads bounded answers in bounded time, and shows of them one short line.

use std::{fmt::Debug, time::Duration};

use api::conditions::{
    Reason,
    auth::{KUBECONFIG_INVALID, TENANT_REFUSES, TENANT_UNREACHABLE},
};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, RoleRef, Subject};
use kit::{
    apply::{self, Manager},
    tenant::{self, destinations::Destinations},
};
use kube::{
    Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, ObjectList, Patch, PatchParams, Preconditions},
    core::Request,
};
use render::dex::GroupBindings;
use serde::{
    Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use tokio::time;

use crate::identity::MANAGER;

/// Within this time the bindings are as they should be.
const ANSWER: Duration = Duration::from_secs(8);
/// Bindings that are listed: more than any provider can have.
const LISTED: u32 = 500;

/// The tenant's API server, and the bindings that are to be there. It holds credentials, so it cannot be printed.
#[derive(Clone, PartialEq)]
pub struct Tenant {
    kubeconfig: Vec<u8>,
    bindings: GroupBindings,
}

// The bindings have no number that differs from itself.
impl Eq for Tenant {}

/// Why the bindings are not as they should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no connection to the API server, or it does not answer.
    #[error(transparent)]
    Server(#[from] tenant::Error),
    /// The API server refuses something.
    #[error("the tenant's API server {server} refuses to {action}: {reason}")]
    Refused {
        /// Where it is.
        server: String,
        /// What was tried.
        action: String,
        /// Its words.
        reason: String,
    },
}

impl Error {
    /// For the condition.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Server(tenant::Error::Kubeconfig(_)) => KUBECONFIG_INVALID,
            Self::Server(tenant::Error::Unreachable { .. }) => TENANT_UNREACHABLE,
            Self::Refused { .. } => TENANT_REFUSES,
        }
    }
}

/// An object that binds a role.
trait Binding: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize {
    /// What it binds.
    fn role(&self) -> &RoleRef;
    /// Whom it is bound to.
    fn subjects(&self) -> &[Subject];
}

impl Binding for ClusterRoleBinding {
    fn role(&self) -> &RoleRef {
        &self.role_ref
    }

    fn subjects(&self) -> &[Subject] {
        self.subjects.as_deref().unwrap_or_default()
    }
}

impl Binding for RoleBinding {
    fn role(&self) -> &RoleRef {
        &self.role_ref
    }

    fn subjects(&self) -> &[Subject] {
        self.subjects.as_deref().unwrap_or_default()
    }
}

/// Calls of one API server.
struct Calls(tenant::Tenant);

impl Tenant {
    /// The API server of a kubeconfig, and the bindings that are to be there.
    #[must_use]
    pub fn new(kubeconfig: Vec<u8>, bindings: GroupBindings) -> Self {
        Self { kubeconfig, bindings }
    }

    /// Applies the bindings that are not there or differ, and deletes those of the provider that are not asked for, and those of providers
    /// that its SIPCluster had before. One that is refused does not hold up the others.
    ///
    /// # Errors
    /// The first that went wrong.
    pub async fn apply(&self, destinations: &Destinations) -> Result<(), Error> {
        let server = tenant::server(&self.kubeconfig)?;
        let applied = time::timeout(ANSWER, self.apply_in_time(destinations)).await;
        applied.unwrap_or_else(|_| {
            let reason = format!("no answer within {} s", ANSWER.as_secs());
            Err(tenant::Error::Unreachable { server, reason }.into())
        })
    }

    async fn apply_in_time(&self, destinations: &Destinations) -> Result<(), Error> {
        let calls = Calls(tenant::Tenant::connect(&self.kubeconfig, destinations).await?);
        let GroupBindings {
            selector,
            stale,
            cluster,
            namespaced,
        } = &self.bindings;
        let selectors = (&**selector, &**stale);
        let (in_cluster, in_namespaces) = tokio::join!(
            calls.reconcile(selectors, cluster),
            calls.reconcile(selectors, namespaced),
        );
        in_cluster.and(in_namespaces)
    }
}

impl Calls {
    /// The selectors are of the provider's bindings, and of those whose provider the cluster does not have any more.
    async fn reconcile<K: Binding>(&self, (own, stale): (&str, &str), desired: &[K]) -> Result<(), Error> {
        let kind = K::kind(&());
        let within = |namespace: Option<&str>| Request::new(K::url_path(&(), namespace));
        let list = async |selector: &str| {
            let listing = ListParams::default().labels(selector).limit(LISTED);
            let listed = self.0.call::<ObjectList<K>>(within(None).list(&listing)).await;
            let listed = listed.map_err(|error| self.failed(&format!("list {kind}s"), &error))?;
            Ok::<_, Error>(listed.items)
        };
        let (listed, stale) = tokio::try_join!(list(own), list(stale))?;
        let mut result = Ok(());
        let surplus = listed.iter().filter(|found| {
            let same = |desired: &K| is_same_object(desired, found) && desired.role() == found.role();
            !desired.iter().any(same)
        });
        for found in surplus.chain(&stale) {
            let name = found.name_any();
            let this = DeleteParams::default().preconditions(Preconditions {
                uid: found.uid(),
                resource_version: None,
            });
            let request = within(found.namespace().as_deref()).delete(&name, &this);
            match self.0.call::<IgnoredAny>(request).await {
                Err(error) if !matches!(apply::code(&error), Some(404 | 409)) => {
                    result = result.and(Err(self.failed(&format!("delete {kind} {name}"), &error)));
                }
                _ => {}
            }
        }
        for binding in desired {
            let stands = |found: &K| {
                is_same_object(binding, found)
                    && binding.role() == found.role()
                    && binding.subjects() == found.subjects()
                    && binding
                        .labels()
                        .iter()
                        .all(|(label, value)| found.labels().get(label) == Some(value))
            };
            if listed.iter().any(stands) {
                continue;
            }
            let namespace = binding.namespace();
            let name = binding.name_any();
            let Manager(manager) = MANAGER;
            let params = PatchParams::apply(manager).force();
            let request = within(namespace.as_deref()).patch(&name, &params, &Patch::Apply(binding));
            if let Err(error) = self.0.call::<IgnoredAny>(request).await {
                let place = namespace
                    .map(|namespace| format!("{namespace}/"))
                    .unwrap_or_default();
                let action = format!("apply {kind} {place}{name} of role {}", binding.role().name);
                result = result.and(Err(self.failed(&action, &error)));
            }
        }
        result
    }

    fn failed(&self, action: &str, error: &kube::Error) -> Error {
        // The tenant's API server chooses the reason, and names of bindings in the action.
        let (server, reason) = (self.0.server().to_owned(), tenant::reason(error));
        match apply::code(error) {
            Some(400..500) => Error::Refused {
                server,
                action: tenant::short(action),
                reason,
            },
            _ => tenant::Error::Unreachable { server, reason }.into(),
        }
    }
}

fn is_same_object<K: Binding>(one: &K, other: &K) -> bool {
    one.name_any() == other.name_any() && one.namespace() == other.namespace()
}
