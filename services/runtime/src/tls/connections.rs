//! Open connections, by the identity that each has proven.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::peer::PeerIdentity;
use crate::identity::Name;
use crate::quiet::QuietByAddress;

/// How many times as many connections the processes of this machine have together, where they are served without TLS: they
/// are all one identity.
const PLAINTEXT_FACTOR: usize = 16;

/// How many times as many connections as one identity all identities of a site have together: the owner of its CA makes as many
/// names as it likes.
const SITE_FACTOR: usize = 4;

/// Open connections of one identity, in the order in which they came, each with its number among all.
type Open = VecDeque<(u64, CancellationToken)>;

/// The connections of each identity: a newer one replaces the oldest. So an agent whose network drops connections without closing them can always
/// connect again.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    most: usize,
    open: Arc<Mutex<State>>,
    /// Limits log lines about replaced connections.
    log: Arc<QuietByAddress>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    identities: HashMap<PeerIdentity, Open>,
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
            log: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection, and says whether another one has to end for it: the oldest of its identity, or, where all identities
    /// of its site have too many, the oldest of the one with the most.
    pub(super) fn hold(&self, identity: &PeerIdentity) -> (Held, bool) {
        let most = match identity {
            PeerIdentity::Verified(_) => self.most,
            PeerIdentity::PlaintextLoopback => self.most.saturating_mul(PLAINTEXT_FACTOR),
        };
        let replaced = CancellationToken::new();
        let oldest = {
            let mut state = self.lock();
            let number = state.next;
            state.next += 1;
            let own = state.identities.entry(identity.clone()).or_default();
            own.push_back((number, replaced.clone()));
            let full = own.len() > most;
            let victim = if full {
                Some(identity.clone())
            } else {
                site(identity).and_then(|site| state.largest(site, self.most.saturating_mul(SITE_FACTOR)))
            };
            victim.and_then(|identity| state.pop(&identity))
        };
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

/// The site whose authority has made the identity.
pub(super) fn site(identity: &PeerIdentity) -> Option<&Name> {
    match identity {
        PeerIdentity::Verified(caller) => caller.site(),
        PeerIdentity::PlaintextLoopback => None,
    }
}

impl State {
    /// The identity of a site with the most connections, of equal ones that with the oldest; `None` while all have no more than `most`.
    fn largest(&self, of: &Name, most: usize) -> Option<PeerIdentity> {
        let own = self
            .identities
            .iter()
            .filter(|(identity, _)| site(identity) == Some(of));
        if own.clone().map(|(_, open)| open.len()).sum::<usize>() <= most {
            return None;
        }
        let oldest = |open: &Open| open.front().map(|(number, _)| Reverse(*number));
        own.max_by_key(|(_, open)| (open.len(), oldest(open)))
            .map(|(identity, _)| identity.clone())
    }

    /// Takes the oldest connection of an identity out.
    fn pop(&mut self, identity: &PeerIdentity) -> Option<CancellationToken> {
        let own = self.identities.get_mut(identity)?;
        let (_, oldest) = own.pop_front()?;
        if own.is_empty() {
            self.identities.remove(identity);
        }
        Some(oldest)
    }
}

impl Held {
    /// Completes when a newer connection replaces this one.
    pub(super) fn replaced(&self) -> WaitForCancellationFutureOwned {
        self.replaced.clone().cancelled_owned()
    }

    /// Whether its end is to be logged, and how many before it were not.
    pub(super) fn line(&self, address: IpAddr) -> Option<u64> {
        self.connections.log.line(address)
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
        if let Some(own) = open.identities.get_mut(&self.identity) {
            own.retain(|(_, connection)| !connection.is_cancelled());
            if own.is_empty() {
                open.identities.remove(&self.identity);
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
    fn names_of_a_site_replace_those_with_the_most_connections() {
        let connections = Connections::new(4);
        let of = |name: &str| PeerIdentity::Verified(Arc::new(agent(name)));
        let (cluster, _) = connections.hold(&of("cluster"));
        let many: Vec<_> = (0..40)
            .map(|number| connections.hold(&of(&format!("n{}", number / 4))).0)
            .collect();
        let open = many.iter().filter(|held| !held.replaced.is_cancelled());
        assert_eq!(open.count() + 1, 16, "four times four");
        assert!(!cluster.replaced.is_cancelled());
        let operator = crate::identity::Caller::Operator {
            name: "ana".parse().unwrap(),
        };
        let (_, replaced) = connections.hold(&PeerIdentity::Verified(Arc::new(operator)));
        assert!(!replaced, "of no site");
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
        assert_eq!(connections.lock().identities.len(), 1, "of the second");
        drop(second);
        assert!(connections.lock().identities.is_empty());
    }
}
