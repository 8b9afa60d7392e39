//! What each identity has at present, against its limits.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use governor::{
    DefaultDirectRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
};
use runtime::{
    identity::{Caller, Name},
    quiet::Quiet,
    tls::PeerIdentity,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limit::Limit;
use super::limits::Limits;
use crate::{call::Places, error::Error};

/// When to come again after a place was not free.
const SOON: Duration = Duration::from_millis(100);
/// When to come again after too many identities of one kind.
const LATER: Duration = Duration::from_secs(10);

/// Whose identities are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Group {
    Site(Name),
    Operators,
    Readers,
    Schedulers,
    Plaintext,
}

impl Group {
    fn new(identity: &PeerIdentity) -> Self {
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

type Members = HashMap<PeerIdentity, Arc<Account>>;

/// The accounts of all identities that were seen lately. Bounded: so many of each [`Group`].
#[derive(Debug)]
pub(super) struct Accounts {
    limits: Limits,
    plaintext: Limits,
    groups: Mutex<HashMap<Group, Members>>,
}

/// What one identity has at present.
#[derive(Debug)]
pub(super) struct Account {
    identity: PeerIdentity,
    limits: Limits,
    writes: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    scans: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    reports: Arc<Semaphore>,
    probes: Arc<Semaphore>,
    buffered: AtomicUsize,
    rate: Option<DefaultDirectRateLimiter>,
    denials: DefaultDirectRateLimiter,
    /// How often its refusals are logged.
    pub(super) log: Quiet,
}

/// Bytes that are kept for an identity, until this is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    account: Arc<Account>,
    bytes: AtomicUsize,
}

impl Accounts {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            plaintext: limits.of_plaintext(),
            limits,
            groups: Mutex::default(),
        }
    }

    /// The account of an identity.
    ///
    /// # Errors
    /// [`Error::Limited`] when too many others of its group are at work.
    pub(super) fn account(&self, identity: &PeerIdentity) -> Result<Arc<Account>, Error> {
        let group = Group::new(identity);
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let members = groups.entry(group).or_default();
        if let Some(account) = members.get(identity) {
            return Ok(Arc::clone(account));
        }
        if members.len() >= self.limits.identities {
            // Whoever has something under way holds its account too.
            members.retain(|_, account| Arc::strong_count(account) > 1);
        }
        if members.len() >= self.limits.identities {
            return Err(limited(
                identity,
                Limit::Identities,
                format!("{} others of its kind are served", members.len()),
                LATER,
            ));
        }
        let limits = match identity {
            PeerIdentity::Verified(_) => &self.limits,
            PeerIdentity::PlaintextLoopback => &self.plaintext,
        };
        let account = Arc::new(Account::new(identity.clone(), limits.clone()));
        members.insert(identity.clone(), Arc::clone(&account));
        Ok(account)
    }
}

fn limited(identity: &PeerIdentity, limit: Limit, why: String, again: Duration) -> Error {
    Error::Limited {
        identity: identity.to_string(),
        limit,
        why,
        again,
    }
}

fn limiter(rate: NonZeroU32) -> DefaultDirectRateLimiter {
    RateLimiter::direct(
        Quota::per_second(rate).allow_burst(rate.saturating_mul(NonZeroU32::MIN.saturating_add(1))),
    )
}

impl Account {
    fn new(identity: PeerIdentity, limits: Limits) -> Self {
        let places = |kind| Arc::new(Semaphore::new(limits.places(kind)));
        Self {
            writes: places(Places::Writes),
            reads: places(Places::Reads),
            scans: places(Places::Scans),
            watches: places(Places::Watches),
            reports: places(Places::Reports),
            probes: places(Places::Probes),
            buffered: AtomicUsize::new(0),
            rate: limits.rate.map(limiter),
            denials: limiter(limits.denials),
            log: Quiet::default(),
            identity,
            limits,
        }
    }

    pub(super) fn arrival(&self) -> Duration {
        self.limits.arrival
    }

    fn refuse(&self, limit: Limit, why: String, again: Duration) -> Error {
        limited(&self.identity, limit, why, again)
    }

    /// One more refusal that is audited.
    ///
    /// # Errors
    /// [`Error::Limited`] when there were too many.
    pub(super) fn denied(&self) -> Result<(), Error> {
        self.denials.check().map_err(|until| {
            let wait = until.wait_time_from(DefaultClock::default().now());
            let why = format!(
                "it makes more than {} calls a second that it may not make",
                self.limits.denials
            );
            self.refuse(Limit::Denials, why, wait.max(SOON))
        })
    }

