//! Nodes, and what is wanted of them, for the tests.

use k8s_openapi::api::core::v1::ObjectReference;
use kit::placement::HostId;

use super::{
    Action, Wanted, WantedMember,
    node::{Node, Readiness},
};
use crate::fixtures::key;

/// Workers on these hosts, which have the addresses 192.0.2.1, 192.0.2.2 and so on.
pub(super) fn wanted(hosts: &[&str]) -> Wanted {
    let member = |(index, host): (usize, &&str)| WantedMember {
        host: HostId::new(key(host), format!("uid-{host}")),
        role: "Worker".to_owned(),
        addresses: [format!("192.0.2.{}", index + 1).parse().unwrap()].into(),
        is_balanced: true,
        action: Action::Keep,
    };
    Wanted {
        object: ObjectReference::default(),
        cluster_api: "one".to_owned(),
        secret: "one-kubeconfig".to_owned(),
        members: hosts.iter().enumerate().map(member).collect(),
        known: api::TenantNodes::default(),
    }
}

/// A Node that is ready.
pub(super) fn node(name: &str, provider_id: &str, addresses: &[&str]) -> Node {
    Node {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        provider_id: provider_id.to_owned(),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        readiness: Readiness::Ready,
        is_cordoned: false,
        is_cordoned_by_us: false,
        is_of_cluster_api: false,
    }
}
