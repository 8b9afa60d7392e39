//! Directories that have refused the account of a connector. Many lock an account after some refusals, and then nobody can log in: so equal
//! binds of a namespace are one, which ends whatever becomes of the checks that wait for it, and a refused account binds again after growing
//! pauses. Another password or account is another bind, which does not wait.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kit::tenant::destinations::Destinations;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, timeout_at},
};

use super::{CHECK_INTERVAL, CHECK_TIMEOUT};
use crate::directory::{ANSWER_TIMEOUT, Bind, Digest, Digests, Error};

/// Maximum pause before a refused account binds again.
const MAX_BIND_PAUSE: Duration = Duration::from_mins(10);
/// How long a refusal is remembered after its pause, if no check asks for it again.
const REFUSAL_TTL: Duration = Duration::from_mins(20);
/// Maximum number of refused accounts that are remembered for a namespace.
const MAX_REFUSED_ACCOUNTS: usize = 1024;
/// How long a bind waits for binds of its account that connect in another way, and for a free slot. Together with its own timeouts this is less
/// than [`CHECK_TIMEOUT`].
const BIND_WAIT_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum number of concurrent binds of a namespace: as many as there are concurrent checks.
const MAX_CONCURRENT_BINDS: usize = 32;

const _: () = assert!(BIND_WAIT_TIMEOUT.as_secs() + 2 * ANSWER_TIMEOUT.as_secs() < CHECK_TIMEOUT.as_secs());

type BindResult = Result<(), Error>;

/// An account that was refused, or that a directory has not answered.
struct RefusedAccount {
    error: Error,
    pause: Duration,
    /// When the agent binds again.
    due: Instant,
    /// When the agent forgets this.
    expires: Instant,
}

/// A bind that the directory has not answered yet. Other binds of its account wait for it.
#[derive(Clone)]
struct PendingBind {
    whole: Digest,
    answered: watch::Receiver<Option<BindResult>>,
}

/// Accounts that were refused, and binds that are not answered yet, by the digest of the account.
#[derive(Default)]
struct Accounts {
    refused: HashMap<Digest, RefusedAccount>,
    pending: HashMap<Digest, PendingBind>,
}

/// Why the agent does not bind with an account now.
enum AccountState {
    /// The directory has refused it, and the pause has not ended.
    Paused(Error),
    /// A bind with it has not been answered yet.
    Pending(PendingBind),
}

impl Accounts {
    fn find(&self, bind: Digests, now: Instant) -> Option<AccountState> {
        let paused = self.refused.get(&bind.account);
        let paused = paused.filter(|refused| now < refused.due);
        let paused = paused.map(|refused| AccountState::Paused(refused.error.clone()));
        paused.or_else(|| {
            self.pending
                .get(&bind.account)
                .cloned()
                .map(AccountState::Pending)
        })
    }

    fn record(&mut self, account: Digest, answer: &BindResult, now: Instant) {
        let refused = self.refused.get_mut(&account);
        match (answer, refused) {
            (Ok(()), _) => {
                self.refused.remove(&account);
            }
            // No password was sent.
            (Err(Error::Unreachable { .. }), Some(refused)) => refused.expires = now + REFUSAL_TTL,
            // One that was refused before may have been again, whatever a directory that fails answers.
            (Err(error @ Error::Failed { .. }), Some(refused)) => {
                refused.error = error.clone();
                refused.due = now + refused.pause;
                refused.expires = refused.due + REFUSAL_TTL;
            }
            (Err(Error::Unreachable { .. } | Error::Failed { .. }), None) => {}
            // What has no answer may be refused late.
            (Err(error @ (Error::Refused { .. } | Error::Unanswered { .. })), before) => {
                let pause = before.map_or(CHECK_INTERVAL, |before| before.pause);
                let pause = (pause * 2).min(MAX_BIND_PAUSE);
                let due = now + pause;
                let refused = RefusedAccount {
                    error: error.clone(),
                    pause,
                    due,
                    expires: due + REFUSAL_TTL,
                };
                self.refused.insert(account, refused);
                self.remove_first_due(now);
            }
        }
    }

    fn remove_expired(&mut self, now: Instant) {
        self.refused.retain(|_, refused| now < refused.expires);
    }

    fn remove_first_due(&mut self, now: Instant) {
        if self.refused.len() <= MAX_REFUSED_ACCOUNTS {
            return;
        }
        self.remove_expired(now);
        let pending = &self.pending;
        let first = self.refused.iter();
        let first = first.filter(|(account, _)| !pending.contains_key(*account));
        let first = first.min_by_key(|(_, refused)| refused.due);
        if let Some(first) = first
            .map(|(account, _)| *account)
            .filter(|_| self.refused.len() > MAX_REFUSED_ACCOUNTS)
        {
            self.refused.remove(&first);
        }
    }
}

