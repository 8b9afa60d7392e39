//! Who makes large answers, and who waits.

use super::{
    Region,
    caller_permits::{CallerPermit, CallerPermits},
};
use crate::error::Error;

/// Maximum number of members of a placement that the thread of a call converts for its answer: it takes less than a tenth of a millisecond.
const MAX_INLINE_MEMBERS: usize = 64;

impl Region {
    /// Who makes large answers.
    pub(crate) fn answers(&self) -> &Answers {
        &self.inner.answers
    }
}

/// Who makes large answers, and who waits. Cheap to clone.
///
/// A placement of thousands of members takes milliseconds, and an identity may have hundreds of calls in progress: on the threads that serve all
/// calls, everybody else would wait behind them. These permits are apart from those of [`Region::compute`], where one slice may take seconds, and
/// those of answers to changes apart from those to reads.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    reads: CallerPermits,
    changes: CallerPermits,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            reads: CallerPermits::beside_others(),
            changes: CallerPermits::beside_others(),
        }
    }
}

impl Answers {
    /// Makes the answer to a read, which has a placement of so many members: at once if they are few, and otherwise when the caller has a permit.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the process ends.
    pub(crate) async fn for_read<T: Send + 'static>(
        &self,
        caller: &str,
        members: usize,
        answer: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        self.reads.answer(caller, members, answer).await
    }

    /// The permit with which an event of a watch is made, which has a placement of so many members; `None`: they are few, and the event needs none.
    /// The event is made by [`CallerPermit::work`] and encoded by the same poll. So nothing is kept for a client that does not read: neither the
    /// event, which would count against no limit, nor the permit.
    pub(crate) async fn permit_for_event(&self, caller: &str, members: usize) -> Option<CallerPermit> {
        if members <= MAX_INLINE_MEMBERS {
            return None;
        }
        Some(self.reads.take_when_polled(caller).await)
    }

    /// The same as [`for_read`](Self::for_read) for the answer to a change.
    ///
    /// # Errors
    /// As [`for_read`](Self::for_read).
    pub(crate) async fn for_change<T: Send + 'static>(
        &self,
        caller: &str,
        members: usize,
        answer: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        self.changes.answer(caller, members, answer).await
    }

    /// Takes all permits of reads that are free.
    #[cfg(test)]
    pub(crate) fn occupy_reads(&self) -> Vec<CallerPermit> {
        std::iter::from_fn(|| self.reads.try_take("another")).collect()
    }
}

impl CallerPermits {
    async fn answer<T: Send + 'static>(
        &self,
        caller: &str,
        members: usize,
        answer: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        if members <= MAX_INLINE_MEMBERS {
            return Ok(answer());
        }
        self.compute(caller, answer).await
    }
}
