//! What each identity has at present, against its limits.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use governor::{
    DefaultDirectRateLimiter,
    clock::{Clock as _, DefaultClock},
};
use runtime::{quiet::Quiet, tls::PeerIdentity};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::backlog::Backlog;
use super::buffer::{Buffer, BufferLimits, Content, Excess};
use super::identity_limits::Limits;
use super::limit_names::Limit;
use super::lines::Lines;
use super::site_share::{CallPermits, Group, Shared, limiter, most_site_calls};
use crate::{call_rules::CallKind, error::Error};

/// Retry delay that a caller is sent when no permit is free.
const NO_PERMIT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Retry delay that a caller is sent when its group has too many identities.
const FULL_GROUP_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The accounts of one group.
#[derive(Debug)]
struct Members {
    accounts: HashMap<PeerIdentity, Arc<Account>>,
    shared: Arc<Shared>,
}

/// The accounts of identities that have called recently. Each [`Group`] has at most `limits.identities` of them.
#[derive(Debug)]
pub(super) struct Accounts {
    limits: Limits,
    plaintext: Limits,
    groups: Mutex<HashMap<Group, Members>>,
}

/// What the calls of one identity take at present, and the limits on it.
#[derive(Debug)]
pub(super) struct Account {
    identity: PeerIdentity,
    limits: Limits,
    permits: CallPermits,
    buffer: Buffer,
    rate: Option<DefaultDirectRateLimiter>,
    shared: Arc<Shared>,
    denials: DefaultDirectRateLimiter,
    backlog: Backlog,
    /// Whether it has called since the last notices.
    called: AtomicBool,
    /// How often its refusals are logged, if it shares no lines with its site.
    log: Quiet,
    /// How many audit lines are about it.
    pub(super) lines: Arc<Lines>,
}

/// A permit for one call: counts against its identity and its site until this is dropped.
#[derive(Debug)]
pub(super) struct CallPermit {
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

/// Bytes that are kept for calls of one kind of an identity, until this is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    account: Arc<Account>,
    kind: CallKind,
    specs: AtomicUsize,
    calls: AtomicUsize,
}

/// Bytes of the head or the trailers of an answer. They count until this is dropped, which is when the transport has written or discarded them.
#[derive(Debug)]
pub(super) struct Head {
    owner: Owner,
    bytes: usize,
}

/// Against whose limit the bytes of a head count.
#[derive(Debug)]
enum Owner {
    Account(Arc<Account>),
    /// All identities of a group for which the group has no account, together.
    Crowd(Arc<Shared>),
}

impl Owner {
    /// The owner's own buffer, and that of its whole site if it has an account.
    fn buffers(&self) -> (&Buffer, Option<&Buffer>) {
        match self {
            Self::Account(account) => (&account.buffer, Some(&account.shared.buffer)),
            Self::Crowd(shared) => (&shared.crowd.buffer, None),
        }
    }
}

