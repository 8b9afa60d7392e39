//! Connections to the port: each has a slot, and loses it if it makes no call or its namespace opens too many.
//!
//! Everything that reaches the port can open connections. A connection without an admitted call of a jump host is *silent*, and loses its slot to
//! others first ([`ConnectionSlots`]). With its first call it counts among the connections of its namespace, which is a tenant.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::Duration,
};

use runtime::connection_slots::{ConnectionSlot, ConnectionSlots};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// Connections of all callers, at most. A further one replaces another.
const MAX_CONNECTIONS: usize = 512;
/// Connections of one namespace with admitted calls, at most. A further one replaces another of them.
const MAX_CONNECTIONS_PER_NAMESPACE: usize = 64;
/// Time for which a connection without calls is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The connections that are open. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    slots: ConnectionSlots,
    namespaces: Arc<Mutex<HashMap<String, VecDeque<Weak<Open>>>>>,
}

/// The other end of a connection; in the extensions of every request. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<Open>);

/// An admitted call, until it is dropped.
#[derive(Debug)]
pub(crate) struct Call(Peer);

#[derive(Debug)]
struct Open {
    address: SocketAddr,
    connections: Connections,
    slot: ConnectionSlot,
    /// Namespace of its first call.
    namespace: OnceLock<String>,
    replaced: CancellationToken,
    calls: watch::Sender<Calls>,
}

#[derive(Clone, Copy, Debug)]
struct Calls {
    in_progress: usize,
    /// When `in_progress` changed last.
    since: Instant,
}

impl Default for Connections {
    fn default() -> Self {
        Self::new(MAX_CONNECTIONS)
    }
}

impl Connections {
    fn new(most: usize) -> Self {
        Self {
            slots: ConnectionSlots::new(most),
            namespaces: Arc::default(),
        }
    }

    /// Registers a connection from an address, which may take the slot of another one.
    pub(crate) fn open(&self, address: SocketAddr) -> Peer {
        let calls = Calls {
            in_progress: 0,
            since: Instant::now(),
        };
        Peer(Arc::new(Open {
            address,
            connections: self.clone(),
            slot: self.slots.take(address.ip()),
            namespace: OnceLock::new(),
            replaced: CancellationToken::new(),
            calls: watch::Sender::new(calls),
        }))
    }

    /// Counts a connection among those of a namespace; ends another one of the namespace if there are too many.
    fn hold(&self, namespace: &str, open: &Arc<Open>) {
        // Dropping the last reference to a connection takes this lock, so these references must outlive it.
        let mut upgraded = Vec::new();
        let mut namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        let own = namespaces.entry(namespace.to_owned()).or_default();
        own.retain(|other| other.strong_count() > 0);
        own.push_back(Arc::downgrade(open));
        if own.len() <= MAX_CONNECTIONS_PER_NAMESPACE {
            return;
        }
        // The oldest connection without a call in progress, or else the oldest.
        let at = own.iter().position(|other| {
            let other = other.upgrade();
            let is_idle = other.as_ref().is_some_and(|other| other.is_idle());
            upgraded.extend(other);
            is_idle
        });
        let replaced = own.remove(at.unwrap_or_default());
        let replaced = replaced.and_then(|other| other.upgrade());
        drop(namespaces);
        if let Some(replaced) = replaced {
            replaced.replaced.cancel();
        }
    }
}

impl Peer {
    /// Where it connects from.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Waits until another connection has taken the slot of this one.
    pub(crate) async fn evicted(&self) {
        self.0.slot.evicted().await;
    }

    /// Records that a call of a jump host in this namespace was admitted.
    pub(crate) fn call(&self, namespace: &str) -> Call {
        let Self(open) = self;
        open.count(|calls| calls + 1);
        let first = open.namespace.set(namespace.to_owned()).is_ok();
        if first {
            open.slot.spoke();
            open.connections.hold(namespace, open);
        }
        Call(self.clone())
    }

    /// Waits until the connection has to end, and returns why.
    pub(crate) async fn close_reason(self) -> &'static str {
        let Self(open) = &self;
        tokio::select! {
            () = open.slot.evicted() => "a newer connection has replaced it",
            () = open.replaced.cancelled() => "its namespace has as many others as it may have",
            () = open.unused() => "no call was made over it",
        }
    }
}

impl Open {
    fn count(&self, change: impl FnOnce(usize) -> usize) {
        self.calls.send_modify(|calls| {
            *calls = Calls {
                in_progress: change(calls.in_progress),
                since: Instant::now(),
            };
        });
    }

    fn is_idle(&self) -> bool {
        self.calls.borrow().in_progress == 0
    }

