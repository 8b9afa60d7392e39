//! Which Node of a tenant's cluster runs on which host. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{Wanted, node::Node};

/// Scheme of the providerID of Nodes on hosts of metal3. What follows is the uid of the host, or its namespace and name.
const SCHEME: &str = "metal3://";

/// The Node of each member that has one, by the uid of the member's host. A Node that matches several members belongs to none of them, nor does
/// any of several Nodes that match one member.
pub(super) fn nodes_by_host<'a>(wanted: &Wanted, nodes: &'a [Node]) -> BTreeMap<String, &'a Node> {
    let mut by_address: BTreeMap<IpAddr, Vec<&str>> = BTreeMap::new();
    let mut by_id: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for member in &wanted.members {
        let (key, uid) = (member.host.key(), member.host.uid());
        for address in &member.addresses {
            by_address.entry(*address).or_default().push(uid);
        }
        for id in [uid.to_owned(), format!("{}/{}", key.namespace, key.name)] {
            by_id.entry(id).or_default().push(uid);
        }
    }
    let mut candidates: BTreeMap<&str, Vec<&Node>> = BTreeMap::new();
    for node in nodes {
        let by_id = id(node).and_then(|id| by_id.get(&id));
        let by_address = node
            .addresses
            .iter()
            .filter_map(|address| by_address.get(address));
        let matched: BTreeSet<&str> = by_id.into_iter().chain(by_address).flatten().copied().collect();
        if let [uid] = matched.into_iter().collect::<Vec<_>>()[..] {
            candidates.entry(uid).or_default().push(node);
        }
    }
    let only = candidates.into_iter().filter_map(|(uid, nodes)| match nodes[..] {
        [node] => Some((uid.to_owned(), node)),
        _ => None,
    });
    only.collect()
}

/// The host in a providerID: its uid, or its namespace and name.
fn id(node: &Node) -> Option<String> {
    let mut parts = node.provider_id.strip_prefix(SCHEME)?.split('/');
    let first = parts.next()?;
    // The name of a Metal3Machine may follow.
    Some(match parts.next() {
        Some(name) => format!("{first}/{name}"),
        None => first.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant_nodes::fixtures::{node, wanted};

    #[test]
    fn a_member_has_the_one_node_that_means_it_alone() {
        // Members h1 and h2 have the addresses 192.0.2.1 and 192.0.2.2.
        let wanted = wanted(&["h1", "h2"]);
        let (none, h1, h2) = ("", "192.0.2.1", "192.0.2.2");
        for (what, nodes, expected) in [
            ("by address", vec![node("a", none, &[h1])], vec![("uid-h1", "a")]),
            (
                "by uid",
                vec![node("a", "metal3://uid-h2", &[])],
                vec![("uid-h2", "a")],
            ),
            (
                "by name",
                vec![node("a", "metal3://metal/h2", &[])],
                vec![("uid-h2", "a")],
            ),
            (
                "by name and machine",
                vec![node("a", "metal3://metal/h2/m3m-0", &["203.0.113.9"])],
                vec![("uid-h2", "a")],
            ),
            (
                "both agree",
                vec![node("a", "metal3://uid-h1", &[h1])],
                vec![("uid-h1", "a")],
            ),
            ("both disagree", vec![node("a", "metal3://uid-h1", &[h2])], vec![]),
            ("two hosts", vec![node("a", none, &[h1, h2])], vec![]),
            (
                "two Nodes",
                vec![node("a", none, &[h1]), node("b", none, &[h1])],
                vec![],
            ),
            (
                "two Nodes, and another one",
                vec![
                    node("a", none, &[h1]),
                    node("b", none, &[h1]),
                    node("c", none, &[h2]),
                ],
                vec![("uid-h2", "c")],
            ),
            ("another provider", vec![node("a", "aws:///uid-h1", &[])], vec![]),
            (
                "a stranger",
                vec![node("a", "metal3://metal/h3", &["192.0.2.3"])],
                vec![],
            ),
        ] {
            let found = nodes_by_host(&wanted, &nodes);
            let found: Vec<(&str, &str)> = found.iter().map(|(uid, node)| (&**uid, &*node.name)).collect();
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn an_address_of_two_members_means_neither() {
        let mut wanted = wanted(&["h1", "h2"]);
        let shared = "198.51.100.1".parse().unwrap();
        for member in &mut wanted.members {
            member.addresses.insert(shared);
        }
        assert!(nodes_by_host(&wanted, &[node("a", "", &["198.51.100.1"])]).is_empty());
        assert_eq!(nodes_by_host(&wanted, &[node("a", "", &["192.0.2.1"])]).len(), 1);
    }
}
