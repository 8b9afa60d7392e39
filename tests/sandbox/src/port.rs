//! Free ports for servers that cannot be asked which port they got.

use std::{
    io::{self, Read as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
};

/// A port on 127.0.0.1, as [`reserve_on`] gives it.
///
/// # Errors
/// When the loopback interface cannot be used, or has no port left.
pub fn reserve() -> io::Result<u16> {
    reserve_on(Ipv4Addr::LOCALHOST)
}

/// A port on an address of this machine that nobody listens on, and that the kernel hands out to nobody else for a minute.
///
/// A port that was merely bound and closed again is the next one to be given to any outgoing connection. So one
/// connection is made over it and closed from the server's side first: that leaves the port in `TIME_WAIT`, where an
/// explicit bind with `SO_REUSEADDR` (every server here sets it) may take it, but the kernel's own choice does not.
///
/// The reservation holds for this address alone: connections from another address of this machine may use the port.
///
/// # Errors
/// When the address is none of this machine's, or has no port left.
pub fn reserve_on(address: Ipv4Addr) -> io::Result<u16> {
    let listener = TcpListener::bind((address, 0))?;
    let address = listener.local_addr()?;
    let mut client = TcpStream::connect(address)?;
    let (server, _) = listener.accept()?;
    drop(server);
    client.read_to_end(&mut Vec::new())?;
    Ok(address.port())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_reserved_port_is_usable_and_unique() {
        let ports: Vec<u16> = (0..200).map(|_| reserve().unwrap()).collect();

        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
        for port in ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        }
    }
}
