//! What is checked of one provider.

use std::net::SocketAddr;

use api::{
    HttpsUrl,
    conditions::auth::{
        CERTIFICATE_INVALID, DIRECTORY_REFUSES_BIND, DIRECTORY_UNREACHABLE, ISSUER_UNREACHABLE,
    },
};
use futures::future::join_all;
use kit::tenant::destinations::Destinations;

use super::{Found, Refusals};
use crate::{
    directory::{self, Bind},
    discovery, https,
    tenant::Tenant,
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

    pub(super) fn binds(&self) -> &[Bind] {
        self.provider
            .as_ref()
            .map(|provider| provider.binds.as_slice())
            .unwrap_or_default()
    }
}

/// A provider that runs.
#[derive(Clone, Eq, PartialEq)]
pub struct Provider {
    /// Who it is.
    pub issuer: HttpsUrl,
    /// Where it is, if its name is not to be resolved.
    pub at: Option<SocketAddr>,
    /// CA certificates (PEM) that its certificate must chain to.
    pub bundle: String,
    /// Its directories.
    pub binds: Vec<Bind>,
}

/// Checks one provider, its directories and its tenant's API server concurrently. A directory's fault comes first, since nobody can log
/// in without it, and the bindings come last. A directory that has refused its account is asked when that is due.
///
/// # Errors
/// Why it does not work.
pub async fn check(target: &Target, refusals: &Refusals, destinations: &Destinations) -> Found {
    let Target { provider, tenant } = target;
    let works = async {
        match provider {
            Some(provider) => provider.check(refusals, destinations).await,
            None => Ok(()),
        }
    };
    let bound = async {
        match tenant {
            Some(tenant) => tenant.apply(destinations).await,
            None => Ok(()),
        }
    };
    let (works, bound) = tokio::join!(works, bound);
    works?;
    bound.map_err(|error| (error.reason(), error.to_string()))
}

impl Provider {
    async fn check(&self, refusals: &Refusals, destinations: &Destinations) -> Found {
        let Self {
            issuer,
            at,
            bundle,
            binds,
        } = self;
        let answers = async {
            let tls = https::trusting(bundle).map_err(|error| (CERTIFICATE_INVALID, error.to_string()))?;
            discovery::check(issuer, &tls, *at, destinations)
                .await
                .map_err(|error| (ISSUER_UNREACHABLE, format!("{issuer}: {error}")))
        };
        let bind = binds.iter().map(|bind| refusals.check(bind, destinations));
        let (binds, answers) = tokio::join!(join_all(bind), answers);
        for found in binds {
            found.map_err(|error| {
                let reason = match &error {
                    directory::Error::Unreachable { .. } => DIRECTORY_UNREACHABLE,
                    directory::Error::Refused { .. } => DIRECTORY_REFUSES_BIND,
                };
                (reason, error.to_string())
            })?;
        }
        answers
    }
}
