//! Who is at the other end of an accepted connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::time::Instant;

use super::throttle::Throttle;
use crate::identity::Caller;

/// The other end of a connection; in the extensions of every request. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Peer {
    address: SocketAddr,
    identity: PeerIdentity,
    throttle: Throttle,
}

impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        (self.address, &self.identity) == (other.address, &other.identity)
    }
}

impl Eq for Peer {}

/// What is known about who a peer is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PeerIdentity {
    /// Proven by a certificate.
    Verified(Arc<Caller>),
    /// A process of this machine, on a server that was told to serve loopback without TLS.
    PlaintextLoopback,
}

impl Peer {
    /// A peer that is known to be `identity`, for servers that have their connections from elsewhere than a
    /// [`Listener`](super::Listener): a simulated network.
    #[must_use]
    pub fn new(address: SocketAddr, identity: PeerIdentity) -> Self {
        Self {
            address,
            identity,
            throttle: Throttle::default(),
        }
    }

    /// Where it connects from.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who it is.
    #[must_use]
    pub fn identity(&self) -> &PeerIdentity {
        &self.identity
    }

    /// Reads nothing of this connection before that time, or for a second at most. Answers are written meanwhile.
    pub fn pause(&self, until: Instant) {
        self.throttle.pause(until);
    }

    /// Ends this connection, and with it every call by it. Returns whether nobody has done so before.
    #[must_use]
    pub fn disconnect(&self) -> bool {
        self.throttle.disconnect()
    }

    pub(super) fn throttle(&self) -> &Throttle {
        &self.throttle
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.identity.fmt(f)
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verified(caller) => caller.fmt(f),
            Self::PlaintextLoopback => f.write_str("plaintext-loopback"),
        }
    }
}
