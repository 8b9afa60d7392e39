//! Whose identities are counted together, and what they have together.

use std::{num::NonZeroU32, sync::atomic::AtomicUsize};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use runtime::{
    identity::{Caller, Name},
    tls::PeerIdentity,
};

use super::limits::Limits;

/// How many times as much as one identity all identities of a site have together.
const SITE_FACTOR: u32 = 4;

/// Whose identities are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Group {
    Site(Name),
    Operators,
    Readers,
    Schedulers,
    Plaintext,
}

impl Group {
    pub(super) fn new(identity: &PeerIdentity) -> Self {
        match identity {
            PeerIdentity::Verified(caller) => match &**caller {
                Caller::Agent { site, name: _ } => Self::Site(site.clone()),
                Caller::Operator { name: _ } => Self::Operators,
                Caller::Reader { name: _ } => Self::Readers,
                Caller::Scheduler => Self::Schedulers,
            },
            PeerIdentity::PlaintextLoopback => Self::Plaintext,
        }
    }
}

/// What the identities of one site have together: the owner of its CA makes as many names as it likes. Identities of other groups
/// are made by the region's authority, and share nothing.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Bytes at most, and how many there are; `None`: nobody counts them.
    pub(super) buffer: Option<usize>,
    pub(super) buffered: AtomicUsize,
    pub(super) rate: Option<(NonZeroU32, DefaultDirectRateLimiter)>,
}

impl Shared {
    pub(super) fn new(group: &Group, limits: &Limits) -> Self {
        let Group::Site(_) = group else {
            return Self::default();
        };
        let times = NonZeroU32::MIN.saturating_add(SITE_FACTOR - 1);
        let rate = limits.rate.map(|rate| rate.saturating_mul(times));
        Self {
            buffer: Some(limits.buffer.saturating_mul(SITE_FACTOR as usize)),
            buffered: AtomicUsize::new(0),
            rate: rate.map(|rate| (rate, limiter(rate))),
        }
    }
}

/// So many calls a second, and twice as many at once.
pub(super) fn limiter(rate: NonZeroU32) -> DefaultDirectRateLimiter {
    RateLimiter::direct(
        Quota::per_second(rate).allow_burst(rate.saturating_mul(NonZeroU32::MIN.saturating_add(1))),
    )
}
