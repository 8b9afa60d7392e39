//! The outer domains that matter to one role, as a tree: one level per key of the site's hierarchy.

use std::collections::BTreeMap;

use crate::site::{Key, NONE, Site, Slot, Value, at};

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
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    domains: Vec<Domain>,
    /// The hierarchy's keys, the outermost first; None for one that no host has.
    keys: Vec<Option<Key>>,
    /// By value number; the last is for hosts without the label.
    outermost: Vec<Node>,
    inner: BTreeMap<(Node, Value), Node>,
}

impl Tree {
    /// Without any domain yet.
    pub(crate) fn new(site: &Site) -> Self {
        let hierarchy = site.policy().hierarchy.iter();
        let columns: Vec<_> = hierarchy.map(|key| site.column(key)).collect();
        let width = columns
            .first()
            .map_or(0, |column| column.map_or(0, |(_, column)| column.width()));
        Self {
            domains: Vec::new(),
            keys: columns
                .into_iter()
                .map(|column| column.map(|(key, _)| key))
                .collect(),
            outermost: vec![ROOT; width + 1],
            inner: BTreeMap::new(),
        }
    }

    /// The innermost domain of a host; [`ROOT`] when the site has no hierarchy.
    pub(crate) fn leaf(&mut self, site: &Site, host: Slot) -> Node {
        let mut node = ROOT;
        for level in 0..self.keys.len() {
            let value = self.keys[level].map_or(NONE, |key| site.value(key, host));
            if level == 0 {
                let last = self.outermost.len() - 1;
                let place = if value == NONE { last } else { at(value) };
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
        super::flow::number(self.domains.len() - 1)
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
