//! What is checked of one provider.

use std::{net::SocketAddr, sync::Arc};

use api::{
    HttpsUrl,
    conditions::auth::{
        CERTIFICATE_INVALID, DIRECTORY_REFUSES_BIND, DIRECTORY_UNREACHABLE, ISSUER_CONFLICT,
        ISSUER_UNREACHABLE, STORAGE_UNREACHABLE,
    },
};
use futures::future::join_all;
use kit::tenant::destinations::Destinations;

use super::{CheckResult, Refusals};
use crate::{
    directory::{self, Bind},
    discovery, https,
    own_keys::{self, OwnKeys},
    storage::StoragePart,
    tenant::{Tenant, stored::SecretReader},
};

/// What is checked of an entry, and reconciled at its tenant's API server.
#[derive(Clone, Eq, PartialEq)]
pub struct Target {
    /// The provider; `None` while it cannot be prepared: its bindings do not wait for that.
    pub provider: Option<Provider>,
    /// The tenant's API server, where the bindings of groups are to be; `None`: they are not applied.
    pub tenant: Option<Tenant>,
}

impl Target {
    pub(super) fn issuer(&self) -> Option<&HttpsUrl> {
        self.provider.as_ref().map(|provider| &provider.issuer)
    }
}

/// A provider that runs.
#[derive(Clone, Eq, PartialEq)]
pub struct Provider {
    /// Its part of the storage.
    pub part: StoragePart,
    /// The issuer that it must answer as.
    pub issuer: HttpsUrl,
    /// Where the agent connects to without resolving a name; `None`: to the host of the issuer.
    pub at: Option<SocketAddr>,
    /// CA certificates (PEM) that its certificate must chain to.
    pub bundle: String,
    /// The binds at its directories.
    pub binds: Vec<Bind>,
}

/// Checks one provider, its directories and its tenant's API server concurrently. Returns the fault of a directory first, since nobody can log in
/// without it, and that of bindings last. A directory that has refused its account is queried only when that is due.
///
/// # Errors
/// Why it does not work.
pub async fn check(
    target: &Target,
    refusals: &Refusals,
    own_keys: &OwnKeys,
    secrets: &SecretReader,
    destinations: &Arc<Destinations>,
) -> CheckResult {
    let Target { provider, tenant } = target;
    let works = async {
        match provider {
            Some(provider) => provider.check(refusals, own_keys, destinations).await,
            None => Ok(()),
        }
    };
    let bound = async {
        match tenant {
            Some(tenant) => tenant.apply(secrets, destinations).await,
            None => Ok(()),
        }
    };
    let (works, bound) = tokio::join!(works, bound);
    works?;
    bound.map_err(|error| (error.reason(), error.to_string()))
}

impl Provider {
    async fn check(
        &self,
        refusals: &Refusals,
        own_keys: &OwnKeys,
        destinations: &Arc<Destinations>,
    ) -> CheckResult {
        let Self {
            part,
            issuer,
            at,
            bundle,
            binds,
        } = self;
        let answers = async {
            let tls = https::tls_config(bundle).map_err(|error| (CERTIFICATE_INVALID, error.to_string()))?;
            let unreachable = |error: discovery::Error| (ISSUER_UNREACHABLE, format!("{issuer}: {error}"));
            let (answered, answering) = tokio::join!(
                discovery::check(issuer, &tls, *at, destinations),
                discovery::key_ids(issuer, &tls, *at, destinations),
            );
            answered.map_err(unreachable)?;
            let answering = answering.map_err(unreachable)?;
            own_keys.compare(part, &answering).await.map_err(|error| {
                let reason = match &error {
                    own_keys::Error::OtherProvider => ISSUER_CONFLICT,
                    own_keys::Error::Storage(_) => STORAGE_UNREACHABLE,
                };
                (reason, format!("{issuer}: {error}"))
            })
        };
        let bind = binds.iter().map(|bind| refusals.check(bind, destinations));
        let (binds, answers) = tokio::join!(join_all(bind), answers);
        for found in binds {
            found.map_err(|error| {
                let reason = match &error {
                    directory::Error::Refused { .. } => DIRECTORY_REFUSES_BIND,
                    directory::Error::Unreachable { .. }
                    | directory::Error::Failed { .. }
                    | directory::Error::Unanswered { .. } => DIRECTORY_UNREACHABLE,
                };
                (reason, error.to_string())
            })?;
        }
        answers
    }
}
