//! The addresses of a real node: a block that no other sandbox on this machine has.

use std::{fmt, net::Ipv4Addr};

/// 1,024 addresses of 198.18.0.0/15, which RFC 2544 keeps for tests within one network: nobody else's route leads there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block(u8);

/// An IPv4 network of 256 addresses or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subnet {
    first_three: [u8; 3],
    /// Bits of the prefix.
    bits: u8,
}

impl Block {
    /// All there are, in the order in which they are tried.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..128).map(Self)
    }

    /// The host's end of the link to the node. There may be only one of a name: it is the claim to the block.
    pub(super) fn interface(self) -> String {
        format!("sip-node-{}", self.0)
    }

    /// All of it, as `ip` wants it.
    pub(super) fn whole(self) -> String {
        let whole = Subnet {
            bits: 22,
            ..self.part(0)
        };
        whole.to_string()
    }

    /// Between host and node.
    pub(super) fn link(self) -> Subnet {
        self.part(0)
    }

    /// Of the pods.
    pub(super) fn pods(self) -> Subnet {
        self.part(1)
    }

    /// Of the Services.
    pub(crate) fn services(self) -> Subnet {
        self.part(2)
    }

    /// The host, as the node and its pods see it.
    pub(crate) fn host(self) -> Ipv4Addr {
        self.link().address(1)
    }

    /// Other addresses of the host: each plays a machine beside the node.
    pub(super) fn machines(self) -> [Ipv4Addr; 3] {
        [11, 12, 13].map(|last| self.link().address(last))
    }

    /// The node.
    pub(super) fn node(self) -> Ipv4Addr {
        self.link().address(2)
    }

    fn part(self, part: u8) -> Subnet {
        // 64 blocks in each of 198.18 and 198.19.
        Subnet::new([198, 18 + (self.0 >> 6), (self.0 & 63) << 2 | part], 24)
    }
}

impl Subnet {
    pub(crate) const fn new(first_three: [u8; 3], bits: u8) -> Self {
        Self { first_three, bits }
    }

    pub(crate) const fn address(self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.first_three;
        Ipv4Addr::new(a, b, c, last)
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address(0), self.bits)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_blocks_share_a_network_and_all_are_for_tests() {
        let networks: Vec<String> = Block::all()
            .flat_map(|block| [block.link(), block.pods(), block.services()])
            .map(|subnet| subnet.to_string())
            .collect();

        assert_eq!(networks.len(), 3 * 128);
        assert_eq!(networks.iter().collect::<BTreeSet<_>>().len(), networks.len());
        assert!(
            networks
                .iter()
                .all(|network| network.starts_with("198.18.") || network.starts_with("198.19."))
        );
    }

    #[test]
    fn a_block_names_its_parts() {
        let block = Block(65);

        assert_eq!(block.interface(), "sip-node-65");
        assert_eq!(block.whole(), "198.19.4.0/22");
        assert_eq!(
            (block.host(), block.node()),
            (Ipv4Addr::new(198, 19, 4, 1), Ipv4Addr::new(198, 19, 4, 2))
        );
        assert_eq!(block.pods().to_string(), "198.19.5.0/24");
        assert_eq!(block.services().to_string(), "198.19.6.0/24");
    }
}
