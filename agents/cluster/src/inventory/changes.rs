//! What changed in the inventory since it was last reported.

use proto::inventory::v1 as wire;

/// What is to be reported since the last time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Hosts as they are now.
    pub hosts: Vec<wire::Host>,
    /// Hosts that are gone.
    pub deleted_hosts: Vec<wire::HostRef>,
    /// `SIPCluster`s as they are now.
    pub clusters: Vec<wire::ObservedCluster>,
    /// `SIPCluster`s that are gone.
    pub deleted_clusters: Vec<wire::ClusterRef>,
}

impl Changes {
    /// Whether there is nothing to report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
