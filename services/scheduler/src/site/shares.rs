//! How much of a site's room each namespace has.

use std::collections::BTreeMap;

use ::placement::{ClusterName, Namespace};

/// Clusters of a site, and how much each namespace has of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    total: Share,
    namespaces: BTreeMap<Namespace, Share>,
}

/// So many clusters, and about how many bytes they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) clusters: usize,
    pub(super) bytes: usize,
}

impl Shares {
    /// What all namespaces have together.
    pub(super) fn total(&self) -> Share {
        self.total
    }

    /// What a namespace has.
    pub(super) fn get(&self, namespace: &Namespace) -> Share {
        self.namespaces.get(namespace).copied().unwrap_or_default()
    }

    /// Records that there is a cluster more.
    pub(super) fn add(&mut self, cluster: &ClusterName, bytes: usize) {
        let own = self.namespaces.entry(cluster.namespace().clone()).or_default();
        for share in [&mut self.total, own] {
            share.clusters += 1;
            share.bytes += bytes;
        }
    }

    /// Records that there is a cluster less.
    pub(super) fn remove(&mut self, cluster: &ClusterName, bytes: usize) {
        let Some(own) = self.namespaces.get_mut(cluster.namespace()) else {
            return;
        };
        for share in [&mut self.total, &mut *own] {
            share.clusters -= 1;
            share.bytes -= bytes;
        }
        if own.clusters == 0 {
            self.namespaces.remove(cluster.namespace());
        }
    }

    /// Namespaces, the one with the most clusters first.
    pub(super) fn largest_first(&self) -> Vec<Namespace> {
        let mut order: Vec<_> = self.namespaces.iter().collect();
        order.sort_by_key(|(_, share)| std::cmp::Reverse(share.clusters));
        order
            .into_iter()
            .map(|(namespace, _)| namespace.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_counted_apart_and_together() {
        let name = |namespace: &str, name: &str| ClusterName::new(namespace, name).unwrap();
        let mut shares = Shares::default();
        shares.add(&name("a", "1"), 10);
        shares.add(&name("b", "1"), 5);
        shares.add(&name("b", "2"), 5);
        let share = |clusters, bytes| Share { clusters, bytes };
        assert_eq!(shares.total(), share(3, 20));
        assert_eq!(shares.get(name("b", "1").namespace()), share(2, 10));
        let order = shares.largest_first();
        assert_eq!(order[0].as_str(), "b");
        shares.remove(&name("a", "1"), 10);
        assert_eq!(shares.get(name("a", "1").namespace()), Share::default());
        assert_eq!(shares.largest_first().len(), 1);
        assert_eq!(shares.total(), share(2, 10));
    }
}
