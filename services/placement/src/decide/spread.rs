//! How unevenly the members of a role are spread over the domains of the hierarchy.

use super::tree::{Node, Tree};
use crate::site::at;

/// How many members of a role each domain has.
pub(crate) struct Loads<'a> {
    tree: &'a Tree,
    /// In the order of [`Tree::domains`].
    by_domain: Vec<u32>,
}

impl<'a> Loads<'a> {
    /// The members that are present.
    #[inline]
    pub(crate) fn present(tree: &'a Tree) -> Self {
        let by_domain = tree.domains().iter().map(|domain| domain.load).collect();
        Self { tree, by_domain }
    }

    /// Adds a member to an innermost domain, and so to all around it.
    #[inline]
    pub(crate) fn add(&mut self, leaf: Node) {
        self.tree
            .upwards(leaf)
            .for_each(|(node, _)| self.by_domain[at(node)] += 1);
    }

    /// Adds the squares of the loads to the spread, by level. The more even the loads are, the smaller is their sum.
    #[inline]
    pub(crate) fn add_to(self, spread: &mut [u64]) {
        for (domain, load) in self.tree.domains().iter().zip(self.by_domain) {
            spread[domain.level] += u64::from(load) * u64::from(load);
        }
    }
}
