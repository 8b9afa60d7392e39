//! What is reported of a `SIPCluster`.

use std::collections::BTreeMap;

use api::{MemberState, Placement, SIPCluster};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use proto::inventory::v1 as wire;

use super::unreadable_placement;

/// What is reported of a `SIPCluster`: of a placement that cannot be read, the parts that can.
pub(super) fn report(object: &SIPCluster) -> wire::ObservedCluster {
    let unreadable = object.spec.left_out.placement.as_ref();
    let parts = unreadable.and_then(unreadable_placement::readable);
    let placement = object
        .status
        .as_ref()
        .and_then(|status| status.placement.as_ref())
        .or(parts.as_ref());
    let members = placement.map(|placement| {
        let one = |one| member(one, &placement.members);
        placement.members.iter().map(one).collect()
    });
    wire::ObservedCluster {
        r#ref: Some(reference(object)),
        generation: object.metadata.generation.unwrap_or_default(),
        created: object
            .creation_timestamp()
            .map(|Time(time)| prost_types::Timestamp {
                seconds: time.as_second(),
                nanos: time.subsec_nanosecond(),
            }),
        deleting: object.metadata.deletion_timestamp.is_some(),
        members: members.unwrap_or_default(),
        revision: placement.map(|p| wire::Revision {
            epoch: p.epoch,
            revision: p.revision,
        }),
        topology_keys: placement
            .map(|placement| topology_keys(object, placement))
            .unwrap_or_default(),
    }
}

/// The topology keys of which the placement's domains are values, by role. A newer spec than the one that it answers may have others.
fn topology_keys(object: &SIPCluster, placement: &Placement) -> BTreeMap<String, String> {
    if object.metadata.generation != Some(placement.generation) {
        return BTreeMap::new();
    }
    let members = placement.members.iter();
    let keys = members
        .filter(|member| member.domain.is_some())
        .filter_map(|member| {
            let key = object.spec.nodes.get(&member.role)?.topology_key.clone()?;
            Some((member.role.clone(), key))
        });
    keys.filter(|(_, key)| !key.is_empty()).collect()
}

/// Completes a report whose spec is newer than its placement with the topology keys that were known of the same placement.
pub(super) fn remember_keys(report: &mut wire::ObservedCluster, before: &wire::ObservedCluster) {
    let is_same_placement = report.r#ref == before.r#ref && report.revision == before.revision;
    if is_same_placement && report.topology_keys.is_empty() {
        report.topology_keys.clone_from(&before.topology_keys);
    }
}

/// Completes a report whose placement cannot be read with the one that was known of the same cluster, unless what can be read is newer.
pub(super) fn remember_placement(report: &mut wire::ObservedCluster, before: &wire::ObservedCluster) {
    let position = |of: &wire::ObservedCluster| of.revision.map(|at| (at.epoch, at.revision));
    if report.r#ref == before.r#ref && position(report) <= position(before) {
        report.members.clone_from(&before.members);
        report.revision = before.revision;
        report.topology_keys.clone_from(&before.topology_keys);
    }
}

fn reference(object: &SIPCluster) -> wire::ClusterRef {
    wire::ClusterRef {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
    }
}

fn member(member: &api::Member, among: &[api::Member]) -> wire::ObservedMember {
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
        ordinal: member.ordinal,
        domain: member.domain.clone(),
        state: state.into(),
        revision: member.revision,
        replaces: member.replaces.as_deref().and_then(|old| replaced(old, among)),
        release_reason: member.release_reason.clone().unwrap_or_default(),
    }
}

/// The host that a status names as `namespace/name`, with its uid if it is a member still.
fn replaced(old: &str, among: &[api::Member]) -> Option<wire::HostRef> {
    let (namespace, name) = old.split_once('/')?;
    let member = among
        .iter()
        .find(|other| other.namespace == namespace && other.name == name);
    Some(wire::HostRef {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: member.map(|member| member.uid.clone()).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
