//! Where the agent connects to on behalf of tenants. A tenant names directories, the address of its provider and its API server. Without a rule
//! it could make the agent, which is in the site's own network, connect to addresses that the tenant cannot reach.
//!
//! The agent resolves a name first, and connects to an address that it has checked, so it does not matter what the name resolves to a moment
//! later.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use http::Uri;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use runtime::resolver::Resolver;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Addresses that mean the machine itself, its link or many machines, and the metadata addresses of clouds, which give credentials to the cloud's
/// machines.
const SPECIAL_NETWORKS: [IpNet; 16] = [
    four([0, 0, 0, 0], 8),
    four([127, 0, 0, 0], 8),
    four([169, 254, 0, 0], 16),
    four([224, 0, 0, 0], 4),
    four([255, 255, 255, 255], 32),
    four([100, 100, 100, 200], 32),
    four([192, 0, 0, 192], 32),
    four([168, 63, 129, 16], 32),
    six(0, 128),
    six(1, 128),
    six(0xfe80 << 112, 10),
    six(0xff00 << 112, 8),
    // Traffic to these reaches IPv4 addresses by translation or a tunnel, and those would not be checked.
    six(0x0064_ff9b_0001 << 80, 48),
    six(0x2002 << 112, 16),
    six((0xfd00_0ec2 << 96) | 0x254, 128),
    six((0xfd20_00ce << 96) | 0x254, 128),
];
/// Addresses of one name that the agent tries at most.
const MAX_ADDRESSES: usize = 4;
/// Timeout for connecting to one of these addresses; all together leave a check enough time for the response.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

const fn four([a, b, c, d]: [u8; 4], length: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length))
}

const fn six(bits: u128, length: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), length))
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name has no address, or no address accepts the connection.
    #[error(transparent)]
    Connect(#[from] io::Error),
    /// The name has no address.
    #[error("the name has no address")]
    NoAddress,
    /// No address may be connected to.
    #[error("the agent does not connect to {address}: {rule}")]
    Refused {
        /// The first address.
        address: IpAddr,
        /// The rule.
        rule: &'static str,
    },
}

/// A host and a port.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Peer {
    host: String,
    port: u16,
}

/// The addresses that the agent may connect to where a tenant names the host.
#[derive(Clone, Debug)]
pub struct Destinations {
    resolver: Resolver,
    allowed: Option<Vec<IpNet>>,
    own: Vec<Peer>,
}

impl Destinations {
    /// With the networks that the site's operators allow, if they limit them, and the servers that the agent itself depends on.
    #[must_use]
    pub fn new(resolver: Resolver, allowed: Option<&[IpNet]>, own: impl IntoIterator<Item = Uri>) -> Self {
        let own = own.into_iter().filter_map(|uri| {
            let host = uri.host()?.trim_matches(['[', ']']).to_owned();
            let port = if uri.scheme_str() == Some("http") { 80 } else { 443 };
            Some(Peer {
                host,
                port: uri.port_u16().unwrap_or(port),
            })
        });
        Self {
            resolver,
            allowed: allowed.map(<[IpNet]>::to_vec),
            own: own.collect(),
        }
    }

    /// Connects to a host, which is a DNS name or an IP address.
    ///
    /// # Errors
    /// When there is no connection.
    pub async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, Error> {
        first_of(self.addresses(host, port).await?).await
    }

    /// The addresses of a host that the agent may connect to.
    ///
    /// # Errors
    /// When there are none.
    pub async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
        let own = self.own_addresses(port).await?;
        let mut refused = Error::NoAddress;
        let mut allowed = Vec::new();
        for address in self.resolver.addresses(host, port).await? {
            match self.refusal(address, &own) {
                None => allowed.push(address),
                Some(rule) if matches!(refused, Error::NoAddress) => {
                    refused = Error::Refused {
                        address: address.ip(),
                        rule,
                    };
                }
                Some(_) => {}
            }
        }
        if allowed.is_empty() {
            Err(refused)
        } else {
            Ok(allowed)
        }
    }

    /// Addresses of the servers with this port that the agent itself depends on. Without them no address with this port is allowed: it
    /// could be one of theirs.
    async fn own_addresses(&self, port: u16) -> Result<Vec<SocketAddr>, Error> {
        let mut addresses = Vec::new();
        for peer in self.own.iter().filter(|peer| peer.port == port) {
            addresses.extend(self.resolver.addresses(&peer.host, port).await?);
        }
        Ok(addresses)
    }

    /// The rule by which an address is refused.
    fn refusal(&self, address: SocketAddr, own: &[SocketAddr]) -> Option<&'static str> {
        let ip = canonical(address.ip());
        let is_own = |own: &SocketAddr| canonical(own.ip()) == ip && own.port() == address.port();
        if own.iter().any(is_own) {
            return Some("it is the address of a server of the site");
        }
        let special = SPECIAL_NETWORKS.iter().find(|special| special.contains(&ip));
        let Some(allowed) = &self.allowed else {
            return special
                .map(|_| "it is a loopback, unspecified, link-local, multicast or cloud metadata address");
        };
        // A network that contains other addresses, too, is not meant to allow special ones.
        let allows = |network: &IpNet| {
            network.contains(&ip) && special.is_none_or(|special| special.contains(network))
        };
        (!allowed.iter().any(allows)).then_some("it is in no network of identityProviders.allowedNetworks")
    }
}

