//! The nodes that a jump host leads to, by the configuration of ssh that its agent has rendered for it. Everything else in that text is left
//! out.

use std::net::IpAddr;

use super::block::{is_alias, is_name};

/// A node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Node {
    pub(super) names: Vec<String>,
    pub(super) address: Option<IpAddr>,
    /// Under which name its host key is kept.
    pub(super) alias: Option<String>,
}

/// Reads the blocks of nodes, which have names, an address and an alias.
pub(super) fn parse(text: &str) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), nodes.last_mut()) {
            (Some("Host"), _) => nodes.push(Node {
                names: words.filter(|name| is_name(name)).map(str::to_owned).collect(),
                ..Node::default()
            }),
            (Some("HostName"), Some(node)) => node.address = words.next().and_then(|word| word.parse().ok()),
            (Some("HostKeyAlias"), Some(node)) => {
                node.alias = words.next().filter(|word| is_alias(word)).map(str::to_owned);
            }
            _ => {}
        }
    }
    nodes.retain(|node| !node.names.is_empty() && node.address.is_some() && node.alias.is_some());
    nodes
}
