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
    time::Instant,
};

use super::PAUSE;
use crate::directory::{Bind, BindDigest, Error};

/// Longest pause before a refused account binds again.
const LONGEST: Duration = Duration::from_mins(10);
/// For how long a refusal is known after its pause, if nobody tries it again.
const REMEMBERED: Duration = Duration::from_mins(20);
/// Refusals that are known of a namespace.
const KNOWN: usize = 256;
/// Binds of a namespace that are under way at once: as many as its checks have.
const AT_ONCE: usize = 32;

type Answer = Result<(), Error>;

/// A bind that was refused, or that has sent a password and has no answer.
struct Refused {
    error: Error,
    pause: Duration,
    /// When it is tried again.
    due: Instant,
}

#[derive(Default)]
struct Known {
    refused: HashMap<BindDigest, Refused>,
    under_way: HashMap<BindDigest, watch::Receiver<Option<Answer>>>,
}

/// Where the answer of a bind is found.
enum Found {
    /// It is not to be tried now.
    Held(Error),
    UnderWay(watch::Receiver<Option<Answer>>),
}

impl Known {
    fn find(&self, bind: BindDigest, now: Instant) -> Option<Found> {
        let held = self.refused.get(&bind).filter(|refused| now < refused.due);
        let held = held.map(|refused| Found::Held(refused.error.clone()));
        held.or_else(|| self.under_way.get(&bind).cloned().map(Found::UnderWay))
    }

    fn record(&mut self, bind: BindDigest, answer: &Answer, now: Instant) {
        match answer {
            Ok(()) => {
                self.refused.remove(&bind);
            }
            // No password was sent, or the directory says that it has not checked it.
            Err(Error::Unreachable { .. }) => {}
            // What has no answer may be refused late.
            Err(error @ (Error::Refused { .. } | Error::Unanswered { .. })) => {
                let before = self.refused.remove(&bind);
                let pause = before.map_or(PAUSE, |before| before.pause);
                let pause = (pause * 2).min(LONGEST);
                self.make_room(now);
                let refused = Refused {
                    error: error.clone(),
                    pause,
                    due: now + pause,
                };
                self.refused.insert(bind, refused);
            }
        }
    }

    fn make_room(&mut self, now: Instant) {
        self.refused.retain(|_, refused| now < refused.due + REMEMBERED);
        if self.refused.len() >= KNOWN {
            let first = self.refused.iter().min_by_key(|(_, refused)| refused.due);
            let first = first.map(|(bind, _)| *bind);
            first.and_then(|first| self.refused.remove(&first));
        }
    }
}

struct Binds {
    known: Mutex<Known>,
    places: Arc<Semaphore>,
}

impl Binds {
    /// Begins a bind, unless an equal one has begun meanwhile.
    fn begin(
        self: &Arc<Self>,
        place: OwnedSemaphorePermit,
        bind: BindDigest,
        binding: impl Future<Output = Answer> + Send + 'static,
    ) -> Found {
        let (answer, answered) = watch::channel(None);
        {
            let mut known = self.known();
            if let Some(found) = known.find(bind, Instant::now()) {
                return found;
            }
            known.under_way.insert(bind, answered.clone());
        }
        let under_way = UnderWay {
            binds: Arc::clone(self),
            bind,
            answer,
            _place: place,
        };
        tokio::spawn(async move { under_way.end(binding.await) });
        Found::UnderWay(answered)
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
    bind: BindDigest,
    answer: watch::Sender<Option<Answer>>,
    _place: OwnedSemaphorePermit,
}

impl UnderWay {
    fn end(self, answer: Answer) {
        self.binds.known().record(self.bind, &answer, Instant::now());
        self.answer.send_replace(Some(answer));
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.binds.known().under_way.remove(&self.bind);
    }
}

impl Refusals {
    /// Binds, unless that was refused and is not due yet: then the refusal is the answer. A bind that is under way already has one answer for
    /// all.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub async fn check(&self, bind: &Bind, destinations: &Arc<Destinations>) -> Answer {
        let (binding, destinations) = (bind.clone(), Arc::clone(destinations));
        let answer = self.answer(bind.digest(), async move { binding.check(&destinations).await });
        let answer = answer.await;
        answer.unwrap_or_else(|| Err(bind.unreachable("the bind failed in the agent".to_owned())))
    }

    /// `binding` runs on when nobody waits for it any more: a bind that is cut off may be refused all the same, and nobody would know. `None`: it
    /// has panicked.
    async fn answer(
        &self,
        bind: BindDigest,
        binding: impl Future<Output = Answer> + Send + 'static,
    ) -> Option<Answer> {
        let Self(binds) = self;
        let known = binds.known().find(bind, Instant::now());
        let found = if let Some(known) = known {
            known
        } else {
            let place = Arc::clone(&binds.places).acquire_owned().await.ok()?;
            binds.begin(place, bind, binding)
        };
        match found {
            Found::Held(error) => Some(Err(error)),
            Found::UnderWay(mut answered) => {
                let answer = answered.wait_for(Option::is_some).await;
                answer.ok().and_then(|answer| answer.clone())
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
        let Known { refused, under_way } = &mut *known;
        refused.retain(|_, refused| now < refused.due + REMEMBERED);
        refused.is_empty() && under_way.is_empty() && Arc::strong_count(binds) == 1
    }
}

#[cfg(test)]
mod tests;