impl Head {
    /// Counts the bytes of a head against an account, or else against the crowd of its group. The flag is true if the caller now has more heads
    /// unwritten than it may have.
    pub(super) fn new(
        account: Option<&Arc<Account>>,
        crowd: Option<&Arc<Shared>>,
        bytes: usize,
    ) -> Option<(Self, bool)> {
        let owner = match (account, crowd) {
            (Some(account), _) => Owner::Account(Arc::clone(account)),
            (None, Some(crowd)) => Owner::Crowd(Arc::clone(crowd)),
            (None, None) => return None,
        };
        let (own, all) = owner.buffers();
        let exceeds_own = own.add(Content::Heads, bytes).is_err();
        let exceeds_all = all.is_some_and(|all| all.add(Content::Heads, bytes).is_err());
        // An identity with few unwritten heads is not disconnected because other identities of its site leave theirs unread.
        let exceeds = exceeds_own || exceeds_all && !own.has_few_heads();
        Some((Self { owner, bytes }, exceeds))
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        let (own, all) = self.owner.buffers();
        for buffer in [own].into_iter().chain(all) {
            buffer.remove(Content::Heads, self.bytes);
        }
    }
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
            account.called.store(true, Ordering::Relaxed);
            return Ok(Arc::clone(account));
        }
        if accounts.len() >= self.limits.identities {
            let now = Instant::now();
            accounts.retain(|_, account| !account.is_forgettable(now));
        }
        if accounts.len() >= self.limits.identities {
            let why = format!(
                "{} other identities of its site or role are in use",
                accounts.len()
            );
            return Err(Box::new(Crowded {
                error: limited(identity, Limit::Identities, why, FULL_GROUP_RETRY_DELAY),
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
        shared.count(accounts.len());
        Ok(account)
    }

    /// Time between two calls of [`write_notices`](Self::write_notices).
    pub(super) fn notices(&self) -> Duration {
        self.limits.notices
    }

    /// Writes to the audit log how many lines about each identity were withheld since the last time. Identities that have not called since then do
    /// not count for the rate that their site shares any more.
    pub(super) fn write_notices(&self) {
        let mut withheld: Vec<Arc<Lines>> = Vec::new();
        {
            let now = Instant::now();
            let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
            for Members { accounts, shared } in groups.values_mut() {
                let lines = accounts.values().map(|account| &account.lines);
                let lines = lines.chain([&shared.crowd.lines]);
                withheld.extend(lines.filter(|lines| lines.has_withheld()).cloned());
                accounts.retain(|_, account| {
                    account.called.swap(false, Ordering::Relaxed) || !account.is_forgettable(now)
                });
                shared.count(accounts.len());
            }
        }
        // Without the lock, which every call takes.
        for lines in withheld {
            lines.write_notice();
        }
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
            permits: CallPermits::new(|kind| limits.most_calls(kind)),
            buffer: Buffer::new(BufferLimits::of_identity(limits.buffer)),
            rate: limits.rate.map(limiter),
            shared,
            denials: limiter(limits.denials),
            backlog: Backlog::new(limits.rate),
            called: AtomicBool::new(true),
            log: Quiet::default(),
            lines: Arc::new(Lines::new(identity.to_string())),
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

    /// Whether nothing is forgotten with it: no call is under way, since that holds an `Arc` of its account, and the time of its refused calls has
    /// passed. Otherwise names without number would have the refused calls of a new identity each.
    fn is_idle(self: &Arc<Self>, now: Instant) -> bool {
        Arc::strong_count(self) == 1 && !self.backlog.is_pending(now)
    }

    /// Whether there need be no account of it any more. One with withheld audit lines stays until its next notice: identities that come and go have
    /// no more notices than others.
    fn is_forgettable(self: &Arc<Self>, now: Instant) -> bool {
        self.is_idle(now) && !self.lines.has_withheld()
    }

    /// Limits lines of the log about its refused calls. All identities of a site have together as many as one.
    pub(super) fn log(&self) -> &Quiet {
        if self.shared.is_site() {
            &self.shared.log
        } else {
            &self.log
        }
    }

    /// Counts one more call that is refused at once. Returns how long the caller's connection is not read, and whether to disconnect it. Neither
    /// depends on the refused calls of others of its site, only on how many others there are.
    pub(super) fn refused(&self, now: Instant) -> (Duration, bool) {
        self.backlog.add(now, self.shared.identities_of_a_share())
    }

    /// Counts one more audited denial.
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
                self.refuse(Limit::Denials, why, wait.max(NO_PERMIT_RETRY_DELAY))
            })?;
        }
        Ok(())
    }

    /// A permit for a call.
    ///
    /// # Errors
    /// [`Error::Limited`].
    pub(super) fn enter(&self, kind: CallKind) -> Result<CallPermit, Error> {
        self.require_rate(1)?;
        let of = Content::Calls(kind);
        self.require_buffer(of, self.buffer.require(of), self.shared.buffer.require(of))?;
        let taken = |permits: &CallPermits| Arc::clone(permits.semaphore(kind)).try_acquire_owned();
        let refused = |most: usize, whose: &str| {
            let why = format!("{most} calls of this kind by {whose} are in progress");
            self.refuse(Limit::Calls(kind), why, NO_PERMIT_RETRY_DELAY)
        };
        let own = taken(&self.permits).map_err(|_| refused(self.limits.most_calls(kind), "it"))?;
        let shared = self.shared.permits.as_ref().map(taken).transpose();
        let most = || most_site_calls(&self.limits, kind);
        Ok(CallPermit {
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
                    return Err(self.refuse(Limit::Rate, why, wait.max(NO_PERMIT_RETRY_DELAY)));
                }
            }
        }
        Ok(())
    }

    /// Refuses what is too much of its own, or of its site.
    fn require_buffer(
        &self,
        of: Content,
        own: Result<(), Excess>,
        shared: Result<(), Excess>,
    ) -> Result<(), Error> {
        let what = match of {
            Content::Specs => "large requests with a spec",
            Content::Calls(_) => "other requests and answers",
            Content::Heads => "heads of answers and errors",
        };
        let whose = [(own, "it keeps"), (shared, "all agents of its site keep")];
        let exceeded = whose.into_iter().find_map(|(kept, who)| Some((kept.err()?, who)));
        let Some((Excess { kept, most }, who)) = exceeded else {
            return Ok(());
        };
        let (kept, most) = (kept.div_ceil(1 << 10), most >> 10);
        let why = format!("{who} {kept} KiB of {what}: at most {most} KiB are allowed");
        Err(self.refuse(Limit::Buffer, why, NO_PERMIT_RETRY_DELAY))
    }

    /// A charge for calls of this kind, with no bytes yet.
    pub(super) fn charge(self: &Arc<Self>, kind: CallKind) -> Charge {
        Charge {
            account: Arc::clone(self),
            kind,
            specs: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
        }
    }
}

impl Charge {
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// Adds bytes that a call of this identity keeps in memory.
    ///
    /// # Errors
    /// [`Error::Limited`] when they are too many; they are counted all the same.
    pub(super) fn add(&self, bytes: usize) -> Result<(), Error> {
        self.calls.fetch_add(bytes, Ordering::Relaxed);
        self.keep(Content::Calls(self.kind), bytes)
    }

    /// Adds bytes of a large message with a spec, which has a limit of its own.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(super) fn add_spec(&self, bytes: usize) -> Result<(), Error> {
        self.specs.fetch_add(bytes, Ordering::Relaxed);
        self.keep(Content::Specs, bytes)
    }

    fn keep(&self, of: Content, bytes: usize) -> Result<(), Error> {
        let Account { buffer, shared, .. } = &*self.account;
        let (own, shared) = (buffer.add(of, bytes), shared.buffer.add(of, bytes));
        self.account.require_buffer(of, own, shared)
    }

    /// Keeps nothing from now on.
    pub(super) fn clear(&self) {
        let Account { buffer, shared, .. } = &*self.account;
        for (of, bytes) in [
            (Content::Specs, &self.specs),
            (Content::Calls(self.kind), &self.calls),
        ] {
            let kept = bytes.swap(0, Ordering::Relaxed);
            buffer.remove(of, kept);
            shared.buffer.remove(of, kept);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests;
