//! The clusters in which the bindings of an entry's groups are: that of the kubeconfig which the entry names, and those of kubeconfigs that
//! it named before. There the bindings are deleted, so that naming another `kubeconfigSecret` leaves nobody a right.

use kit::service::Problem;

use crate::{kubeconfigs::Server, tenant::Tenant};

/// A cluster in which an entry's bindings are not to be any more.
#[derive(Clone)]
pub struct Former {
    /// The Secret of its kubeconfig.
    pub secret: String,
    /// Where the bindings are deleted, or why that is not possible.
    pub tenant: Result<Tenant, Problem>,
}

/// The clusters of an entry.
#[derive(Clone)]
pub struct Tenants {
    /// Selects the bindings of entries that the SIPCluster does not have.
    pub stale: String,
    /// Where the bindings are applied, or why they are not; `None`: the entry names no kubeconfig.
    pub named: Option<Result<Tenant, Problem>>,
    /// Its API server.
    pub server: Option<Server>,
    /// Where they are deleted.
    pub former: Vec<Former>,
    /// Former Secrets that do not exist any more, and that led to the same API server as the one that the entry names.
    pub replaced: Vec<String>,
}

impl Tenants {
    /// None. `stale` selects what entries have left that the SIPCluster does not have any more.
    #[must_use]
    pub fn none(stale: String) -> Self {
        Self {
            stale,
            named: None,
            server: None,
            former: Vec::new(),
            replaced: Vec::new(),
        }
    }
}
