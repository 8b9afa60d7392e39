//! Members whose release is only requested.

use ::placement::{ClusterName, HostId, MemberState};

use super::view::View;
use crate::{
    observed::Labels,
    record::{Member, ReleaseReason},
};

/// Whether the release of a surplus member is only requested: its host is used, so another may go in its place.
pub(super) fn is_request(view: View<'_>, cluster: &ClusterName, id: &HostId, member: &Member) -> bool {
    member.state == MemberState::Releasing
        && member.release_reason == Some(ReleaseReason::Surplus)
        && !member.confirmed
        && view.reported(id).is_some_and(|host| {
            host.facts().consumer.is_some() && host.labels_for(cluster) == Labels::Ours(&member.role)
        })
}
