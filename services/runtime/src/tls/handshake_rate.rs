//! How many handshakes of one address may count.
//!
//! A handshake costs the server signatures, and a client almost nothing: one that completes hellos without pause would use up a core, however
//! few places it has. Who a client is, is known only after most of that, so what can be refused before is an address. Handshakes that prove an
//! identity do not count for it, up to a rate of their own: so many clients behind one address hinder each other only if their certificates are
//! refused, or if one of them connects again and again.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::connections::site;
use super::peer::PeerIdentity;
use crate::connection_slots::network;

/// Time after which there may be another handshake that counts.
const HANDSHAKE_INTERVAL: Duration = Duration::from_millis(50);
/// The same for all handshakes that may count at once.
const MAX_DEBT: Duration = Duration::from_millis(256 * 50);
/// Maximum number of addresses, and of owners, that are counted. The one without a handshake for the longest time is forgotten for a further one.
const MAX_KEYS: usize = 1024;

/// The handshakes that count.
#[derive(Debug, Default)]
pub(super) struct HandshakeRate {
    /// Those of each address, or each IPv6 network of 64 bits, that are under way or have failed lately, or are too many of their owner.
    addresses: Debts<IpAddr>,
    /// Those that have proven an identity, by its owner: a site, which can issue any number of names, or an operator or reader.
    owners: Debts<String>,
}

impl HandshakeRate {
    /// Counts a handshake that a peer at `address` begins `now`. `false`: too many count, and this one must not begin.
    pub(super) fn begin(&self, address: IpAddr, now: Instant) -> bool {
        self.addresses.add(network(address), now)
    }

    /// Records that a handshake which began has proven an identity: it does not count for the address any more, unless there are too many of the
    /// identity's owner.
    pub(super) fn succeeded(&self, address: IpAddr, identity: &PeerIdentity, now: Instant) {
        let owner = site(identity).map_or_else(|| identity.to_string(), |site| format!("site/{site}"));
        if self.owners.add(owner, now) {
            self.addresses.remove(&network(address));
        }
    }
}

/// Handshakes by key.
#[derive(Debug)]
struct Debts<K>(Mutex<HashMap<K, Debt>>);

/// How long a key has to be quiet until it has all its handshakes again.
#[derive(Debug)]
struct Debt {
    rest: Duration,
    /// When that was counted, which is when there was a handshake last.
    at: Instant,
}

impl<K> Default for Debts<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Debts<K> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Debt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more. `false`: there are too many, and it is not counted.
    fn add(&self, key: K, now: Instant) -> bool {
        let mut debts = self.lock();
        if debts.len() >= MAX_KEYS && !debts.contains_key(&key) {
            let oldest = debts.iter().min_by_key(|(_, debt)| debt.at);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                debts.remove(&oldest);
            }
        }
        let debt = debts.entry(key).or_insert(Debt {
            rest: Duration::ZERO,
            at: now,
        });
        debt.rest = debt.rest.saturating_sub(now.saturating_duration_since(debt.at));
        debt.at = now;
        let next = debt.rest + HANDSHAKE_INTERVAL;
        let has_room = next <= MAX_DEBT;
        if has_room {
            debt.rest = next;
        }
        has_room
    }

    /// Counts one less.
    fn remove(&self, key: &K) {
        if let Some(debt) = self.lock().get_mut(key) {
            debt.rest = debt.rest.saturating_sub(HANDSHAKE_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fixtures::name;
    use crate::identity::Caller;

    fn at(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    fn begun(rate: &HandshakeRate, address: IpAddr, now: Instant, tries: u32) -> usize {
        (0..tries).filter(|_| rate.begin(address, now)).count()
    }

    #[test]
    fn failed_handshakes_of_one_address_have_a_rate() {
        let (rate, now) = (HandshakeRate::default(), Instant::now());
        assert_eq!(begun(&rate, at(1), now, 1000), 256);
        assert!(rate.begin(at(2), now), "another address");
        let later = now + Duration::from_secs(1);
        assert_eq!(begun(&rate, at(1), later, 1000), 20);
        let much_later = later + Duration::from_hours(1);
        assert_eq!(begun(&rate, at(1), much_later, 1000), 256);
    }

    /// How many of so many handshakes of agents of a site, each with another name, may begin.
    fn proven(rate: &HandshakeRate, address: IpAddr, now: Instant, owner: &str, tries: u32) -> usize {
        let agent = |number: u32| {
            let name = name(&format!("agent-{number}"));
            let site = self::name(owner);
            PeerIdentity::Verified(Arc::new(Caller::Agent { site, name }))
        };
        let begun = (0..tries).filter(|number| {
            let begun = rate.begin(address, now);
            if begun {
                rate.succeeded(address, &agent(*number), now);
            }
            begun
        });
        begun.count()
    }

    #[test]
    fn handshakes_that_prove_an_identity_do_not_count() {
        let (rate, now) = (HandshakeRate::default(), Instant::now());
        for site in ["a", "b", "c", "d"] {
            assert_eq!(proven(&rate, at(1), now, site, 256), 256);
        }
        assert_eq!(begun(&rate, at(1), now, 1000), 256);
        let ana = Caller::Operator { name: name("ana") };
        rate.succeeded(at(1), &PeerIdentity::Verified(Arc::new(ana)), now);
        assert_eq!(begun(&rate, at(1), now, 1000), 1);
    }

    #[test]
    fn the_names_of_a_site_have_one_rate_of_handshakes() {
        let (rate, now) = (HandshakeRate::default(), Instant::now());
        // Those beyond the rate of the site count for the address.
        assert_eq!(proven(&rate, at(1), now, "a", 2000), 512);
        assert_eq!(proven(&rate, at(2), now, "a", 2000), 256);
        assert_eq!(proven(&rate, at(3), now, "b", 256), 256);
        let later = now + Duration::from_secs(1);
        assert_eq!(proven(&rate, at(1), later, "a", 2000), 40);
    }

    #[test]
    fn an_ipv6_network_has_the_rate_of_one_address() {
        let (rate, now) = (HandshakeRate::default(), Instant::now());
        let host = |number: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, number]);
        let begun = (0..1000).filter(|number| rate.begin(host(*number), now));
        assert_eq!(begun.count(), 256);
    }

    #[test]
    fn the_address_that_is_quiet_longest_is_forgotten() {
        let (rate, begin) = (HandshakeRate::default(), Instant::now());
        let after = |number: u64| begin + Duration::from_millis(number);
        begun(&rate, at(1), begin, 1000);
        begun(&rate, at(2), begin, 1000);
        assert!(!rate.begin(at(2), after(1)), "it has connected again");
        for number in 3..=1025 {
            assert!(rate.begin(at(number), after(2)));
        }
        let addresses = &rate.addresses;
        assert_eq!(addresses.lock().len(), MAX_KEYS);
        assert!(!addresses.lock().contains_key(&at(1)));
        assert!(!rate.begin(at(2), after(3)));
    }
}
