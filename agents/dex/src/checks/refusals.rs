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

use super::{CHECK, PAUSE};
use crate::directory::{ANSWER, Bind, Digest, Digests, Error};

/// Longest pause before a refused account binds again.
const LONGEST: Duration = Duration::from_mins(10);
/// For how long a refusal is known after its pause, if nobody asks for it again.
const REMEMBERED: Duration = Duration::from_mins(20);
/// Refusals that are known of a namespace.
const KNOWN: usize = 1024;
/// How long a bind waits for others of its account that connect in another way, and for a place. With its own time, that is less than a check has.
const OTHERS: Duration = Duration::from_secs(15);
/// Binds of a namespace that are under way at once: as many as its checks have.
const AT_ONCE: usize = 32;

const _: () = assert!(OTHERS.as_secs() + 2 * ANSWER.as_secs() < CHECK.as_secs());

type Answer = Result<(), Error>;

/// An account that was refused, or that a directory has not answered.
struct Refused {
    error: Error,
    pause: Duration,
    /// When it is tried again.
    due: Instant,
    /// Until when that is known.
    known: Instant,
}

/// A bind without an answer. Others of its account wait for it.
#[derive(Clone)]
struct Flight {
    whole: Digest,
    answered: watch::Receiver<Option<Answer>>,
}

/// By account.
#[derive(Default)]
struct Known {
    refused: HashMap<Digest, Refused>,
    under_way: HashMap<Digest, Flight>,
}

/// What is known of an account.
enum Found {
    /// It is not to be tried now.
    Held(Error),
    UnderWay(Flight),
}

impl Known {
    fn find(&self, bind: Digests, now: Instant) -> Option<Found> {
        let held = self.refused.get(&bind.account);
        let held = held.filter(|refused| now < refused.due);
        let held = held.map(|refused| Found::Held(refused.error.clone()));
        held.or_else(|| self.under_way.get(&bind.account).cloned().map(Found::UnderWay))
    }

    fn record(&mut self, account: Digest, answer: &Answer, now: Instant) {
        let refused = self.refused.get_mut(&account);
        match (answer, refused) {
            (Ok(()), _) => {
                self.refused.remove(&account);
            }
            // No password was sent.
            (Err(Error::Unreachable { .. }), Some(refused)) => refused.known = now + REMEMBERED,
            // One that was refused before may have been again, whatever a directory that fails answers.
            (Err(error @ Error::Failed { .. }), Some(refused)) => {
                refused.error = error.clone();
                refused.due = now + refused.pause;
                refused.known = refused.due + REMEMBERED;
            }
            (Err(Error::Unreachable { .. } | Error::Failed { .. }), None) => {}
            // What has no answer may be refused late.
            (Err(error @ (Error::Refused { .. } | Error::Unanswered { .. })), before) => {
                let pause = before.map_or(PAUSE, |before| before.pause);
                let pause = (pause * 2).min(LONGEST);
                let due = now + pause;
                let refused = Refused {
                    error: error.clone(),
                    pause,
                    due,
                    known: due + REMEMBERED,
                };
                self.refused.insert(account, refused);
                self.forget_first(now);
            }
        }
    }

    fn forget_old(&mut self, now: Instant) {
        self.refused.retain(|_, refused| now < refused.known);
    }

    fn forget_first(&mut self, now: Instant) {
        if self.refused.len() <= KNOWN {
            return;
        }
        self.forget_old(now);
        let under_way = &self.under_way;
        let first = self.refused.iter();
        let first = first.filter(|(account, _)| !under_way.contains_key(*account));
        let first = first.min_by_key(|(_, refused)| refused.due);
        if let Some(first) = first
            .map(|(account, _)| *account)
            .filter(|_| self.refused.len() > KNOWN)
        {
            self.refused.remove(&first);
        }
    }
}

struct Binds {
    known: Mutex<Known>,
    places: Arc<Semaphore>,
}

