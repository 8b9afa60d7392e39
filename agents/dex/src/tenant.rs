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
    calls::{CHANGE_TIMEOUT, Calls, LIST_TIMEOUT},
    reconcile::{CurrentServer, DesiredAction},
    stored::{SecretReader, StoredKubeconfig},
};

/// How long reconciling the bindings may take. There is time for each part that is as slow as it may be: reading a former kubeconfig,
/// connecting to the one and then to the other API server, a list of the other, deletions, and a list of what remains.
pub(crate) const RECONCILE_TIMEOUT: Duration = Duration::from_secs(28);
const _: () = assert!(
    RECONCILE_TIMEOUT.as_secs()
        > (SECRET_READ_TIMEOUT.as_secs()
            + 2 * CONNECT_TIMEOUT.as_secs()
            + 2 * LIST_TIMEOUT.as_secs()
            + CHANGE_TIMEOUT.as_secs())
        && LIST_TIMEOUT.as_secs() < CONNECT_TIMEOUT.as_secs(),
    "each part has time"
);
/// How long reading a former kubeconfig may take.
const SECRET_READ_TIMEOUT: Duration = Duration::from_secs(3);
/// How long connecting to an API server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(6);

/// The tenant's API server, and the bindings that are to be there. It holds credentials, so it cannot be printed.
#[derive(Clone, PartialEq)]
pub struct Tenant {
    kubeconfig: Kubeconfig,
    bindings: Arc<GroupBindings>,
    task: Task,
}

/// Where the kubeconfig is. An entry may have several former ones, so the agent reads these only when it uses them.
#[derive(Clone, PartialEq)]
enum Kubeconfig {
    Kept(Arc<[u8]>),
    InSecret(StoredKubeconfig),
}

/// What to do with the bindings that the spec requests. The agent always deletes other bindings of the provider, and those of providers that its
/// SIPCluster had before.
#[derive(Clone, PartialEq)]
enum Task {
    /// Apply the bindings.
    Apply,
    /// Leave the bindings as they are.
    Keep,
    /// Delete them, except where they are in use.
    Delete(InUse),
}

/// Where an entry's bindings are in use. A former kubeconfig may lead to the same cluster.
#[derive(Clone, PartialEq)]
pub enum InUse {
    /// The bindings are in use nowhere.
    None,
    /// At the API server of this kubeconfig.
    Kubeconfig(Arc<[u8]>),
    /// The kubeconfig that the entry names cannot be used.
    Unknown,
}

// No field of the bindings is a number that is unequal to itself (NaN).
impl Eq for Tenant {}

/// Why the bindings are not as the spec requests.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// There is no connection to the API server, or it does not answer.
    #[error(transparent)]
    Server(#[from] tenant::Error),
    /// The API server refuses something.
    #[error("the tenant's API server {server} refuses to {action}: {reason}")]
    Refused {
        /// URL of the API server.
        server: String,
        /// What the agent tried.
        action: String,
        /// The reason that the API server gives.
        reason: String,
    },
    /// Bindings were deleted, and are listed nevertheless.
    #[error("the tenant's API server {server} still has bindings of groups that were deleted")]
    Remain {
        /// URL of the API server.
        server: String,
    },
    /// The API server has more bindings than the agent reads.
    #[error("the tenant's API server {server} has more bindings of groups than the agent reads")]
    TooMany {
        /// URL of the API server.
        server: String,
    },
    /// The agent does not know whether bindings are in use.
    #[error(
        "the agent keeps those that groups requests until it can use the kubeconfig that kubeconfigSecret names now"
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
        /// Name of the Secret.
        secret: String,
        /// Why the agent cannot use or read it.
        why: String,
    },
    /// The Secret of a kubeconfig cannot be read.
    #[error("reading the Secret {secret}: {reason}")]
    SecretUnreadable {
        /// Name of the Secret.
        secret: String,
        /// Why the agent cannot use or read it.
        reason: String,
    },
    /// The Secret has another kubeconfig than the last pass has checked.
    #[error("the Secret {0} has changed; the agent reads it again within 30 s")]
    Changed(String),
}

