//! Questions that need a core for long need permits: as many as there are threads for them, fewer than cores, so that changes always
//! have a core; for a slice of each question at a time; and one caller after the other, however many questions each of them has. All agents of a
//! site count as one caller, and alternate among themselves: the owner of the site's CA can issue any number of names.
//!
//! A question whose caller has left, or whose deadline has passed, has no further slice. One that needs a copy of a site for several
//! slices waits for a permit to have one, in the same order: copies of all sites together are few.

use std::{
    collections::{HashMap, VecDeque},
    num::NonZero,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::sleep,
};
use tokio_util::task::AbortOnDropHandle;

use super::{Region, shared::run_blocking};
use crate::{error::Error, ledger::commit::Stopped};

/// How long one slice of a read should take.
pub(crate) const SLICE_DURATION: Duration = Duration::from_millis(10);

/// How long a permit is kept for a stream that is not polled when the permit is free. The transport does not poll the stream of a client that does
/// not read: without this limit, a few such clients would keep all permits.
const OFFER_DURATION: Duration = Duration::from_millis(5);

/// Maximum number of copies that one caller may have at once.
const COPIES_PER_CALLER: usize = 1;
/// Minimum of the limit of copies of all callers at once.
const MIN_COPIES: usize = 4;

/// Permits of callers, each of which may have some at once, and who waits for one. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct CallerPermits(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Permits that no caller has.
    free: usize,
    /// How many of them one caller may have at once.
    each: usize,
    /// By caller, how many it has.
    used: HashMap<String, usize>,
    /// By caller, in the order in which they came.
    waiting: HashMap<String, VecDeque<oneshot::Sender<CallerPermit>>>,
    /// By group, its callers who wait, each once: the next one first.
    groups: HashMap<String, VecDeque<String>>,
    /// Groups with callers who wait, each once: the next one first.
    order: VecDeque<String>,
}

/// The callers that share the permits of one: all agents of a site, and of others each by itself.
fn group(caller: &str) -> &str {
    caller.split_once("/agent/").map_or(caller, |(site, _)| site)
}

/// The right of a caller to compute, or to keep a copy of a site, until it is dropped.
#[derive(Debug)]
pub(crate) struct CallerPermit {
    permits: CallerPermits,
    caller: String,
}

impl CallerPermit {
    /// The caller that has the permit.
    pub(super) fn caller(&self) -> &str {
        &self.caller
    }

    /// Does what may take long, on the thread that calls this, and gives the permit back.
    pub(crate) fn work<T>(self, work: impl FnOnce() -> T) -> T {
        let done = run_blocking(work);
        drop(self);
        done
    }
}

/// A permit for a stream, as long as the stream may accept it.
#[derive(Debug, Default)]
struct Offer {
    permit: Mutex<Option<CallerPermit>>,
    made: Notify,
}

impl Offer {
    fn lock(&self) -> MutexGuard<'_, Option<CallerPermit>> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers every permit that the caller gets for [`OFFER_DURATION`], until one is accepted.
    async fn repeat(self: Arc<Self>, permits: CallerPermits, caller: String) {
        while let Ok(permit) = permits.take(&caller).await {
            *self.lock() = Some(permit);
            self.made.notify_one();
            sleep(OFFER_DURATION).await;
            let unused = self.lock().take();
            if unused.is_none() {
                return;
            }
        }
    }

    /// The permit that is offered when this is polled.
    async fn accept(&self) -> CallerPermit {
        loop {
            self.made.notified().await;
            let permit = self.lock().take();
            if let Some(permit) = permit {
                return permit;
            }
        }
    }
}

impl CallerPermits {
    /// One thread fewer than cores, and one at least.
    pub(super) fn beside_others() -> Self {
        Self::new(threads(), usize::MAX)
    }

    /// For questions that keep a copy of a site: twice as many as threads, and one for each caller.
    pub(super) fn of_copies() -> Self {
        Self::new((2 * threads()).max(MIN_COPIES), COPIES_PER_CALLER)
    }