impl Binds {
    /// Begins a bind, unless one of its account has begun meanwhile.
    fn begin(
        self: &Arc<Self>,
        place: OwnedSemaphorePermit,
        (bind, lost): (Digests, Error),
        binding: impl Future<Output = Answer> + Send + 'static,
    ) -> Found {
        let (answer, answered) = watch::channel(None);
        let Digests { account, whole } = bind;
        let flight = Flight { whole, answered };
        {
            let mut known = self.known();
            if let Some(found) = known.find(bind, Instant::now()) {
                return found;
            }
            known.under_way.insert(account, flight.clone());
        }
        let under_way = UnderWay {
            binds: Arc::clone(self),
            account,
            answer,
            lost,
            _place: place,
        };
        tokio::spawn(async move { under_way.end(binding.await) });
        Found::UnderWay(flight)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The binds of a namespace that are under way or were refused. Cheap to clone.
#[derive(Clone)]
pub struct Refusals(Arc<Binds>);

impl Default for Refusals {
    fn default() -> Self {
        Self(Arc::new(Binds {
            known: Mutex::default(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }))
    }
}

/// A bind that has no answer yet, and its place.
struct UnderWay {
    binds: Arc<Binds>,
    account: Digest,
    answer: watch::Sender<Option<Answer>>,
    /// The answer if the bind panics: nobody knows whether the password was sent.
    lost: Error,
    _place: OwnedSemaphorePermit,
}

impl UnderWay {
    fn end(&self, answer: Answer) {
        self.binds.known().record(self.account, &answer, Instant::now());
        self.answer.send_replace(Some(answer));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.answer.borrow().is_none() {
            self.end(Err(self.lost.clone()));
        }
        self.binds.known().under_way.remove(&self.account);
    }
}

impl Refusals {
    /// Binds, unless that account was refused and is not due yet: then the refusal is the answer. A bind that is under way already has one answer
    /// for all.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub async fn check(&self, bind: &Bind, destinations: &Arc<Destinations>) -> Answer {
        let binding = || {
            let (bind, destinations) = (bind.clone(), Arc::clone(destinations));
            async move { bind.check(&destinations).await }
        };
        let lost = bind.unanswered("the bind failed in the agent".to_owned());
        let answer = self.answer((bind.digests(), lost), binding).await;
        answer.unwrap_or_else(|| {
            let why = "other binds of this account or namespace take too long";
            Err(bind.unreachable(why.to_owned()))
        })
    }

    /// A bind runs on when nobody waits for it any more: one that is cut off may be refused all the same, and nobody would know. `lost`: the
    /// answer if it panics. `None`: others of its account, or of the namespace, take too long.
    async fn answer<B>(&self, (bind, lost): (Digests, Error), binding: impl Fn() -> B) -> Option<Answer>
    where
        B: Future<Output = Answer> + Send + 'static,
    {
        let Self(binds) = self;
        let until = Instant::now() + OTHERS;
        loop {
            let known = binds.known().find(bind, Instant::now());
            let found = if let Some(known) = known {
                known
            } else {
                let place = Arc::clone(&binds.places).acquire_owned();
                let place = timeout_at(until, place).await.ok()?.ok()?;
                binds.begin(place, (bind, lost.clone()), binding())
            };
            match found {
                Found::Held(error) => return Some(Err(error)),
                Found::UnderWay(Flight { whole, mut answered }) if whole == bind.whole => {
                    let answer = answered.wait_for(Option::is_some).await;
                    return answer.ok().and_then(|answer| answer.clone());
                }
                // The same account, by another connection: it is in turn once that bind is no longer under way.
                Found::UnderWay(Flight { mut answered, .. }) => {
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

    /// Whether nothing is known any more, and nobody uses it.
    pub(super) fn are_forgotten(&self, now: Instant) -> bool {
        let Self(binds) = self;
        let mut known = binds.known();
        known.forget_old(now);
        let Known { refused, under_way } = &*known;
        refused.is_empty() && under_way.is_empty() && Arc::strong_count(binds) == 1
    }
}

#[cfg(test)]
mod tests;
