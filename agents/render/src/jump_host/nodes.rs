//! The hosts that ssh reaches, and their names in ssh's configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use vocabulary::dns;

/// Number of kinds of names that a node can have.
const NAME_CHOICES: usize = 4;

/// A host of the cluster. Ordered by namespace and name, which together are unique in a site.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Node {
    namespace: String,
    name: String,
    address: IpAddr,
    /// Whether an API server of the tenant runs there.
    control_plane: bool,
    /// Such as `worker-3`: a name that its replacement inherits.
    ordinal: Option<String>,
}

impl Node {
    /// A BareMetalHost with its address; `None` if its namespace or name are none that the API server accepts.
    #[must_use]
    pub fn new(namespace: &str, name: &str, address: IpAddr, control_plane: bool) -> Option<Self> {
        (dns::is_label(namespace) && dns::is_subdomain(name)).then(|| Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            address,
            control_plane,
            ordinal: None,
        })
    }

    /// With the name that its replacement inherits: its role in lower case and its number in it. A role that is no part of a name
    /// gives none.
    #[must_use]
    pub fn numbered(self, role: &str, number: u32) -> Self {
        let name = format!("{}-{number}", role.to_ascii_lowercase());
        Self {
            ordinal: dns::is_label(&name).then_some(name),
            ..self
        }
    }

    /// Its address in the network that the jump host's entry names.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Whether an API server of the tenant runs there.
    #[must_use]
    pub fn is_control_plane(&self) -> bool {
        self.control_plane
    }

    /// `NAMESPACE/NAME`: the name under which ssh stores its host key, whatever its address.
    #[must_use]
    pub fn host_key_alias(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Its name, and what is before its first dot.
    fn own_names(&self) -> [&str; 2] {
        [&self.name, self.name.split('.').next().unwrap_or_default()]
    }

    /// Its names by preference: the name, its first label, the name with the namespace, and its number in its role. Without a number, or with a
    /// role in `unnumbered`, the name takes the place of the number.
    fn candidates(&self, unnumbered: &BTreeSet<&str>) -> [String; NAME_CHOICES] {
        let [name, short] = self.own_names();
        let ordinal = self.ordinal.as_deref();
        let ordinal =
            ordinal.filter(|ordinal| numbered_role(ordinal).is_none_or(|role| !unnumbered.contains(role)));
        [
            name.to_owned(),
            short.to_owned(),
            format!("{name}.{}", self.namespace),
            ordinal.unwrap_or(name).to_owned(),
        ]
    }
}

/// What is before the number of a name like `worker-3`.
fn numbered_role(name: &str) -> Option<&str> {
    let (role, number) = name.rsplit_once('-')?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(role)
}