    /// A place for a call.
    ///
    /// # Errors
    /// [`Error::Limited`].
    pub(super) fn enter(&self, kind: Places) -> Result<OwnedSemaphorePermit, Error> {
        if let Some(rate) = &self.rate
            && let Err(until) = rate.check()
        {
            let wait = until.wait_time_from(DefaultClock::default().now());
            let most = self.limits.rate.map_or(0, NonZeroU32::get);
            let why = format!("it makes more than {most} calls a second");
            return Err(self.refuse(Limit::Rate, why, wait.max(SOON)));
        }
        let kept = self.buffered.load(Ordering::Relaxed);
        if kept > self.limits.buffer {
            return Err(self.too_much(kept));
        }
        let places = match kind {
            Places::Writes => &self.writes,
            Places::Reads => &self.reads,
            Places::Scans => &self.scans,
            Places::Watches => &self.watches,
            Places::Reports => &self.reports,
            Places::Probes => &self.probes,
        };
        Arc::clone(places).try_acquire_owned().map_err(|_| {
            let why = format!(
                "{} of its calls of this kind are under way",
                self.limits.places(kind)
            );
            self.refuse(Limit::Places(kind), why, SOON)
        })
    }

    fn too_much(&self, kept: usize) -> Error {
        let most = self.limits.buffer >> 20;
        let why = format!(
            "{} MiB of its requests and answers are kept, and {most} MiB is the most",
            kept >> 20
        );
        self.refuse(Limit::Buffer, why, SOON)
    }

    /// Nothing is kept yet.
    pub(super) fn charge(self: &Arc<Self>) -> Charge {
        Charge {
            account: Arc::clone(self),
            bytes: AtomicUsize::new(0),
        }
    }
}

impl Charge {
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// Keeps so many bytes more.
    ///
    /// # Errors
    /// [`Error::Limited`] when they are too many; they are counted all the same.
    pub(super) fn add(&self, bytes: usize) -> Result<(), Error> {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let kept = self.account.buffered.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if kept > self.account.limits.buffer {
            return Err(self.account.too_much(kept));
        }
        Ok(())
    }

    /// Keeps nothing any more.
    pub(super) fn clear(&self) {
        let kept = self.bytes.swap(0, Ordering::Relaxed);
        self.account.buffered.fetch_sub(kept, Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(site: &str, name: &str) -> PeerIdentity {
        PeerIdentity::Verified(Arc::new(Caller::Agent {
            site: site.parse().unwrap(),
            name: name.parse().unwrap(),
        }))
    }

    fn limit(error: &Error) -> Limit {
        let Error::Limited { limit, .. } = error else {
            panic!("{error}")
        };
        *limit
    }

    #[test]
    fn places_are_of_one_identity_and_one_kind() {
        let accounts = Accounts::new(Limits::of_each_kind(2));
        let (own, other) = (agent("a", "cluster"), agent("b", "cluster"));
        let account = accounts.account(&own).unwrap();
        let taken: Vec<_> = (0..2).map(|_| account.enter(Places::Reads).unwrap()).collect();
        let refused = account.enter(Places::Reads).unwrap_err();
        assert_eq!(limit(&refused), Limit::Places(Places::Reads));
        assert!(refused.to_string().contains("site/a/agent/cluster"), "{refused}");
        let _ = account.enter(Places::Writes).unwrap();
        let _ = accounts.account(&other).unwrap().enter(Places::Reads).unwrap();
        drop(taken);
        let _ = accounts.account(&own).unwrap().enter(Places::Reads).unwrap();
    }

    #[test]
    fn a_rate_refusal_carries_a_retry_time() {
        let limits = Limits {
            rate: NonZeroU32::new(1),
            ..Limits::default()
        };
        let account = Accounts::new(limits).account(&agent("a", "cluster")).unwrap();
        for _ in 0..2 {
            let _ = account.enter(Places::Reads).unwrap();
        }
        let refused = account.enter(Places::Reads).unwrap_err();
        let Error::Limited { limit, again, .. } = refused else {
            panic!("{refused}")
        };
        assert_eq!(limit, Limit::Rate);
        assert!(
            again > Duration::from_millis(500) && again <= Duration::from_secs(1),
            "{again:?}"
        );
    }

    #[test]
    fn bytes_are_counted_until_they_are_dropped() {
        let account = Accounts::new(Limits::default())
            .account(&agent("a", "cluster"))
            .unwrap();
        let first = account.charge();
        first.add(account.limits.buffer).unwrap();
        let second = account.charge();
        assert_eq!(limit(&second.add(1).unwrap_err()), Limit::Buffer);
        assert_eq!(limit(&account.enter(Places::Reads).unwrap_err()), Limit::Buffer);
        drop(second);
        let _ = account.enter(Places::Reads).unwrap();
        drop(first);
        assert_eq!(account.buffered.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn idle_identities_make_room_and_busy_ones_stay() {
        let limits = Limits {
            identities: 2,
            ..Limits::default()
        };
        let accounts = Accounts::new(limits);
        let busy = accounts.account(&agent("a", "one")).unwrap();
        accounts.account(&agent("a", "two")).unwrap();
        let another = accounts.account(&agent("a", "three")).unwrap();
        let refused = accounts.account(&agent("a", "four")).unwrap_err();
        assert_eq!(limit(&refused), Limit::Identities);
        accounts.account(&agent("b", "one")).unwrap();
        drop((busy, another));
        accounts.account(&agent("a", "four")).unwrap();
    }
}
