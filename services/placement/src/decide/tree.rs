//! The outer domains that matter to one role, as a tree: one level per key of the site's hierarchy.

use std::collections::BTreeMap;

use crate::site::{NONE, Site, Slot, Value, at};

/// A number of a domain in a [`Tree`], in the order in which they were met; never shown, and never compared.
pub(crate) type Node = u32;

/// Above the outermost domains.
pub(crate) const ROOT: Node = Node::MAX;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Domain {
    pub(crate) parent: Node,
    /// 0 is the outermost.
    pub(crate) level: usize,
    /// Present members of the role in it.
    pub(crate) load: u32,
}

/// A host without one of the labels is in a domain of those without it. A domain is its whole path, so equal names in two
/// rooms are two domains.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    domains: Vec<Domain>,
    /// By value number; the last is for hosts without the label.
    outermost: Vec<Node>,
    inner: BTreeMap<(Node, Value), Node>,
}

impl Tree {
    /// The innermost domain of a host; [`ROOT`] when the site has no hierarchy.
    pub(crate) fn leaf(&mut self, site: &Site, host: Slot) -> Node {
        let mut node = ROOT;
        for (level, key) in site.policy().hierarchy.iter().enumerate() {
            let value = site
                .column(key)
                .map_or(NONE, |(number, _)| site.value(number, host));
            if level == 0 {
                let width = site.column(key).map_or(0, |(_, column)| column.width());
                self.outermost.resize(width + 1, ROOT);
                let place = if value == NONE { width } else { at(value) };
                if self.outermost[place] == ROOT {
                    self.outermost[place] = self.add(ROOT, level);
                }
                node = self.outermost[place];
            } else if let Some(known) = self.inner.get(&(node, value)) {
                node = *known;
            } else {
                let parent = node;
                node = self.add(parent, level);
                self.inner.insert((parent, value), node);
            }
        }
        node
    }

    fn add(&mut self, parent: Node, level: usize) -> Node {
        self.domains.push(Domain {
            parent,
            level,
            load: 0,
        });
        super::flow::id(self.domains.len() - 1)
    }

    /// Counts a present member.
    pub(crate) fn load(&mut self, site: &Site, host: Slot) {
        let mut node = self.leaf(site, host);
        while let Some(domain) = self.domains.get_mut(at(node)) {
            domain.load += 1;
            node = domain.parent;
        }
    }

    /// A domain and all around it, the innermost first.
    pub(crate) fn upwards(&self, from: Node) -> impl Iterator<Item = (Node, Domain)> {
        let get = |node: Node| self.domains.get(at(node)).map(|domain| (node, *domain));
        std::iter::successors(get(from), move |(_, domain)| get(domain.parent))
    }

    pub(crate) fn domains(&self) -> &[Domain] {
        &self.domains
    }
}
