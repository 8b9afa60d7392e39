//! The tenant's API server, to which the bindings of groups are applied.
//!
//! Its address and everything that it answers are the tenant's choice. The agent uses no credentials there but those of the same
//! kubeconfig, connects to no address that it must not, reads bounded answers in bounded time, and shows of them one short line.

mod found;

use std::{sync::Arc, time::Duration};

use api::conditions::{
    Reason,
    auth::{KUBECONFIG_INVALID, TENANT_REFUSES, TENANT_UNREACHABLE},
};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, RoleRef, Subject};
use kit::{
    apply::{self, Manager},
    tenant::{self, destinations::Destinations, page::Page},
};
use kube::{
    Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    core::Request,
};
use render::dex::GroupBindings;
use serde::{Serialize, de::IgnoredAny};
use tokio::time;

use self::found::{Found, Metadata};
use crate::identity::MANAGER;

/// Within this time the bindings are as they should be.
const ANSWER: Duration = Duration::from_secs(8);
/// Bindings that are listed: more than any provider can have. The server may answer with more; these are not kept.
const LISTED: usize = 500;

/// The tenant's API server, and the bindings that are to be there. It holds credentials, so it cannot be printed.
#[derive(Clone, PartialEq)]
pub struct Tenant {
    kubeconfig: Arc<[u8]>,
    bindings: Arc<GroupBindings>,
    task: Task,
}

/// What is done about the bindings there. Others of the provider, and those of providers that its SIPCluster had before, are deleted in any case.
#[derive(Clone, PartialEq)]
enum Task {
    /// They are applied.
    Apply,
    /// They stay as they are.
    Keep,
    /// They are deleted, except where they are in use.
    Delete(InUse),
}

/// Where an entry's bindings are in use. A former kubeconfig may lead to the same cluster.
#[derive(Clone, PartialEq)]
pub enum InUse {
    /// Nowhere.
    None,
    /// At the API server of this kubeconfig.
    Kubeconfig(Arc<[u8]>),
    /// The kubeconfig that the entry names cannot be used.
    Unknown,
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
    /// Bindings were deleted, and are listed nevertheless.
    #[error("the tenant's API server {server} still has bindings of groups that were deleted")]
    Remain {
        /// Where it is.
        server: String,
    },
    /// It is not known whether bindings are in use.
    #[error(
        "the agent keeps those in groups until it can use the kubeconfig that kubeconfigSecret names now"
    )]
    MayBeInUse,
    /// The bindings in use cannot be listed.
    #[error("comparing with the bindings that are in use now: {0}")]
    InUse(Box<Self>),
}

impl Error {
    /// For the condition.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Server(tenant::Error::Kubeconfig(_)) => KUBECONFIG_INVALID,
            Self::Server(tenant::Error::Unreachable { .. }) => TENANT_UNREACHABLE,
            Self::Refused { .. } | Self::Remain { .. } | Self::MayBeInUse => TENANT_REFUSES,
            Self::InUse(error) => error.reason(),
        }
    }
}

/// An object that binds a role.
trait Binding: Resource<DynamicType = ()> + Serialize {
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
    pub fn new(kubeconfig: impl Into<Arc<[u8]>>, bindings: impl Into<Arc<GroupBindings>>) -> Self {
        Self {
            kubeconfig: kubeconfig.into(),
            bindings: bindings.into(),
            task: Task::Apply,
        }
    }

    /// An API server at which none of these bindings is to be any more, except where they are in use.
    #[must_use]
    pub fn former(
        kubeconfig: impl Into<Arc<[u8]>>,
        bindings: impl Into<Arc<GroupBindings>>,
        in_use: InUse,
    ) -> Self {
        Self {
            kubeconfig: kubeconfig.into(),
            bindings: bindings.into(),
            task: Task::Delete(in_use),
        }
    }

    /// The kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> Arc<[u8]> {
        Arc::clone(&self.kubeconfig)
    }

    /// Whether what was found of another one tells nothing of this one: that applied nothing, and this one does.
    pub(crate) fn begins_after(&self, before: Option<&Self>) -> bool {
        self.task == Task::Apply && before.is_some_and(|before| before.task == Task::Keep)
    }

    /// The same API server, at which nothing new is applied.
    #[must_use]
    pub fn restricted(self) -> Self {
        Self {
            task: Task::Keep,
            ..self
        }
    }

    /// Deletes bindings of the provider that are not asked for, and those of providers that its SIPCluster had before. Then applies the bindings
    /// that are not there or differ; or deletes them too, at a former API server. One that is refused does not hold up the others.
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
        match &self.task {
            Task::Apply => self.reconcile(&calls, Then::Apply).await,
            Task::Keep => self.reconcile(&calls, Then::Keep).await,
            Task::Delete(InUse::None) => self.reconcile(&calls, Then::Delete(None)).await,
            Task::Delete(InUse::Unknown) => self.reconcile(&calls, Then::MayDelete).await,
            Task::Delete(InUse::Kubeconfig(kubeconfig)) => {
                // What nobody asks for does not wait for the other API server.
                self.reconcile(&calls, Then::Keep).await?;
                let in_use = tenant::Tenant::connect(kubeconfig, destinations).await;
                let in_use = in_use.map_err(|error| Error::InUse(Box::new(error.into())))?;
                let then = Then::Delete(Some(&Calls(in_use)));
                self.reconcile(&calls, then).await
            }
        }
    }

    async fn reconcile(&self, calls: &Calls, then: Then<'_>) -> Result<(), Error> {
        let GroupBindings {
            selector,
            stale,
            cluster,
            namespaced,
        } = &*self.bindings;
        let selectors = (&**selector, &**stale);
        let in_cluster = calls.reconcile(selectors, cluster, then).await;
        in_cluster.and(calls.reconcile(selectors, namespaced, then).await)
    }
}

