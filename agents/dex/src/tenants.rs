//! The clusters in which bindings of an entry's groups may be: that of the kubeconfig which the entry names, and those of kubeconfigs that it
//! named before. In the latter the agent deletes them, so that nobody keeps a right after the tenant names another `kubeconfigSecret`.

use kit::service::Problem;

use crate::{kubeconfigs::Server, tenant::Tenant};

/// A cluster in which an entry's bindings should not be any more.
#[derive(Clone)]
pub struct FormerTenant {
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
    /// The API server of `named`.
    pub server: Option<Server>,
    /// Clusters in which the bindings are deleted.
    pub former: Vec<FormerTenant>,
    /// Former Secrets that do not exist any more, and whose API server was the one that the entry names now.
    pub replaced: Vec<String>,
}

impl Tenants {
    /// No clusters. `stale` selects the bindings of entries that the SIPCluster does not have any more.
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