impl Error {
    /// The reason of the condition.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Server(tenant::Error::Kubeconfig(_))
            | Self::Changed(_)
            | Self::SecretUnreadable { .. }
            | Self::Former { .. } => KUBECONFIG_INVALID,
            Self::Server(tenant::Error::Unreachable { .. }) | Self::NoConnection(_) => TENANT_UNREACHABLE,
            Self::Refused { .. } | Self::Remain { .. } | Self::TooMany { .. } | Self::MayBeInUse => {
                TENANT_REFUSES
            }
            Self::InUse(error) => error.reason(),
        }
    }
}

/// An object that binds a role.
trait Binding: Resource<DynamicType = ()> + Serialize {
    /// The role that it binds.
    fn role(&self) -> &RoleRef;
    /// The groups that have the role.
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
    pub fn former(stored: StoredKubeconfig, bindings: impl Into<Arc<GroupBindings>>, in_use: InUse) -> Self {
        Self {
            kubeconfig: Kubeconfig::InSecret(stored),
            bindings: bindings.into(),
            task: Task::Delete(in_use),
        }
    }

    /// Whether this applies bindings and the earlier one did not, so that the result of its check does not hold any more.
    pub(crate) fn starts_applying_after(&self, before: Option<&Self>) -> bool {
        self.task == Task::Apply && before.is_none_or(|before| before.task == Task::Keep)
    }

    /// The same with another selector of the bindings of entries that the cluster does not have any more; `None` if it is the same.
    pub(crate) fn with_stale_selector(&self, stale: &str) -> Option<Self> {
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
    pub fn without_applying(self) -> Self {
        Self {
            task: Task::Keep,
            ..self
        }
    }

    /// Deletes bindings of the provider that are not asked for, and those of providers that its SIPCluster had before. Then applies the bindings
    /// that are not there or differ; or deletes them too, at a former API server. A refused one does not delay the others.
    ///
    /// # Errors
    /// The first error.
    pub async fn apply(&self, secrets: &SecretReader, destinations: &Destinations) -> Result<(), Error> {
        let until = Instant::now() + RECONCILE_TIMEOUT;
        let kubeconfig = match &self.kubeconfig {
            Kubeconfig::Kept(kubeconfig) => Arc::clone(kubeconfig),
            Kubeconfig::InSecret(stored) => {
                let read = time::timeout(SECRET_READ_TIMEOUT, stored.read(secrets)).await;
                read.unwrap_or_else(|_| {
                    let secret = stored.secret().to_owned();
                    let reason = format!(
                        "the agent could not read it within {} s",
                        SECRET_READ_TIMEOUT.as_secs()
                    );
                    Err(Error::SecretUnreadable { secret, reason })
                })?
            }
        };
        let reconciled = Box::pin(self.reconcile(&kubeconfig, until, destinations)).await;
        reconciled.map_err(|error| self.with_secret_name(error))
    }

    /// Adds the name of a former Secret to an error about its kubeconfig.
    fn with_secret_name(&self, error: Error) -> Error {
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
        let connected =
            time::timeout(CONNECT_TIMEOUT, tenant::Tenant::connect(kubeconfig, destinations)).await;
        let connected = connected.unwrap_or_else(|_| {
            let reason = format!("no connection within {} s", CONNECT_TIMEOUT.as_secs());
            Err(tenant::Error::Unreachable { server, reason })
        });
        let calls = Calls::new(connected?, until);
        let bindings = &*self.bindings;
        match &self.task {
            Task::Apply => calls.reconcile(bindings, DesiredAction::Apply).await,
            Task::Keep => calls.reconcile(bindings, DesiredAction::Keep).await,
            Task::Delete(InUse::None) => calls.reconcile(bindings, DesiredAction::Delete(None)).await,
            Task::Delete(InUse::Unknown) => calls.reconcile(bindings, DesiredAction::FailIfPresent).await,
            Task::Delete(InUse::Kubeconfig(kubeconfig)) => {
                let connecting = async {
                    let used = tenant::Tenant::connect(kubeconfig, destinations).await?;
                    Ok(Calls::new(used, until))
                };
                calls
                    .delete_unused(bindings, &CurrentServer::new(connecting))
                    .await
            }
        }
    }
}
