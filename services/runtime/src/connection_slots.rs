//! Slots for connections of peers that are not authenticated yet: a fixed number, shared fairly by address.
//!
//! Anybody can open connections, so no number of slots is enough for all of them. A new connection always gets a slot: when
//! all are taken, another connection loses its own. Addresses have equal shares, and a connection is *silent* until a byte of it
//! has been read. The first of these loses its slot:
//!
//! 1. of the address with the most silent connections among those with more than their share, the oldest silent one;
//! 2. of the address with the most connections among those with more than their share, the oldest one;
//! 3. the oldest silent connection;
//! 4. the oldest connection.
//!
//! So a flood takes slots from itself, wherever it comes from and whether or not it sends something.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// A fixed number of slots. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ConnectionSlots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    taken: usize,
    /// No address without a slot is kept.
    addresses: BTreeMap<IpAddr, Holders>,
}

/// Who has slots, in the order in which they came.
#[derive(Debug, Default)]
struct Holders(BTreeMap<u64, Holder>);

impl Holders {
    fn len(&self) -> usize {
        self.0.len()
    }

    /// How many there are, and the oldest.
    fn all(&self) -> (usize, Option<u64>) {
        (self.len(), self.0.keys().next().copied())
    }

    /// How many of them are silent, and the oldest of these.
    fn silent(&self) -> (usize, Option<u64>) {
        let mut silent = self.0.iter().filter(|(_, holder)| holder.silent);
        let oldest = silent.next().map(|(number, _)| *number);
        (silent.count() + usize::from(oldest.is_some()), oldest)
    }
}

#[derive(Debug)]
struct Holder {
    silent: bool,
    evicted: CancellationToken,
}

/// A slot, until it is dropped or evicted.
#[derive(Debug)]
pub struct ConnectionSlot {
    slots: ConnectionSlots,
    address: IpAddr,
    number: u64,
    evicted: CancellationToken,
}

impl ConnectionSlots {
    /// So many slots, at least one.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Shared {
            most: most.max(1),
            state: Mutex::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for a peer at `address`; the connection that loses its slot for it sees that in [`ConnectionSlot::evicted`].
    #[must_use]
    pub fn take(&self, address: IpAddr) -> ConnectionSlot {
        let address = network(address);
        let evicted = CancellationToken::new();
        let mut state = self.lock();
        while state.taken >= self.0.most
            && let Some((address, number)) = state.victim()
        {
            if let Some(Holder { silent: _, evicted }) = state.remove(address, number) {
                evicted.cancel();
            }
        }
        let number = state.next;
        state.next += 1;
        state.taken += 1;
        let holder = Holder {
            silent: true,
            evicted: evicted.clone(),
        };
        state
            .addresses
            .entry(address)
            .or_default()
            .0
            .insert(number, holder);
        drop(state);
        ConnectionSlot {
            slots: self.clone(),
            address,
            number,
            evicted,
        }
    }
}

impl State {
    /// Whose slot a newcomer gets.
    fn victim(&self) -> Option<(IpAddr, u64)> {
        let share = self.taken / self.addresses.len().max(1);
        let above = |holders: &Holders| holders.len() > share;
        self.largest(above, Holders::silent)
            .or_else(|| self.largest(above, Holders::all))
            .or_else(|| self.oldest(Holders::silent))
            .or_else(|| self.oldest(Holders::all))
    }

    /// Of the address with the most of these holders, the oldest of them; of equal addresses the one that was first.
    fn largest(
        &self,
        address: impl Fn(&Holders) -> bool,
        which: impl Fn(&Holders) -> (usize, Option<u64>),
    ) -> Option<(IpAddr, u64)> {
        let addresses = self.addresses.iter().filter(|(_, holders)| address(holders));
        let candidates = addresses.filter_map(|(address, holders)| {
            let (count, oldest) = which(holders);
            Some((count, Reverse(oldest?), *address))
        });
        let (_, Reverse(number), address) = candidates.max()?;
        Some((address, number))
    }

