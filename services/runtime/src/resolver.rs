//! Addresses of host names.
//!
//! The standard library asks the C library, which blocks a thread for each name and cannot be cancelled: tenants who name hosts whose name
//! servers do not answer would take every thread that the process has for files and names. Here a lookup is a task like others, and it ends
//! when nobody waits for it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, ResolverOpts};

/// How long one name server may take for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of requests without an answer on one connection to a name server.
const MAX_PENDING_REQUESTS: usize = 4_096;

/// Resolves host names by this machine's name servers and its file of hosts. Cheap to clone.
#[derive(Clone)]
pub struct Resolver(TokioResolver);

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

impl Resolver {
    /// Reads the machine's configuration (`/etc/resolv.conf`, `/etc/hosts`).
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn from_system() -> io::Result<Self> {
        let mut builder = TokioResolver::builder_tokio().map_err(io::Error::other)?;
        configure(builder.options_mut());
        Ok(Self(builder.build().map_err(io::Error::other)?))
    }

    /// The addresses of a host, which is a DNS name or an IP address; at least one.
    ///
    /// # Errors
    /// When it has none, or no name server answers in time.
    pub async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let found = self.0.lookup_ip(host).await.map_err(io::Error::other)?;
        Ok(found
            .iter()
            .map(|address| SocketAddr::new(address, port))
            .collect())
    }
}

fn configure(options: &mut ResolverOpts) {
    // Many hosts have an IPv6 address that is not routed.
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.timeout = ANSWER_TIMEOUT;
    options.max_active_requests = MAX_PENDING_REQUESTS;
    // The name servers have caches. An address that is changed, or a name that is added, has effect at once.
    options.cache_size = 0;
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures::future::join_all;
    use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
    use hickory_resolver::net::runtime::TokioRuntimeProvider;
    use tokio::net::UdpSocket;
    use tokio::time::timeout;

    use super::*;

    const HEADER_BYTES: usize = 12;

    /// A name server that knows the address of every name, and does not answer for names that begin with `silent`.
    async fn name_server() -> Resolver {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut server = NameServerConfig::udp(Ipv4Addr::LOCALHOST.into());
        let mut connection = ConnectionConfig::udp();
        connection.port = socket.local_addr().unwrap().port();
        server.connections = vec![connection];
        tokio::spawn(async move {
            let mut query = [0; 512];
            loop {
                let (length, from) = socket.recv_from(&mut query).await.unwrap();
                let query = &query[..length];
                if !query[HEADER_BYTES + 1..]
                    .to_ascii_lowercase()
                    .starts_with(b"silent")
                {
                    socket.send_to(&answer(query), from).await.unwrap();
                }
            }
        });
        let config = ResolverConfig::from_parts(None, vec![], vec![server]);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        configure(builder.options_mut());
        Resolver(builder.build().unwrap())
    }

    /// 192.0.2.7 for a question about IPv4, and nothing for another one (RFC 1035, 4.1).
    fn answer(query: &[u8]) -> Vec<u8> {
        let name = query[HEADER_BYTES..].iter().position(|byte| *byte == 0).unwrap();
        let question = &query[HEADER_BYTES..HEADER_BYTES + name + 5];
        let is_ipv4 = question[name + 1..name + 3] == [0, 1];
        let mut answer = query[..2].to_vec();
        answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_ipv4), 0, 0, 0, 0]);
        answer.extend(question);
        if is_ipv4 {
            // The name of the question, type A, class IN, a minute, four bytes.
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
        }
        answer
    }

    #[tokio::test]
    async fn names_and_addresses_have_addresses() {
        let resolver = name_server().await;
        for (host, expected) in [
            ("directory.example", "192.0.2.7:636"),
            ("198.51.100.1", "198.51.100.1:636"),
            ("2001:db8::1", "[2001:db8::1]:636"),
        ] {
            let expected: SocketAddr = expected.parse().unwrap();
            assert_eq!(resolver.addresses(host, 636).await.unwrap(), [expected], "{host}");
        }
        for host in ["silent.example", &"a".repeat(300)] {
            let found = timeout(Duration::from_secs(30), resolver.addresses(host, 636)).await;
            assert!(found.unwrap().is_err(), "{host:?}");
        }
    }

    #[tokio::test]
    async fn names_without_an_answer_delay_no_other() {
        let resolver = name_server().await;
        let silent: Vec<String> = (0..600)
            .map(|number| format!("silent-{number}.example"))
            .collect();
        let mut waiting = join_all(silent.iter().map(|host| resolver.addresses(host, 636)));
        assert!(futures::poll!(&mut waiting).is_pending());
        let other = timeout(ANSWER_TIMEOUT / 2, resolver.addresses("directory.example", 636));
        tokio::select! {
            found = other => assert!(found.unwrap().is_ok()),
            _ = waiting => panic!("names without an answer have one"),
        }
    }
}