    pub(super) fn new(threads: usize, each: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: threads,
            each,
            used: HashMap::new(),
            waiting: HashMap::new(),
            groups: HashMap::new(),
            order: VecDeque::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit, when the caller is the next one.
    pub(super) async fn take(&self, caller: &str) -> Result<CallerPermit, Stopped> {
        let permit = {
            let mut state = self.lock();
            if state.try_begin(caller) {
                return Ok(self.permit(caller));
            }
            let (sender, permit) = oneshot::channel();
            if let Some(others) = state.waiting.get_mut(caller) {
                others.push_back(sender);
            } else {
                state.waiting.insert(caller.to_owned(), [sender].into());
                state.enqueue(caller);
            }
            permit
        };
        permit.await.map_err(|_| Stopped)
    }

    /// A permit, if the caller need not wait for it.
    pub(super) fn try_take(&self, caller: &str) -> Option<CallerPermit> {
        let begun = self.lock().try_begin(caller);
        begun.then(|| self.permit(caller))
    }

    /// A permit, when the caller is the next one, for a stream. If the stream is not polled then, others get the permit, and the caller is in the
    /// queue again.
    pub(super) async fn take_when_polled(&self, caller: &str) -> CallerPermit {
        if let Some(permit) = self.try_take(caller) {
            return permit;
        }
        let offer = Arc::new(Offer::default());
        let offers = Arc::clone(&offer).repeat(self.clone(), caller.to_owned());
        let _offers = AbortOnDropHandle::new(tokio::spawn(offers));
        offer.accept().await
    }

    /// Computes a slice, when its caller has a permit.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the process ends.
    pub(super) async fn compute<T: Send + 'static>(
        &self,
        caller: &str,
        slice: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let permit = self.take(caller).await?;
        let computed = tokio::task::spawn_blocking(move || {
            let computed = slice();
            // Also when its caller has left: the thread is free only now.
            drop(permit);
            computed
        });
        match computed.await {
            Ok(computed) => Ok(computed),
            // As if it had been computed here.
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(_) => Err(Error::Stopped(Stopped)),
        }
    }

    /// The permit of a caller that has begun.
    fn permit(&self, caller: &str) -> CallerPermit {
        CallerPermit {
            permits: self.clone(),
            caller: caller.to_owned(),
        }
    }
}

/// One thread fewer than cores, and one at least.
fn threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    cores.saturating_sub(1).max(1)
}

impl State {
    /// Whether the caller has fewer than it may have.
    fn has_share(&self, caller: &str) -> bool {
        self.used.get(caller).is_none_or(|used| *used < self.each)
    }

    /// Begins for a caller if a permit is free and the caller has fewer than it may have.
    fn try_begin(&mut self, caller: &str) -> bool {
        let may = self.free > 0 && self.has_share(caller);
        if may {
            self.begin(caller);
        }
        may
    }

    fn begin(&mut self, caller: &str) {
        self.free -= 1;
        *self.used.entry(caller.to_owned()).or_default() += 1;
    }

    fn end(&mut self, caller: &str) {
        self.free += 1;
        if let Some(used) = self.used.get_mut(caller) {
            *used -= 1;
            if *used == 0 {
                self.used.remove(caller);
            }
        }
    }

    /// Puts a caller that begins to wait behind the others of its group.
    fn enqueue(&mut self, caller: &str) {
        let group = group(caller);
        if let Some(callers) = self.groups.get_mut(group) {
            callers.push_back(caller.to_owned());
        } else {
            self.groups.insert(group.to_owned(), [caller.to_owned()].into());
            self.order.push_back(group.to_owned());
        }
    }