    fn oldest(&self, which: impl Fn(&Holders) -> (usize, Option<u64>)) -> Option<(IpAddr, u64)> {
        let candidates = self.addresses.iter();
        let oldest = candidates.filter_map(|(address, holders)| Some((which(holders).1?, *address)));
        oldest.min().map(|(number, address)| (address, number))
    }

    fn remove(&mut self, address: IpAddr, number: u64) -> Option<Holder> {
        let holders = self.addresses.get_mut(&address)?;
        let removed = holders.0.remove(&number)?;
        self.taken -= 1;
        if holders.0.is_empty() {
            self.addresses.remove(&address);
        }
        Some(removed)
    }
}

impl ConnectionSlot {
    /// Records that the first byte of the peer has been read: the connection is no longer silent.
    pub fn spoke(&self) {
        let mut state = self.slots.lock();
        let holders = state.addresses.get_mut(&self.address);
        if let Some(holder) = holders.and_then(|holders| holders.0.get_mut(&self.number)) {
            holder.silent = false;
        }
    }

    /// Waits until another peer has got this slot.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.lock().remove(self.address, self.number);
    }
}

/// What one owner of addresses usually has: an IPv4 address, or an IPv6 network of 64 bits.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, _, _, _, _] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn evicted(slots: &[ConnectionSlot]) -> Vec<usize> {
        let gone = slots.iter().enumerate();
        gone.filter(|(_, slot)| slot.evicted.is_cancelled())
            .map(|(index, _)| index)
            .collect()
    }

    #[test]
    fn addresses_above_their_share_lose_first() {
        let slots = ConnectionSlots::new(4);
        let mut taken: Vec<ConnectionSlot> = [1, 2, 2, 3].map(|last| slots.take(at(last))).into();
        assert!(evicted(&taken).is_empty());
        taken.push(slots.take(at(1)));
        assert_eq!(evicted(&taken), [1], "the oldest of the address with two");
        taken.push(slots.take(at(4)));
        assert_eq!(evicted(&taken), [0, 1], "now another address has two");
        taken.push(slots.take(at(5)));
        assert_eq!(evicted(&taken), [0, 1, 2], "all have one: the oldest");
    }

    #[test]
    fn who_speaks_outlives_the_silent() {
        let slots = ConnectionSlots::new(3);
        let mut taken: Vec<ConnectionSlot> = [1, 1, 1].map(|last| slots.take(at(last))).into();
        taken[0].spoke();
        taken.push(slots.take(at(1)));
        taken.push(slots.take(at(2)));
        assert_eq!(evicted(&taken), [1, 2]);
    }

    #[test]
    fn a_flood_that_speaks_does_not_evict_the_silent() {
        let slots = ConnectionSlots::new(4);
        let flood: Vec<ConnectionSlot> = [1, 1, 1].map(|last| slots.take(at(last))).into();
        let client = slots.take(at(2));
        flood.iter().for_each(ConnectionSlot::spoke);
        let newer: Vec<ConnectionSlot> = (0..10)
            .map(|_| slots.take(at(1)))
            .inspect(ConnectionSlot::spoke)
            .collect();
        assert!(!client.evicted.is_cancelled());
        assert_eq!((evicted(&flood).len(), evicted(&newer).len()), (3, 7));
    }

    #[test]
    fn dropped_places_are_free() {
        let slots = ConnectionSlots::new(1);
        for _ in 0..3 {
            let slot = slots.take(at(1));
            assert!(!slot.evicted.is_cancelled());
        }
        assert_eq!(slots.lock().taken, 0);
        assert!(slots.lock().addresses.is_empty());
    }

    #[test]
    fn one_ipv6_network_is_one_address() {
        let host = |text: &str| network(text.parse().unwrap());
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:1"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
        assert_eq!(host("::ffff:192.0.2.1"), at(1));
    }
}
