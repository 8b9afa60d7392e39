//! What SIP's labels on a host say of a cluster.

use ::placement::{ClusterName, RoleName, SipLabels};
use proto::inventory::v1 as wire;
use vocabulary::labels;

use crate::convert;

/// A host's labels, as one cluster sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Labels {
    /// None of the three is there.
    None,
    /// Some are there, or a value is not valid.
    Partial,
    /// All three, and they name the cluster.
    Ours(RoleName),
    /// All three, and they name another cluster.
    Others(ClusterName),
}

impl Labels {
    pub(super) fn of(host: &wire::Host, ours: &ClusterName) -> Self {
        match convert::sip_labels(&host.labels) {
            SipLabels::None => Self::None,
            SipLabels::Partial => Self::Partial,
            SipLabels::Complete { cluster, role } if cluster == *ours => Self::Ours(role),
            SipLabels::Complete { cluster, role: _ } => Self::Others(cluster),
        }
    }
}

/// The cluster that a host's labels name, be they complete or not.
pub(super) fn named(host: &wire::Host) -> Option<ClusterName> {
    let label = |key| host.labels.get(key);
    let (namespace, name) = label(labels::CLUSTER_NAMESPACE).zip(label(labels::CLUSTER_NAME))?;
    ClusterName::new(namespace, name).ok()
}
