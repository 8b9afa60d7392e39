//! What a site reports, parsed: past this nothing is checked again. Only [`crate::convert`] builds these from messages.

mod cluster;
mod host;

pub use cluster::{Cluster, Member, Replaced};
pub(crate) use host::label_bytes;
pub use host::{Details, Host, Labels};

use placement::{HostId, HostName};

use crate::record::ClusterId;

/// What has changed in a site.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Hosts as they are now.
    pub hosts: Vec<Host>,
    /// Names of hosts that exist and whose uid is not valid: what was reported of them before stands.
    pub unreadable: Vec<HostName>,
    /// Hosts that are gone.
    pub deleted_hosts: Vec<HostId>,
    /// `SIPCluster`s as they are now.
    pub clusters: Vec<Cluster>,
    /// `SIPCluster`s that are gone.
    pub deleted_clusters: Vec<ClusterId>,
    /// What is wrong with reported hosts, for the log.
    pub faults: Vec<String>,
}