/// What is done about the bindings that are asked for, once the others are deleted.
#[derive(Clone, Copy)]
enum Then<'a> {
    Apply,
    Keep,
    /// They are deleted, except those that this API server also has.
    Delete(Option<&'a Calls>),
    /// If there are any, it is an error.
    MayDelete,
}

impl Calls {
    /// The selectors are of the provider's bindings, and of those whose provider the cluster does not have any more.
    async fn reconcile<K: Binding>(
        &self,
        selectors: (&str, &str),
        desired: &[K],
        then: Then<'_>,
    ) -> Result<(), Error> {
        let (mut present, mut surplus) = self.sorted(selectors, desired).await?;
        let mut result = Ok(());
        let mut in_use: Vec<Found> = Vec::new();
        match then {
            Then::MayDelete if !present.is_empty() => result = Err(Error::MayBeInUse),
            Then::MayDelete | Then::Keep | Then::Apply => {}
            Then::Delete(there) => {
                // Listed later than what is deleted: a binding that the same cluster is given meanwhile is not among that.
                if let Some(there) = there.filter(|_| !present.is_empty()) {
                    let listed = there.list::<K>(selectors.0).await;
                    in_use = listed.map_err(|error| Error::InUse(Box::new(error)))?;
                }
                surplus.extend(std::mem::take(&mut present));
            }
        }
        let is_in_use = |found: &Found| in_use.iter().any(|used| used.is_same(found));
        surplus.retain(|found| !is_in_use(found));
        for found in &surplus {
            result = result.and(self.delete::<K>(found).await);
        }
        // A right that the spec takes away does not wait for one that it gives.
        if matches!(then, Then::Apply) {
            for binding in desired {
                if !present.iter().any(|found| found.stands_as(binding)) {
                    result = result.and(self.apply(binding).await);
                }
            }
        }
        result?;
        if surplus.is_empty() {
            return Ok(());
        }
        // Finalizers may hold what was deleted, and a listing is bounded.
        let (present, mut surplus) = self.sorted(selectors, desired).await?;
        if matches!(then, Then::Delete(_)) {
            surplus.extend(present);
        }
        if surplus.iter().all(is_in_use) {
            return Ok(());
        }
        let server = self.0.server().to_owned();
        Err(Error::Remain { server })
    }

    /// The bindings that are desired, whatever is in them, and those that are to be deleted.
    async fn sorted<K: Binding>(
        &self,
        (own, stale): (&str, &str),
        desired: &[K],
    ) -> Result<(Vec<Found>, Vec<Found>), Error> {
        // One after another: an answer may have a MiB, and many tenants are asked at once.
        let listed = self.list::<K>(own).await?.into_iter();
        let (present, mut surplus): (Vec<_>, Vec<_>) =
            listed.partition(|found| desired.iter().any(|desired| found.is(desired)));
        surplus.extend(self.list::<K>(stale).await?);
        Ok((present, surplus))
    }

    async fn list<K: Binding>(&self, selector: &str) -> Result<Vec<Found>, Error> {
        let listing = ListParams::default()
            .labels(selector)
            .limit(LISTED.try_into().unwrap_or(u32::MAX));
        let request = within::<K>(None).list(&listing);
        let listed = self.0.call::<Page<Found, LISTED>>(request).await;
        let Page { metadata: _, items } =
            listed.map_err(|error| self.failed(&format!("list {}s", K::kind(&())), &error))?;
        Ok(items.0)
    }

    async fn delete<K: Binding>(&self, found: &Found) -> Result<(), Error> {
        let Metadata {
            name,
            namespace,
            uid,
            labels: _,
        } = &found.metadata;
        let this = DeleteParams::default().preconditions(Preconditions {
            uid: uid.clone(),
            resource_version: None,
        });
        let request = within::<K>(namespace.as_deref()).delete(name, &this);
        match self.0.call::<IgnoredAny>(request).await {
            Err(error) if !matches!(apply::code(&error), Some(404 | 409)) => {
                Err(self.failed(&format!("delete {} {name}", K::kind(&())), &error))
            }
            _ => Ok(()),
        }
    }

    async fn apply<K: Binding>(&self, binding: &K) -> Result<(), Error> {
        let namespace = binding.namespace();
        let name = binding.name_any();
        let Manager(manager) = MANAGER;
        let params = PatchParams::apply(manager).force();
        let request = within::<K>(namespace.as_deref()).patch(&name, &params, &Patch::Apply(binding));
        let applied = self.0.call::<IgnoredAny>(request).await;
        applied.map(|_| ()).map_err(|error| {
            let place = namespace
                .map(|namespace| format!("{namespace}/"))
                .unwrap_or_default();
            let kind = K::kind(&());
            let action = format!("apply {kind} {place}{name} of role {}", binding.role().name);
            self.failed(&action, &error)
        })
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

/// The objects of a kind, in a namespace or in the whole cluster.
fn within<K: Binding>(namespace: Option<&str>) -> Request {
    Request::new(K::url_path(&(), namespace))
}
