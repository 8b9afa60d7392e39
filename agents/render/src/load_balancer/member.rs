//! The hosts behind a load balancer.

use std::net::IpAddr;

/// A host that is balanced to. Ordered by namespace and name, which together are unique in a site.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Member {
    /// Namespace of the BareMetalHost.
    pub namespace: String,
    /// Name of the BareMetalHost.
    pub name: String,
    /// Its address in the network that the load balancer's entry names.
    pub address: IpAddr,
    /// Whether it gets connections only where no other member answers.
    pub is_backup: bool,
}

/// The members in order, each host once.
pub(super) fn sort_unique(members: &[Member]) -> Vec<&Member> {
    let mut members: Vec<_> = members.iter().collect();
    members.sort_unstable();
    members.dedup_by_key(|member| (&member.namespace, &member.name));
    members
}