struct Binds {
    accounts: Mutex<Accounts>,
    slots: Arc<Semaphore>,
}

impl Binds {
    /// Begins a bind, unless one of its account has begun meanwhile.
    fn begin(
        self: &Arc<Self>,
        slot: OwnedSemaphorePermit,
        (bind, panic_error): (Digests, Error),
        binding: impl Future<Output = BindResult> + Send + 'static,
    ) -> AccountState {
        let (answer, answered) = watch::channel(None);
        let Digests { account, whole } = bind;
        let pending = PendingBind { whole, answered };
        {
            let mut accounts = self.accounts();
            if let Some(state) = accounts.find(bind, Instant::now()) {
                return state;
            }
            accounts.pending.insert(account, pending.clone());
        }
        let running = RunningBind {
            binds: Arc::clone(self),
            account,
            answer,
            panic_error,
            _slot: slot,
        };
        tokio::spawn(async move { running.end(binding.await) });
        AccountState::Pending(pending)
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The binds of a namespace that are not answered yet, and the accounts that were refused. Cheap to clone.
#[derive(Clone)]
pub struct Refusals(Arc<Binds>);

impl Default for Refusals {
    fn default() -> Self {
        Self(Arc::new(Binds {
            accounts: Mutex::default(),
            slots: Arc::new(Semaphore::new(MAX_CONCURRENT_BINDS)),
        }))
    }
}

/// A bind that has no answer yet, and its slot.
struct RunningBind {
    binds: Arc<Binds>,
    account: Digest,
    answer: watch::Sender<Option<BindResult>>,
    /// The answer if the bind panics: nobody knows whether the password was sent.
    panic_error: Error,
    _slot: OwnedSemaphorePermit,
}

impl RunningBind {
    fn end(&self, answer: BindResult) {
        self.binds
            .accounts()
            .record(self.account, &answer, Instant::now());
        self.answer.send_replace(Some(answer));
    }
}

impl Drop for RunningBind {
    fn drop(&mut self) {
        if self.answer.borrow().is_none() {
            self.end(Err(self.panic_error.clone()));
        }
        self.binds.accounts().pending.remove(&self.account);
    }
}

impl Refusals {
    /// Binds, unless that account was refused and is not due yet: then the refusal is the answer. Equal concurrent binds
    /// are one bind, whose answer all callers get.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub async fn check(&self, bind: &Bind, destinations: &Arc<Destinations>) -> BindResult {
        let binding = || {
            let (bind, destinations) = (bind.clone(), Arc::clone(destinations));
            async move { bind.check(&destinations).await }
        };
        let panic_error = bind.unanswered("the bind crashed in the agent".to_owned());
        let answer = self.answer((bind.digests(), panic_error), binding).await;
        answer.unwrap_or_else(|| {
            let why = "the agent has not bound: other binds of this account or namespace took too long";
            Err(bind.unreachable(why.to_owned()))
        })
    }

    /// A bind continues when no caller waits for it any more: the directory may refuse a cancelled one all the same, and the agent would not know.
    /// `panic_error`: the answer if it panics. `None`: other binds of its account, or of the namespace, take too long.
    async fn answer<B>(
        &self,
        (bind, panic_error): (Digests, Error),
        binding: impl Fn() -> B,
    ) -> Option<BindResult>
    where
        B: Future<Output = BindResult> + Send + 'static,
    {
        let Self(binds) = self;
        let until = Instant::now() + BIND_WAIT_TIMEOUT;
        loop {
            let state = binds.accounts().find(bind, Instant::now());
            let state = if let Some(state) = state {
                state
            } else {
                let slot = Arc::clone(&binds.slots).acquire_owned();
                let slot = timeout_at(until, slot).await.ok()?.ok()?;
                binds.begin(slot, (bind, panic_error.clone()), binding())
            };
            match state {
                AccountState::Paused(error) => return Some(Err(error)),
                AccountState::Pending(PendingBind { whole, mut answered }) if whole == bind.whole => {
                    let answer = answered.wait_for(Option::is_some).await;
                    return answer.ok().and_then(|answer| answer.clone());
                }
                // The same account, by another connection: it begins once that bind has ended.
                AccountState::Pending(PendingBind { mut answered, .. }) => {
                    let ended = async { while answered.changed().await.is_ok() {} };
                    timeout_at(until, ended).await.ok()?;
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether there are no refused accounts and no binds, and nothing else holds a clone.
    pub(super) fn are_unused(&self, now: Instant) -> bool {
        let Self(binds) = self;
        let mut accounts = binds.accounts();
        accounts.remove_expired(now);
        let Accounts { refused, pending } = &*accounts;
        refused.is_empty() && pending.is_empty() && Arc::strong_count(binds) == 1
    }
}

#[cfg(test)]
mod tests;
