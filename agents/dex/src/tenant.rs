//! The tenant's API server, to which the bindings of groups are applied.
//!
//! The tenant chooses its address and everything that it answers. The agent uses only the credentials of the same kubeconfig there, connects only
//! to allowed addresses, reads bounded answers in bounded time, and shows one short line of them.

mod calls;
mod found;
mod reconcile;
pub mod stored;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use api::conditions::{
    Reason,
    auth::{KUBECONFIG_INVALID, TENANT_REFUSES, TENANT_UNREACHABLE},
};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, RoleRef, Subject};
use kit::tenant::{self, destinations::Destinations};
use kube::Resource;
use render::dex::GroupBindings;
use serde::Serialize;
use tokio::time::{self, Instant};

use self::{
    calls::{CHANGES, Calls, LIST},
    reconcile::{Then, Used},
    stored::{Secrets, Stored},
};

/// Within this time the bindings are as they should be. There is time for each part that is as slow as it may be: reading a former kubeconfig,
/// connecting to the one and then to the other API server, a list of the other, deletions, and a list of what remains.
pub(crate) const CHECK: Duration = Duration::from_secs(28);
const _: () = assert!(
    CHECK.as_secs() > (READ.as_secs() + 2 * CONNECT.as_secs() + 2 * LIST.as_secs() + CHANGES.as_secs())
        && LIST.as_secs() < CONNECT.as_secs(),
    "each part has its time"
);
/// Within this time a former kubeconfig is read.
const READ: Duration = Duration::from_secs(3);
/// Within this time an API server is connected to.
const CONNECT: Duration = Duration::from_secs(6);

/// The tenant's API server, and the bindings that are to be there. It holds credentials, so it cannot be printed.
#[derive(Clone, PartialEq)]
pub struct Tenant {
    kubeconfig: Kubeconfig,
    bindings: Arc<GroupBindings>,
    task: Task,
}

/// The kubeconfig that an entry names is kept here. An entry may have several former ones, so these are read when they are used.
#[derive(Clone, PartialEq)]
enum Kubeconfig {
    Kept(Arc<[u8]>),
    InSecret(Stored),
}

/// What to do with the bindings that are asked for. Other bindings of the provider, and those of providers that its SIPCluster had before, are
/// deleted in any case.
#[derive(Clone, PartialEq)]
enum Task {
    /// Apply them.
    Apply,
    /// Leave them as they are.
    Keep,
    /// Delete them, except where they are in use.
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

// No field of the bindings is a number that is unequal to itself (NaN).
impl Eq for Tenant {}

/// Why the bindings are not as they should be.
#[derive(Clone, Debug, thiserror::Error)]
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
    /// Not all bindings are listed.
    #[error("the tenant's API server {server} has more bindings of groups than the agent reads")]
    Many {
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
    /// The API server of the kubeconfig that the entry names cannot be connected to in time.
    #[error("no connection to the API server of kubeconfigSecret within {0} s")]
    NoConnection(u64),
    /// The kubeconfig of a former Secret cannot be used.
    #[error("the kubeconfig of the Secret {secret}: {why}")]
    Former {
        /// Its name.
        secret: String,
        /// Why not.
        why: String,
    },
    /// The Secret of a kubeconfig cannot be read.
    #[error("reading the Secret {secret}: {reason}")]
    Unread {
        /// Its name.
        secret: String,
        /// Why not.
        reason: String,
    },
    /// The Secret has another kubeconfig than the last pass has checked.
    #[error("the Secret {0} has changed, and is read again within 30 s")]
    Changed(String),
}

impl Error {
    /// For the condition.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Server(tenant::Error::Kubeconfig(_))
            | Self::Changed(_)
            | Self::Unread { .. }
            | Self::Former { .. } => KUBECONFIG_INVALID,
            Self::Server(tenant::Error::Unreachable { .. }) | Self::NoConnection(_) => TENANT_UNREACHABLE,
            Self::Refused { .. } | Self::Remain { .. } | Self::Many { .. } | Self::MayBeInUse => {
                TENANT_REFUSES
            }
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

impl Tenant {
    /// The API server of a kubeconfig, and the bindings that are to be there.
    #[must_use]
    pub fn new(kubeconfig: impl Into<Arc<[u8]>>, bindings: impl Into<Arc<GroupBindings>>) -> Self {
        Self {
            kubeconfig: Kubeconfig::Kept(kubeconfig.into()),
            bindings: bindings.into(),
            task: Task::Apply,
        }
    }

