//! Log lines that others can cause: some at once, then one a second.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use crate::connection_slots::network;

/// Maximum number of lines that may come at once.
const LINE_BURST: NonZeroU32 = NonZeroU32::new(32).unwrap();
/// Lines a second after that burst.
const LINES_PER_SECOND: NonZeroU32 = NonZeroU32::MIN;

/// How often one kind of line may be logged.
#[derive(Debug)]
pub struct Quiet {
    limiter: DefaultDirectRateLimiter,
    withheld: AtomicU64,
}

impl Default for Quiet {
    fn default() -> Self {
        Self {
            limiter: RateLimiter::direct(Quota::per_second(LINES_PER_SECOND).allow_burst(LINE_BURST)),
            withheld: AtomicU64::new(0),
        }
    }
}

impl Quiet {
    /// Whether the line is to be logged, and how many before it were not.
    #[must_use]
    pub fn line(&self) -> Option<u64> {
        if self.limiter.check().is_ok() {
            Some(self.withheld.swap(0, Ordering::Relaxed))
        } else {
            self.withheld.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

/// Maximum number of addresses whose lines are counted apart.
const MAX_ADDRESSES: usize = 1024;
/// After this long without a line an address has all of its burst again, so its count is dropped.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// How often one kind of line may be logged about each address, or each IPv6 network of 64 bits. A flood from some withholds no line about others, as long as
/// these are among the first 1,024 of a minute; all further addresses together are one.
#[derive(Debug, Default)]
pub struct QuietByAddress {
    addresses: Mutex<HashMap<IpAddr, (Instant, Quiet)>>,
    others: Quiet,
}

impl QuietByAddress {
    /// Whether the line about this address is to be logged, and how many before it were not.
    #[must_use]
    pub fn line(&self, address: IpAddr) -> Option<u64> {
        let (now, address) = (Instant::now(), network(address));
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= MAX_ADDRESSES && !addresses.contains_key(&address) {
            addresses.retain(|_, (last, _)| now.duration_since(*last) < IDLE_TIMEOUT);
            if addresses.len() >= MAX_ADDRESSES {
                return self.others.line();
            }
        }
        let (last, quiet) = addresses
            .entry(address)
            .or_insert_with(|| (now, Quiet::default()));
        *last = now;
        quiet.line()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_address_withholds_no_line_about_another() {
        let quiet = QuietByAddress::default();
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        let logged = (0..1000).filter_map(|_| quiet.line(address(1))).count();
        assert!((32..40).contains(&logged), "{logged}");
        assert_eq!(quiet.line(address(2)), Some(0));
        // However many addresses there are, so many are kept.
        for number in 0..10_000 {
            let _ = quiet.line(address(number));
        }
        assert_eq!(quiet.addresses.lock().unwrap().len(), MAX_ADDRESSES);
        assert_eq!(quiet.line(address(2)), Some(0));
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one() {
        let quiet = QuietByAddress::default();
        let address = |number: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, number]);
        let logged = (0..1000).filter_map(|number| quiet.line(address(number))).count();
        assert!((32..40).contains(&logged), "{logged}");
        assert_eq!(quiet.line([0x2001, 0xdb8, 0, 1, 0, 0, 0, 1].into()), Some(0));
    }

    #[test]
    fn lines_beyond_the_burst_are_counted() {
        let quiet = Quiet::default();
        let logged = (0..1000).filter_map(|_| quiet.line()).count();
        assert!((32..40).contains(&logged), "{logged}");
        let withheld = quiet.withheld.load(Ordering::Relaxed);
        assert_eq!(withheld + u64::try_from(logged).unwrap(), 1000);
    }
}
