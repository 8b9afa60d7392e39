//! Open connections, by the identity that each has proven.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::peer::PeerIdentity;

/// How many times as many connections the processes of this machine have together, where they are served without TLS: they
/// are all one identity.
const PLAINTEXT_FACTOR: usize = 16;

/// The connections of each identity: a newer one replaces the oldest. An agent whose network loses connections without a
/// word is never locked out by those that it has lost.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    most: usize,
    open: Arc<Mutex<HashMap<PeerIdentity, VecDeque<CancellationToken>>>>,
}

/// A connection among those of its identity, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    connections: Connections,
    identity: PeerIdentity,
    replaced: CancellationToken,
}

impl Connections {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            open: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PeerIdentity, VecDeque<CancellationToken>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection, and says whether the identity's oldest one has to end for it.
    pub(super) fn hold(&self, identity: &PeerIdentity) -> (Held, bool) {
        let most = match identity {
            PeerIdentity::Verified(_) => self.most,
            PeerIdentity::PlaintextLoopback => self.most.saturating_mul(PLAINTEXT_FACTOR),
        };
        let replaced = CancellationToken::new();
        let mut open = self.lock();
        let own = open.entry(identity.clone()).or_default();
        own.push_back(replaced.clone());
        let oldest = (own.len() > most).then(|| own.pop_front()).flatten();
        drop(open);
        if let Some(oldest) = &oldest {
            oldest.cancel();
        }
        let held = Held {
            connections: self.clone(),
            identity: identity.clone(),
            replaced,
        };
        (held, oldest.is_some())
    }
}

impl Held {
    /// Is done when the connection has to end.
    pub(super) fn replaced(&self) -> WaitForCancellationFutureOwned {
        self.replaced.clone().cancelled_owned()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Out of the queue before it is marked: nobody else is told by this.
        let mut open = self.connections.lock();
        if self.replaced.is_cancelled() {
            return;
        }
        self.replaced.cancel();
        if let Some(own) = open.get_mut(&self.identity) {
            own.retain(|connection| !connection.is_cancelled());
            if own.is_empty() {
                open.remove(&self.identity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::agent;

    #[test]
    fn the_newest_replaces_the_oldest_of_its_identity() {
        let connections = Connections::new(2);
        let of = |name| PeerIdentity::Verified(Arc::new(agent(name)));
        let (cluster, other) = (of("cluster"), of("load-balancer"));
        let (first, _) = connections.hold(&cluster);
        let (second, replaced) = connections.hold(&cluster);
        assert!(!replaced);
        let (another, _) = connections.hold(&other);
        let (_third, replaced) = connections.hold(&cluster);
        assert!(replaced && first.replaced.is_cancelled());
        assert!(!second.replaced.is_cancelled() && !another.replaced.is_cancelled());
    }

    #[test]
    fn closed_connections_are_forgotten() {
        let connections = Connections::new(1);
        let identity = PeerIdentity::Verified(Arc::new(agent("cluster")));
        for _ in 0..3 {
            let (_held, replaced) = connections.hold(&identity);
            assert!(!replaced);
        }
        let (first, _) = connections.hold(&identity);
        let (second, _) = connections.hold(&identity);
        drop(first);
        assert_eq!(connections.lock().len(), 1, "of the second");
        drop(second);
        assert!(connections.lock().is_empty());
    }
}