/// The first of these that accepts a connection.
async fn first_of(addresses: Vec<SocketAddr>) -> Result<TcpStream, Error> {
    let mut failed = Error::NoAddress;
    for address in addresses.into_iter().take(MAX_ADDRESSES) {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failed = Error::Connect(error),
            Err(elapsed) => failed = Error::Connect(elapsed.into()),
        }
    }
    Err(failed)
}

/// The address that is reached in the end: an IPv4 address may be written as an IPv6 one.
fn canonical(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else {
        return address;
    };
    match six.segments() {
        // IPv4-mapped, and NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            Ipv4Addr::new(a, b, c, d).into()
        }
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    fn resolver() -> Resolver {
        Resolver::from_system().unwrap()
    }

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    async fn allows(destinations: &Destinations, host: &str) -> bool {
        destinations.addresses(host, 636).await.is_ok()
    }

    #[tokio::test]
    async fn a_tenant_cannot_have_the_agent_connect_to_the_machine() {
        let destinations = Destinations::new(resolver(), None, []);
        for host in [
            "127.0.0.1",
            "127.8.9.1",
            "localhost",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "255.255.255.255",
            "224.0.0.1",
            "100.100.100.200",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
            "168.63.129.16",
            "64:ff9b:1::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
            // As some resolvers read numbers.
            "127.1",
            "2130706433",
            "0x7f.1",
        ] {
            assert!(!allows(&destinations, host).await, "{host}");
        }
        for host in ["192.0.2.1", "10.1.2.3", "2001:db8::1", "64:ff9b::192.0.2.1"] {
            assert!(allows(&destinations, host).await, "{host}");
        }
        let error = destinations.connect("127.0.0.1", 636).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the agent does not connect to 127.0.0.1: it is a loopback, unspecified, link-local, multicast or cloud metadata address"
        );
    }

    #[tokio::test]
    async fn operators_limit_the_networks() {
        let destinations = Destinations::new(
            resolver(),
            Some(&networks(&["10.0.0.0/8", "127.0.0.2/32", "::/0"])),
            [],
        );
        for host in ["10.1.2.3", "127.0.0.2", "2001:db8::1", "::ffff:10.1.2.3"] {
            assert!(allows(&destinations, host).await, "{host}");
        }
        for host in ["192.0.2.1", "127.0.0.1", "::1", "fe80::1", "::ffff:192.0.2.1"] {
            assert!(!allows(&destinations, host).await, "{host}");
        }
        let all = Destinations::new(resolver(), Some(&networks(&["0.0.0.0/0", "::/0"])), []);
        assert!(!allows(&all, "127.0.0.1").await && !allows(&all, "169.254.169.254").await);
    }

    #[tokio::test]
    async fn servers_of_the_site_are_never_reached_for_a_tenant() {
        let own = [
            "https://127.0.0.1:636",
            "https://[2001:db8::5]:636/x",
            "http://192.0.2.9",
        ];
        let own = own.map(|uri| uri.parse::<Uri>().unwrap());
        let allowed = networks(&["127.0.0.0/8", "2001:db8::/32", "192.0.2.0/24"]);
        let destinations = Destinations::new(resolver(), Some(&allowed), own);
        for host in ["127.0.0.1", "::ffff:127.0.0.1", "2001:db8::5"] {
            assert!(!allows(&destinations, host).await, "{host}");
        }
        assert!(allows(&destinations, "127.0.0.2").await);
        assert!(destinations.addresses("127.0.0.1", 637).await.is_ok());
        assert!(destinations.addresses("192.0.2.9", 80).await.is_err());
    }

    #[tokio::test]
    async fn an_address_that_never_answers_leaves_time_for_the_next() {
        // Linux drops connections to a listener whose queue is full.
        let full = TcpSocket::new_v4().unwrap();
        full.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let full = full.listen(1).unwrap();
        let silent = full.local_addr().unwrap();
        let mut queue = Vec::new();
        while let Ok(Ok(waiting)) = timeout(CONNECT_TIMEOUT / 2, TcpStream::connect(silent)).await {
            queue.push(waiting);
            assert!(queue.len() < 16, "the queue is never full");
        }
        let live = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = live.local_addr().unwrap();
        let stream = first_of(vec![silent, address]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
    }

    #[tokio::test]
    async fn an_unresolved_server_of_the_site_refuses_its_port() {
        let own: Uri = "https://etcd.invalid:2379".parse().unwrap();
        let destinations = Destinations::new(resolver(), None, [own]);
        assert!(destinations.addresses("192.0.2.1", 2379).await.is_err());
        assert!(allows(&destinations, "192.0.2.1").await);
    }
}