    /// Waits until no call was in progress for [`IDLE_TIMEOUT`].
    async fn unused(&self) {
        let mut calls = self.calls.subscribe();
        loop {
            let Calls { in_progress, since } = *calls.borrow_and_update();
            let unused = async {
                if in_progress > 0 {
                    std::future::pending::<()>().await;
                }
                sleep_until(since + IDLE_TIMEOUT).await;
            };
            tokio::select! {
                () = unused => return,
                // It cannot fail: the sender is here.
                _ = calls.changed() => {}
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Self(Peer(open)) = self;
        open.count(|calls| calls.saturating_sub(1));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(namespace) = self.namespace.get() else {
            return;
        };
        let mut namespaces = self
            .connections
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = namespaces.get_mut(namespace) {
            own.retain(|other| other.strong_count() > 0);
            if own.is_empty() {
                namespaces.remove(namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use futures::FutureExt as _;

    use super::*;

    fn from(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 40_000))
    }

    fn ended(peers: &[Peer]) -> Vec<usize> {
        let over = |peer: &Peer| peer.clone().close_reason().now_or_never().is_some();
        let all = peers.iter().enumerate();
        all.filter(|(_, peer)| over(peer))
            .map(|(index, _)| index)
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_when_no_call_was_made_for_a_time() {
        let connections = Connections::default();
        let begun = Instant::now();
        let silent = connections.open(from(1));
        silent.close_reason().await;
        assert_eq!(begun.elapsed(), IDLE_TIMEOUT);

        let used = connections.open(from(1));
        let over = tokio::spawn(used.clone().close_reason());
        let call = used.call("shop");
        tokio::time::sleep(10 * IDLE_TIMEOUT).await;
        assert!(!over.is_finished(), "a call is in progress");
        drop(call);
        let last = Instant::now();
        over.await.unwrap();
        assert_eq!(last.elapsed(), IDLE_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connections_end_for_those_that_make_calls() {
        let connections = Connections::new(4);
        let mut peers = vec![connections.open(from(1))];
        let _call = peers[0].call("bank");
        peers.extend((0..3).map(|_| connections.open(from(2))));
        assert_eq!(ended(&peers), [0_usize; 0]);
        peers.push(connections.open(from(3)));
        peers.push(connections.open(from(2)));
        assert_eq!(ended(&peers), [1, 2], "the oldest of the address with the most");
    }

    #[tokio::test(start_paused = true)]
    async fn one_namespace_has_a_bounded_number_of_connections() {
        let connections = Connections::default();
        let other = connections.open(from(250));
        let _call = other.call("bank");
        let mut calls = Vec::new();
        let mut peers: Vec<Peer> = (0..MAX_CONNECTIONS_PER_NAMESPACE)
            .map(|_| connections.open(from(1)))
            .collect();
        for (index, peer) in peers.iter().enumerate() {
            let call = peer.call("shop");
            if index != 7 {
                calls.push(call);
            }
        }
        let newest = connections.open(from(2));
        calls.push(newest.call("shop"));
        peers.push(newest);
        assert_eq!(ended(&peers), [7], "the one without a call");
        let newest = connections.open(from(3));
        calls.push(newest.call("shop"));
        peers.push(newest);
        assert_eq!(ended(&peers), [0, 7], "then the oldest");
        assert_eq!(ended(std::slice::from_ref(&other)), [0_usize; 0]);

        drop((calls, peers));
        let namespaces = connections.namespaces.lock().unwrap();
        assert_eq!(namespaces.keys().collect::<Vec<_>>(), ["bank"]);
    }

    #[test]
    fn connections_may_end_while_another_one_is_counted() {
        const ROUNDS: usize = 200_000;
        let (ended, all_ended) = mpsc::channel();
        // Nobody waits for these threads: a lock that is never released must fail the test, not stop it.
        thread::spawn(move || {
            let connections = Connections::default();
            let (calls, over) = mpsc::sync_channel::<Call>(MAX_CONNECTIONS_PER_NAMESPACE);
            let closing = thread::spawn(move || over.iter().for_each(drop));
            for _ in 0..ROUNDS {
                // The others have calls in progress, so each of them is tried.
                let call = connections.open(from(1)).call("shop");
                calls.send(call).unwrap();
            }
            drop(calls);
            closing.join().unwrap();
            ended.send(connections.namespaces.lock().unwrap().len()).unwrap();
        });
        let left = all_ended.recv_timeout(Duration::from_mins(1));
        assert_eq!(left, Ok(0), "no thread waits for its own lock");
    }
}