/// Each node once, in order, with the names by which ssh finds it. A name for which two nodes have the same preference belongs to neither, and a
/// host's own name wins over one that is derived from another's. If the name of a host looks like a number in a role, no number of that role is a
/// name: another host may have had that number's name until it left, and somebody who still uses it must not reach the host that has the number.
#[must_use]
pub fn assign_names(nodes: &[Node]) -> Vec<(&Node, Vec<String>)> {
    let mut nodes: Vec<&Node> = nodes.iter().collect();
    nodes.sort_unstable();
    nodes.dedup_by_key(|node| (&node.namespace, &node.name));
    let unnumbered = nodes.iter().flat_map(|node| node.own_names());
    let unnumbered: BTreeSet<&str> = unnumbered.filter_map(numbered_role).collect();
    // For each name, how many nodes have it at each preference.
    let mut claims: BTreeMap<String, [usize; NAME_CHOICES]> = BTreeMap::new();
    for node in &nodes {
        let candidates = node.candidates(&unnumbered);
        for (choice, name) in candidates.iter().enumerate() {
            if !candidates[..choice].contains(name) {
                claims.entry(name.clone()).or_default()[choice] += 1;
            }
        }
    }
    let is_own = |name: &str, choice: usize| {
        claims
            .get(name)
            .is_some_and(|claims| claims[choice] == 1 && claims[..choice].iter().all(|others| *others == 0))
    };
    let names = |node: &Node| {
        let candidates = node.candidates(&unnumbered);
        let names = candidates.iter().enumerate();
        let names =
            names.filter(|(choice, name)| !candidates[..*choice].contains(name) && is_own(name, *choice));
        names.map(|(_, name)| name.clone()).collect()
    };
    nodes.iter().map(|node| (*node, names(node))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(namespace: &str, name: &str) -> Node {
        Node::new(namespace, name, IpAddr::from([192, 0, 2, 1]), false).unwrap()
    }

    #[test]
    fn no_two_nodes_have_the_same_name() {
        for (nodes, expected) in [
            (vec![("metal", "a")], vec![vec!["a", "a.metal"]]),
            (
                vec![("metal", "a.rack1"), ("metal", "b.rack1")],
                vec![
                    vec!["a.rack1", "a", "a.rack1.metal"],
                    vec!["b.rack1", "b", "b.rack1.metal"],
                ],
            ),
            (
                vec![("metal", "a.rack1"), ("metal", "a.rack2")],
                vec![vec!["a.rack1", "a.rack1.metal"], vec!["a.rack2", "a.rack2.metal"]],
            ),
            (
                vec![("one", "a"), ("two", "a")],
                vec![vec!["a.one"], vec!["a.two"]],
            ),
            // The second has the name that the first would have with its namespace.
            (
                vec![("b", "a"), ("c", "a.b")],
                vec![vec!["a"], vec!["a.b", "a.b.c"]],
            ),
            (vec![("metal", "a"), ("metal", "a")], vec![vec!["a", "a.metal"]]),
        ] {
            let nodes: Vec<_> = nodes
                .iter()
                .map(|(namespace, name)| node(namespace, name))
                .collect();
            let names: Vec<_> = assign_names(&nodes).into_iter().map(|(_, names)| names).collect();
            assert_eq!(names, expected);
        }
    }

    #[test]
    fn a_node_is_found_by_the_number_in_its_role() {
        let numbered = |name: &str, role: &str, number| node("metal", name).numbered(role, number);
        for (nodes, expected) in [
            (
                vec![numbered("a", "ControlPlane", 0), numbered("b", "Worker", 3)],
                vec![
                    vec!["a", "a.metal", "controlplane-0"],
                    vec!["b", "b.metal", "worker-3"],
                ],
            ),
            // worker-1 has left. Who still names it must not get to the host that has the number 1.
            (
                vec![
                    numbered("b", "ControlPlane", 0),
                    numbered("worker-5", "Worker", 1),
                ],
                vec![
                    vec!["b", "b.metal", "controlplane-0"],
                    vec!["worker-5", "worker-5.metal"],
                ],
            ),
            (
                vec![numbered("a", "Worker", 0), numbered("worker-0.rack", "Worker", 1)],
                vec![
                    vec!["a", "a.metal"],
                    vec!["worker-0.rack", "worker-0", "worker-0.rack.metal"],
                ],
            ),
            (
                vec![numbered("a", "Worker", 0), numbered("worker-b", "Worker", 1)],
                vec![
                    vec!["a", "a.metal", "worker-0"],
                    vec!["worker-b", "worker-b.metal", "worker-1"],
                ],
            ),
            (vec![numbered("a", "My_Role", 0)], vec![vec!["a", "a.metal"]]),
        ] {
            let names: Vec<_> = assign_names(&nodes).into_iter().map(|(_, names)| names).collect();
            assert_eq!(names, expected);
        }
    }

    #[test]
    fn names_that_no_object_can_have_are_refused() {
        for (namespace, name) in [
            ("metal", "a\nb"),
            ("me tal", "a"),
            ("metal", "*"),
            ("metal", "!a"),
            ("", "a"),
        ] {
            assert_eq!(
                Node::new(namespace, name, IpAddr::from([192, 0, 2, 1]), false),
                None
            );
        }
    }
}
