//! TCP connections of the pod, by the kernel's tables.

use std::{collections::BTreeSet, net::IpAddr};

use procfs::{
    ProcError,
    net::{self, TcpNetEntry, TcpState},
};

/// Address and port of a connection's other end. An address of IPv4 is in its usual form.
pub type Remote = (IpAddr, u16);

/// The other ends of all connections that this side has not closed.
///
/// # Errors
/// When a table cannot be read.
pub fn remotes() -> Result<BTreeSet<Remote>, ProcError> {
    let ipv4 = net::tcp()?;
    // The kernel has this table only where IPv6 is enabled. Sockets that accept both have their connections of IPv4 here.
    let ipv6 = match net::tcp6() {
        Err(ProcError::NotFound(_)) => Vec::new(),
        read => read?,
    };
    Ok(ipv4.iter().chain(&ipv6).filter_map(open).collect())
}

fn open(entry: &TcpNetEntry) -> Option<Remote> {
    let is_open = matches!(entry.state, TcpState::Established | TcpState::CloseWait);
    let remote = entry.remote_address;
    is_open.then(|| (remote.ip().to_canonical(), remote.port()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_is_listed_until_this_side_closes_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, from) = listener.accept().unwrap();
        let remote = (from.ip(), from.port());
        assert!(remotes().unwrap().contains(&remote));
        drop(accepted);
        assert!(!remotes().unwrap().contains(&remote));
        drop(client);
    }
}
