//! What all identities of one site share: the limits of its agents together. Other groups of identities share only the limit on their number.

use std::{
    fmt,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use runtime::{
    identity::{Caller, Name},
    quiet::Quiet,
    tls::PeerIdentity,
};
use tokio::sync::Semaphore;

use super::{
    backlog::Backlog,
    buffer::{Buffer, BufferLimits},
    identity_limits::Limits,
    lines::Lines,
};
use crate::call_rules::CallKind;

/// How many times as much as one identity all identities of a site have together.
pub(super) const SITE_FACTOR: u32 = 4;

/// Identities with one shared limit on their number.
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

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Site(site) => write!(f, "site/{site}"),
            Self::Operators => f.write_str("operators"),
            Self::Readers => f.write_str("readers"),
            Self::Schedulers => f.write_str("schedulers"),
            Self::Plaintext => f.write_str("plaintext"),
        }
    }
}

/// What the identities of one site take together, and their common limits: the owner of a site's CA can create any number of identities. The
/// region's CA issues identities of other groups, which have no common limits.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) buffer: Buffer,
    pub(super) rate: Option<(NonZeroU32, DefaultDirectRateLimiter)>,
    pub(super) denials: Option<(NonZeroU32, DefaultDirectRateLimiter)>,
    pub(super) permits: Option<CallPermits>,
    /// How many identities have an account, and share one rate of refused calls; `None`: each has a rate of its own.
    identities: Option<AtomicU32>,
    /// What identities without an account take together.
    pub(super) crowd: Crowd,
    /// How often it is logged that there are too many identities; of a site, that any call is refused.
    pub(super) log: Quiet,
}

/// What identities without an account have together: as much as one.
#[derive(Debug)]
pub(super) struct Crowd {
    pub(super) backlog: Backlog,
    /// Heads of refused calls; such calls keep nothing else.
    pub(super) buffer: Buffer,
    /// Audit lines about them that were not written.
    pub(super) lines: Arc<Lines>,
}

impl Crowd {
    fn new(group: &Group, limits: &Limits) -> Self {
        let lines = Lines::new(format!("identities of {group} without an account"));
        Self {
            lines: Arc::new(lines),
            backlog: Backlog::new(limits.rate),
            buffer: Buffer::new(BufferLimits::of_identity(limits.buffer)),
        }
    }
}

/// Permits for calls of each kind.
#[derive(Debug)]
pub(super) struct CallPermits {
    writes: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    scans: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    reports: Arc<Semaphore>,
    probes: Arc<Semaphore>,
}

impl CallPermits {
    /// So many of each kind.
    pub(super) fn new(count: impl Fn(CallKind) -> usize) -> Self {
        let permits = |kind| Arc::new(Semaphore::new(count(kind).min(Semaphore::MAX_PERMITS)));
        Self {
            writes: permits(CallKind::Writes),
            reads: permits(CallKind::Reads),
            scans: permits(CallKind::Scans),
            watches: permits(CallKind::Watches),
            reports: permits(CallKind::Reports),
            probes: permits(CallKind::Probes),
        }
    }

    pub(super) fn semaphore(&self, kind: CallKind) -> &Arc<Semaphore> {
        match kind {
            CallKind::Writes => &self.writes,
            CallKind::Reads => &self.reads,
            CallKind::Scans => &self.scans,
            CallKind::Watches => &self.watches,
            CallKind::Reports => &self.reports,
            CallKind::Probes => &self.probes,
        }
    }
}

impl Shared {
    pub(super) fn new(group: &Group, limits: &Limits) -> Self {
        let Group::Site(_) = group else {
            return Self {
                buffer: Buffer::new(BufferLimits::NONE),
                rate: None,
                denials: None,
                permits: None,
                identities: None,
                crowd: Crowd::new(group, limits),
                log: Quiet::default(),
            };
        };
        let times = NonZeroU32::MIN.saturating_add(SITE_FACTOR - 1);
        let rate = limits.rate.map(|rate| rate.saturating_mul(times));
        let denials = limits.denials.saturating_mul(times);
        Self {
            denials: Some((denials, limiter(denials))),
            permits: Some(CallPermits::new(|kind| most_site_calls(limits, kind))),
            identities: Some(AtomicU32::new(0)),
            crowd: Crowd::new(group, limits),
            log: Quiet::default(),
            buffer: Buffer::new(BufferLimits::of_site(limits.buffer)),
            rate: rate.map(|rate| (rate, limiter(rate))),
        }
    }

    /// So many identities have an account now.
    pub(super) fn count(&self, accounts: usize) {
        if let Some(identities) = &self.identities {
            let accounts = u32::try_from(accounts).unwrap_or(u32::MAX);
            identities.store(accounts, Ordering::Relaxed);
        }
    }

    /// How many identities have together the rate of refused calls that one has for itself elsewhere: then all have [`SITE_FACTOR`] times as much.
    pub(super) fn identities_of_a_share(&self) -> u32 {
        let identities = self.identities.as_ref();
        let identities = identities.map_or(1, |identities| identities.load(Ordering::Relaxed));
        identities.div_ceil(SITE_FACTOR).max(1)
    }

    /// Whether its identities are agents of a site. They share the lines of the log about refused calls.
    pub(super) fn is_site(&self) -> bool {
        self.identities.is_some()
    }
}

/// How many calls of one kind all identities of a site may have under way together.
pub(super) fn most_site_calls(limits: &Limits, kind: CallKind) -> usize {
    limits.most_calls(kind).saturating_mul(SITE_FACTOR as usize)
}

/// So many calls a second, and twice as many at once.
pub(super) fn limiter(rate: NonZeroU32) -> DefaultDirectRateLimiter {
    RateLimiter::direct(
        Quota::per_second(rate).allow_burst(rate.saturating_mul(NonZeroU32::MIN.saturating_add(1))),
    )
}
