//! Connections from many addresses of this machine, as from many strangers.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use tokio::net::{TcpSocket, TcpStream};

/// So many addresses, none of which anything else here uses.
pub const ADDRESSES: u8 = 50;

/// Connects from one of [`ADDRESSES`]; other numbers stand for one of them too.
///
/// # Errors
/// When nobody listens there, or this process has no file left.
pub async fn connect(to: SocketAddr, number: u8) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let from = Ipv4Addr::new(127, 0, 1, number % ADDRESSES + 1);
    socket.bind(SocketAddr::from((from, 0)))?;
    socket.connect(to).await
}
