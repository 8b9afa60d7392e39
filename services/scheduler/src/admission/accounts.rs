//! What each identity has at present, against its limits.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use governor::{
    DefaultDirectRateLimiter,
    clock::{Clock as _, DefaultClock},
};
use runtime::{quiet::Quiet, tls::PeerIdentity};
use tokio::sync::OwnedSemaphorePermit;

use super::group::{AllPlaces, Group, Shared, limiter, site_places};
use super::limit::Limit;
use super::limits::Limits;
use crate::{call::Places, error::Error};

/// When to come again after a place was not free.
const SOON: Duration = Duration::from_millis(100);
/// When to come again after too many identities of one kind.
const LATER: Duration = Duration::from_secs(10);

/// The accounts of one group.
#[derive(Debug, Default)]
struct Members {
    accounts: HashMap<PeerIdentity, Arc<Account>>,
    shared: Arc<Shared>,
}

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
    places: AllPlaces,
    buffered: AtomicUsize,
    rate: Option<DefaultDirectRateLimiter>,
    shared: Arc<Shared>,
    denials: DefaultDirectRateLimiter,
    /// How often its refusals are logged.
    pub(super) log: Quiet,
}

/// A place for a call, of its identity and of its site, until this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _own: OwnedSemaphorePermit,
    _shared: Option<OwnedSemaphorePermit>,
}

