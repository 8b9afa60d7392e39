//! A `SIPCluster` as it is reported.

use api::{MemberState, SIPCluster};
use kube::ResourceExt as _;
use proto::inventory::v1 as wire;

/// What the scheduler is told of a `SIPCluster`.
pub(super) fn observed(object: &SIPCluster) -> wire::ObservedCluster {
    let placement = object
        .status
        .as_ref()
        .and_then(|status| status.placement.as_ref());
    let members = placement.map(|placement| placement.members.iter().map(member).collect());
    wire::ObservedCluster {
        r#ref: Some(reference(object)),
        generation: object.metadata.generation.unwrap_or_default(),
        created: object.creation_timestamp().map(|time| super::time(&time)),
        deleting: object.metadata.deletion_timestamp.is_some(),
        members: members.unwrap_or_default(),
        revision: placement.map(|p| wire::Revision {
            epoch: p.epoch,
            revision: p.revision,
        }),
    }
}

/// How the `SIPCluster` is named in calls.
#[must_use]
pub fn reference(object: &SIPCluster) -> wire::ClusterRef {
    wire::ClusterRef {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
    }
}

fn member(member: &api::Member) -> wire::ObservedMember {
    let state = match member.state {
        MemberState::Claimed => wire::MemberState::Claimed,
        MemberState::Bound => wire::MemberState::Bound,
        MemberState::Releasing => wire::MemberState::Releasing,
    };
    wire::ObservedMember {
        host: Some(wire::HostRef {
            namespace: member.namespace.clone(),
            name: member.name.clone(),
            uid: member.uid.clone(),
        }),
        role: member.role.clone(),
        state: state.into(),
        revision: member.revision,
    }
}