    /// An API server at which none of these bindings is to be any more, except where they are in use.
    #[must_use]
    pub fn former(stored: Stored, bindings: impl Into<Arc<GroupBindings>>, in_use: InUse) -> Self {
        Self {
            kubeconfig: Kubeconfig::InSecret(stored),
            bindings: bindings.into(),
            task: Task::Delete(in_use),
        }
    }

    /// Whether the result of an earlier check does not hold for this one, since it applied nothing and this one applies bindings.
    pub(crate) fn begins_after(&self, before: Option<&Self>) -> bool {
        self.task == Task::Apply && before.is_none_or(|before| before.task == Task::Keep)
    }

    /// The same with another selector of the bindings of entries that the cluster does not have any more; `None` if it is the same.
    pub(crate) fn sharing_entries(&self, stale: &str) -> Option<Self> {
        let shares = || {
            let bindings = GroupBindings {
                stale: stale.to_owned(),
                ..(*self.bindings).clone()
            };
            Self {
                bindings: bindings.into(),
                ..self.clone()
            }
        };
        (self.bindings.stale != stale).then(shares)
    }

    /// The same API server, without applying anything to it.
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
    pub async fn apply(&self, secrets: &Secrets, destinations: &Destinations) -> Result<(), Error> {
        let until = Instant::now() + CHECK;
        let kubeconfig = match &self.kubeconfig {
            Kubeconfig::Kept(kubeconfig) => Arc::clone(kubeconfig),
            Kubeconfig::InSecret(stored) => {
                let read = time::timeout(READ, stored.read(secrets)).await;
                read.unwrap_or_else(|_| {
                    let secret = stored.secret().to_owned();
                    let reason = format!("it was not read within {} s", READ.as_secs());
                    Err(Error::Unread { secret, reason })
                })?
            }
        };
        let reconciled = Box::pin(self.reconcile(&kubeconfig, until, destinations)).await;
        reconciled.map_err(|error| self.named(error))
    }

    /// An error about the kubeconfig, with the name of a former Secret.
    fn named(&self, error: Error) -> Error {
        match (&self.kubeconfig, error) {
            (Kubeconfig::InSecret(stored), Error::Server(tenant::Error::Kubeconfig(why))) => {
                let secret = stored.secret().to_owned();
                Error::Former { secret, why }
            }
            (_, error) => error,
        }
    }

    async fn reconcile(
        &self,
        kubeconfig: &[u8],
        until: Instant,
        destinations: &Destinations,
    ) -> Result<(), Error> {
        let server = tenant::server(kubeconfig)?;
        let connected = time::timeout(CONNECT, tenant::Tenant::connect(kubeconfig, destinations)).await;
        let connected = connected.unwrap_or_else(|_| {
            let reason = format!("no connection within {} s", CONNECT.as_secs());
            Err(tenant::Error::Unreachable { server, reason })
        });
        let calls = Calls::new(connected?, until);
        let bindings = &*self.bindings;
        match &self.task {
            Task::Apply => calls.reconcile(bindings, Then::Apply).await,
            Task::Keep => calls.reconcile(bindings, Then::Keep).await,
            Task::Delete(InUse::None) => calls.reconcile(bindings, Then::Delete(None)).await,
            Task::Delete(InUse::Unknown) => calls.reconcile(bindings, Then::MayDelete).await,
            Task::Delete(InUse::Kubeconfig(kubeconfig)) => {
                let connecting = async {
                    let used = tenant::Tenant::connect(kubeconfig, destinations).await?;
                    Ok(Calls::new(used, until))
                };
                calls.leave(bindings, &Used::new(connecting)).await
            }
        }
    }
}