/// There are too many identities of one group at work.
#[derive(Debug)]
pub(super) struct Crowded {
    pub(super) error: Error,
    /// What the group has together.
    pub(super) shared: Arc<Shared>,
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
    /// [`Crowded`] when too many others of its group are at work.
    pub(super) fn account(&self, identity: &PeerIdentity) -> Result<Arc<Account>, Box<Crowded>> {
        let group = Group::new(identity);
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = || Arc::new(Shared::new(&group, &self.limits));
        let Members { accounts, shared } = groups.entry(group.clone()).or_insert_with(|| Members {
            accounts: HashMap::new(),
            shared: shared(),
        });
        if let Some(account) = accounts.get(identity) {
            return Ok(Arc::clone(account));
        }
        if accounts.len() >= self.limits.identities {
            // Whoever has something under way holds its account too.
            accounts.retain(|_, account| Arc::strong_count(account) > 1);
        }
        if accounts.len() >= self.limits.identities {
            let why = format!(
                "{} other identities of its site or role are in use",
                accounts.len()
            );
            return Err(Box::new(Crowded {
                error: limited(identity, Limit::Identities, why, LATER),
                shared: Arc::clone(shared),
            }));
        }
        let limits = match identity {
            PeerIdentity::Verified(_) => &self.limits,
            PeerIdentity::PlaintextLoopback => &self.plaintext,
        };
        let account = Account::new(identity.clone(), limits.clone(), Arc::clone(shared));
        let account = Arc::new(account);
        accounts.insert(identity.clone(), Arc::clone(&account));
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

impl Account {
    fn new(identity: PeerIdentity, limits: Limits, shared: Arc<Shared>) -> Self {
        Self {
            places: AllPlaces::new(|kind| limits.places(kind)),
            buffered: AtomicUsize::new(0),
            rate: limits.rate.map(limiter),
            shared,
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
        let own = (&self.denials, self.limits.denials, "it makes");
        let shared = self.shared.denials.as_ref();
        let shared = shared.map(|(most, denials)| (denials, *most, "all agents of its site together make"));
        for (denials, most, who) in [own].into_iter().chain(shared) {
            denials.check().map_err(|until| {
                let wait = until.wait_time_from(DefaultClock::default().now());
                let why = format!("{who} more than {most} unauthorized calls a second");
                self.refuse(Limit::Denials, why, wait.max(SOON))
            })?;
        }
        Ok(())
    }

    /// A place for a call.
    ///
    /// # Errors
    /// [`Error::Limited`].
    pub(super) fn enter(&self, kind: Places) -> Result<Place, Error> {
        self.require_rate(1)?;
        self.require_buffer(
            self.buffered.load(Ordering::Relaxed),
            self.shared.buffered.load(Ordering::Relaxed),
        )?;
        let taken = |places: &AllPlaces| Arc::clone(places.semaphore(kind)).try_acquire_owned();
        let refused = |most: usize, whose: &str| {
            let why = format!("{most} calls of this kind by {whose} are in progress");
            self.refuse(Limit::Places(kind), why, SOON)
        };
        let own = taken(&self.places).map_err(|_| refused(self.limits.places(kind), "it"))?;
        let shared = self.shared.places.as_ref().map(taken).transpose();
        let most = || site_places(&self.limits, kind);
        Ok(Place {
            _own: own,
            _shared: shared.map_err(|_| refused(most(), "all agents of its site"))?,
        })
    }

    /// Takes so many calls from its rate, and from that of its site.
    ///
    /// # Errors
    /// [`Error::Limited`].
    pub(super) fn require_rate(&self, calls: usize) -> Result<(), Error> {
        let own = self
            .rate
            .as_ref()
            .zip(self.limits.rate)
            .map(|(rate, most)| (rate, most, "it makes"));
        let shared = self.shared.rate.as_ref();
        let shared = shared.map(|(most, rate)| (rate, *most, "all agents of its site together make"));
        for (rate, most, who) in own.into_iter().chain(shared) {
            for _ in 0..calls {
                if let Err(until) = rate.check() {
                    let wait = until.wait_time_from(DefaultClock::default().now());
                    let why = format!("{who} more than {most} calls a second");
                    return Err(self.refuse(Limit::Rate, why, wait.max(SOON)));
                }
            }
        }
        Ok(())
    }

    /// Refuses so many bytes of its own, or of its site.
    fn require_buffer(&self, own: usize, shared: usize) -> Result<(), Error> {
        let limits = [
            (own, self.limits.buffer, "its requests and answers"),
            (
                shared,
                self.shared.buffer.unwrap_or(usize::MAX),
                "requests and answers of all agents of its site",
            ),
        ];
        let exceeded = limits.into_iter().find(|(kept, most, _)| kept > most);
        let Some((kept, most, whose)) = exceeded else {
            return Ok(());
        };
        let why = format!(
            "{} MiB of {whose} are kept, and {} MiB is the most",
            kept >> 20,
            most >> 20
        );
        Err(self.refuse(Limit::Buffer, why, SOON))
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
        let kept = |of: &AtomicUsize| of.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let Account { buffered, shared, .. } = &*self.account;
        let (own, shared) = (kept(buffered), kept(&shared.buffered));
        self.account.require_buffer(own, shared)
    }

    /// Keeps nothing any more.
    pub(super) fn clear(&self) {
        let kept = self.bytes.swap(0, Ordering::Relaxed);
        self.account.buffered.fetch_sub(kept, Ordering::Relaxed);
        self.account.shared.buffered.fetch_sub(kept, Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use runtime::identity::Caller;

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
    fn names_of_one_site_share_four_times_what_one_has() {
        let limits = Limits {
            rate: NonZeroU32::new(10),
            ..Limits::default()
        };
        let accounts = Accounts::new(limits);
        let of = |site: &str, number: usize| accounts.account(&agent(site, &format!("n{number}"))).unwrap();
        let charges: Vec<_> = (0..5)
            .map(|number| {
                let charge = of("a", number).charge();
                let kept = charge.add(of("a", number).limits.buffer);
                (charge, kept)
            })
            .collect();
        let refused = charges.iter().filter_map(|(_, kept)| kept.as_ref().err());
        let refused: Vec<_> = refused.collect();
        assert_eq!(refused.len(), 1, "the fifth");
        assert_eq!(limit(refused[0]), Limit::Buffer);
        assert!(refused[0].to_string().contains("128 MiB"), "{}", refused[0]);
        assert!(of("b", 0).charge().add(1).is_ok());
        drop(charges);

        let calls = |site: &str| {
            let names = (0..64).flat_map(|number| [number; 30]);
            names
                .filter(|number| of(site, *number).require_rate(1).is_ok())
                .count()
        };
        let made = calls("a");
        // Four times ten, twice as many at once, and what comes while they are made.
        assert!((80..160).contains(&made), "{made}");
        assert!(of("b", 0).require_rate(1).is_ok());
    }

    #[test]
    fn names_of_one_site_share_places_and_denials() {
        let accounts = Accounts::new(Limits::of_each_kind(2));
        let of = |site: &str, number: usize| accounts.account(&agent(site, &format!("n{number}"))).unwrap();
        let watches: Vec<_> = (0..64)
            .flat_map(|number| [of("a", number), of("a", number)])
            .map(|account| (account.enter(Places::Watches), account))
            .collect();
        let taken = watches.iter().filter(|(place, _)| place.is_ok()).count();
        assert_eq!(taken, 8, "four times what one has");
        let refused = watches[127].0.as_ref().unwrap_err();
        assert_eq!(limit(refused), Limit::Places(Places::Watches));
        assert!(refused.to_string().contains("agents of its site"), "{refused}");
        assert!(of("b", 0).enter(Places::Watches).is_ok());
        drop(watches);
        assert!(of("a", 0).enter(Places::Watches).is_ok());

        let denials = (0..64).flat_map(|number| [number; 30]);
        let audited = denials.filter(|number| of("a", *number).denied().is_ok()).count();
        // Four times twenty, twice as many at once, and what comes meanwhile.
        assert!((160..240).contains(&audited), "{audited}");
        assert!(of("b", 0).denied().is_ok());
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
        let refused = accounts.account(&agent("a", "four")).unwrap_err().error;
        assert_eq!(limit(&refused), Limit::Identities);
        accounts.account(&agent("b", "one")).unwrap();
        drop((busy, another));
        accounts.account(&agent("a", "four")).unwrap();
    }
}