    /// Begins for a caller of the next group in order that still waits.
    fn next(&mut self) -> Option<(String, oneshot::Sender<CallerPermit>)> {
        for _ in 0..self.order.len() {
            let group = self.order.pop_front()?;
            let Some(mut callers) = self.groups.remove(&group) else {
                continue;
            };
            let next = self.next_of(&mut callers);
            if !callers.is_empty() {
                self.groups.insert(group.clone(), callers);
                self.order.push_back(group);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// Begins for the next of these callers that still waits. A caller that has as many as it may have is passed over.
    fn next_of(&mut self, callers: &mut VecDeque<String>) -> Option<(String, oneshot::Sender<CallerPermit>)> {
        for _ in 0..callers.len() {
            let caller = callers.pop_front()?;
            let has_share = self.has_share(&caller);
            let Some(own) = self.waiting.get_mut(&caller) else {
                continue;
            };
            own.retain(|waiter| !waiter.is_closed());
            let next = has_share.then(|| own.pop_front()).flatten();
            if own.is_empty() {
                self.waiting.remove(&caller);
            } else {
                callers.push_back(caller.clone());
            }
            if let Some(next) = next {
                self.begin(&caller);
                return Some((caller, next));
            }
        }
        None
    }
}

impl Drop for CallerPermit {
    fn drop(&mut self) {
        let next = {
            let mut state = self.permits.lock();
            state.end(&self.caller);
            state.next()
        };
        if let Some((caller, next)) = next {
            let permits = self.permits.clone();
            // A caller that has left in the meantime drops its permit, which the next one gets then.
            drop(next.send(CallerPermit { permits, caller }));
        }
    }
}

impl Region {
    /// Computes a slice of a question, when its caller has a permit.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the process ends.
    pub(crate) async fn compute<T: Send + 'static>(
        &self,
        caller: &str,
        slice: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        self.inner.permits.compute(caller, slice).await
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, future::join_all};

    use super::*;

    /// The order in which these callers, who wait for the only permit one after the other, have it.
    async fn order(callers: &[&'static str]) -> Vec<&'static str> {
        let permits = CallerPermits::new(1, usize::MAX);
        let first = permits.take("one").await.unwrap();
        let (log, mut told) = tokio::sync::mpsc::unbounded_channel();
        let ask = |caller: &'static str| {
            let (permits, log) = (permits.clone(), log.clone());
            async move {
                let permit = permits.take(caller).await.unwrap();
                log.send(caller).unwrap();
                drop(permit);
            }
        };
        let mut all = Box::pin(join_all(callers.iter().copied().map(ask)));
        assert!((&mut all).now_or_never().is_none(), "the only permit is taken");
        drop(first);
        all.await;
        drop(log);
        let mut order = Vec::new();
        while let Some(caller) = told.recv().await {
            order.push(caller);
        }
        let state = permits.lock();
        assert_eq!((state.free, state.waiting.len()), (1, 0));
        assert_eq!((state.groups.len(), state.order.len()), (0, 0));
        order
    }

    #[tokio::test]
    async fn callers_alternate_however_many_questions_they_have() {
        let order = order(&["one", "one", "one", "two", "one", "two"]).await;
        assert_eq!(order, ["one", "two", "one", "two", "one", "one"]);
    }

    #[tokio::test]
    async fn names_of_one_site_take_the_turns_of_one_caller() {
        const NAMES: [&str; 3] = ["site/a/agent/x", "site/a/agent/y", "site/a/agent/z"];
        let [x, y, z] = NAMES;
        let (other, person) = ("site/b/agent/cluster", "operator/agent");
        let order = order(&[x, x, y, z, other, other, person]).await;
        assert_eq!(order, [x, other, person, y, other, z, x]);
    }

    #[tokio::test]
    async fn a_permit_of_one_who_has_left_goes_to_the_next() {
        let permits = CallerPermits::new(1, usize::MAX);
        let first = permits.take("one").await.unwrap();
        let mut left = Box::pin(permits.take("two"));
        assert!((&mut left).now_or_never().is_none());
        let mut waits = Box::pin(permits.take("three"));
        assert!((&mut waits).now_or_never().is_none());
        // The permit is being passed to the one that leaves now.
        drop(first);
        drop(left);
        drop(waits.await.unwrap());
        let state = permits.lock();
        assert_eq!((state.free, state.waiting.len(), state.order.len()), (1, 0, 0));
    }

    #[tokio::test]
    async fn a_caller_has_its_share_of_copies_however_many_it_asks_for() {
        let permits = CallerPermits::new(2, 1);
        let first = permits.take("one").await.unwrap();
        let mut second = Box::pin(permits.take("one"));
        assert!((&mut second).now_or_never().is_none(), "it has its share");
        let other = permits.take("two").await.unwrap();
        let mut third = Box::pin(permits.take("three"));
        assert!((&mut third).now_or_never().is_none(), "all are taken");
        drop(other);
        let other = third.await.unwrap();
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        drop(second.await.unwrap());
        drop(other);
        let state = permits.lock();
        assert_eq!((state.free, state.used.len(), state.waiting.len()), (2, 0, 0));
    }
}
