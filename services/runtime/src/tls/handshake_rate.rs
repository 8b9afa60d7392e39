//! How many handshakes of one address may fail.
//!
//! A handshake costs the server signatures, and a stranger almost nothing: one that completes hellos without pause would use up a core, however
//! few places it has. Handshakes of peers that prove an identity do not count, since identities have limits of their own; so many clients
//! behind one address hinder each other only if their certificates are refused.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::connection_slots::network;

/// Time after which an address may have another failed handshake.
const FAILURE_INTERVAL: Duration = Duration::from_millis(50);
/// The same for all handshakes of an address that may be under way, or have failed, at once.
const MAX_DEBT: Duration = Duration::from_millis(256 * 50);
/// Maximum number of addresses that are counted. The one that has not connected for the longest time is forgotten for a further one.
const MAX_ADDRESSES: usize = 1024;

/// The handshakes of each address, or each IPv6 network of 64 bits, that have failed lately or are under way.
#[derive(Debug, Default)]
pub(super) struct HandshakeRate(Mutex<HashMap<IpAddr, Debt>>);

/// How long an address has to be quiet until it has all its handshakes again.
#[derive(Debug)]
struct Debt {
    rest: Duration,
    /// When that was counted, which is when the address connected last.
    at: Instant,
}

impl HandshakeRate {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Debt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a handshake that a peer at `address` begins `now`. `false`: too many have failed, and this one must not begin.
    pub(super) fn begin(&self, address: IpAddr, now: Instant) -> bool {
        let address = network(address);
        let mut debts = self.lock();
        if debts.len() >= MAX_ADDRESSES && !debts.contains_key(&address) {
            let oldest = debts.iter().min_by_key(|(_, debt)| debt.at);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                debts.remove(&oldest);
            }
        }
        let debt = debts.entry(address).or_insert(Debt {
            rest: Duration::ZERO,
            at: now,
        });
        debt.rest = debt.rest.saturating_sub(now.saturating_duration_since(debt.at));
        debt.at = now;
        let next = debt.rest + FAILURE_INTERVAL;
        let may_begin = next <= MAX_DEBT;
        if may_begin {
            debt.rest = next;
        }
        may_begin
    }

    /// Records that a handshake which began has proven an identity: it does not count any more.
    pub(super) fn succeeded(&self, address: IpAddr) {
        if let Some(debt) = self.lock().get_mut(&network(address)) {
            debt.rest = debt.rest.saturating_sub(FAILURE_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn handshakes_that_prove_an_identity_do_not_count() {
        let (rate, now) = (HandshakeRate::default(), Instant::now());
        for _ in 0..1000 {
            assert!(rate.begin(at(1), now));
            rate.succeeded(at(1));
        }
        assert_eq!(begun(&rate, at(1), now, 1000), 256);
        rate.succeeded(at(1));
        assert_eq!(begun(&rate, at(1), now, 1000), 1);
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
        assert_eq!(rate.lock().len(), MAX_ADDRESSES);
        assert!(!rate.lock().contains_key(&at(1)));
        assert!(!rate.begin(at(2), after(3)));
    }
}
