//! The labels that SIP puts on a placed host. Users script against them: they are SIP's, letter for letter.

use crate::names::{ClusterName, RoleName};

/// On a placed host: namespace of the SIPCluster that holds it.
pub const CLUSTER_NAMESPACE: &str = "sip.airshipit.org/cluster-namespace";
/// On a placed host: name of the SIPCluster that holds it. A host without this label is free.
pub const CLUSTER_NAME: &str = "sip.airshipit.org/cluster-name";
/// On a placed host: the role that it serves.
pub const NODE_TYPE: &str = "sip.airshipit.org/node-type";

/// What the three labels of a host state. A host that no cluster holds is free only when it has none of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SipLabels {
    /// None of the three is there.
    #[default]
    None,
    /// Some are there, or a value is not valid: neither a member nor free.
    Partial,
    /// All three are there.
    Complete {
        /// The cluster that they name; it may not exist.
        cluster: ClusterName,
        /// The role that they name.
        role: RoleName,
    },
}

impl SipLabels {
    /// Reads the labels of a host; `label` returns the value of a key. A value that names no cluster or no role counts as partial.
    #[must_use]
    pub fn read<'a>(label: impl Fn(&'static str) -> Option<&'a str>) -> Self {
        match [CLUSTER_NAMESPACE, CLUSTER_NAME, NODE_TYPE].map(label) {
            [None, None, None] => Self::None,
            [Some(namespace), Some(name), Some(role)] => {
                match (ClusterName::new(namespace, name), RoleName::new(role)) {
                    (Ok(cluster), Ok(role)) => Self::Complete { cluster, role },
                    (Err(_), _) | (_, Err(_)) => Self::Partial,
                }
            }
            [_, _, _] => Self::Partial,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_complete_only_with_three_valid_values() {
        let read = |values: [Option<&'static str>; 3]| {
            SipLabels::read(move |key| match key {
                CLUSTER_NAMESPACE => values[0],
                CLUSTER_NAME => values[1],
                _ => values[2],
            })
        };
        assert_eq!(read([None, None, None]), SipLabels::None);
        let complete = SipLabels::Complete {
            cluster: ClusterName::new("lab", "shop").expect("a cluster"),
            role: RoleName::new("Worker").expect("a role"),
        };
        assert_eq!(read([Some("lab"), Some("shop"), Some("Worker")]), complete);
        for partial in [
            [Some("lab"), None, None],
            [Some("lab"), Some("shop"), None],
            [Some("lab"), Some("shop"), Some("")],
            [Some("Lab"), Some("shop"), Some("Worker")],
        ] {
            assert_eq!(read(partial), SipLabels::Partial, "{partial:?}");
        }
    }
}
