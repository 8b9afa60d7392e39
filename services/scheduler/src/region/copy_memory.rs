//! Memory for copies of sites: questions that keep one wait for it, and no change does.

use std::sync::Arc;

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::{Inner, Region, caller_permits::CallerPermit, shared::SharedSite};
use crate::{error::Error, ledger::commit::Stopped};

/// Number of parts in which the memory for copies is counted.
const MEMORY_PARTS: u32 = 1024;

/// Memory for copies: as much as the largest site may take. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct CopyMemory(Arc<Semaphore>);

/// The right to keep a copy of a site, until it is dropped.
#[derive(Debug)]
pub(crate) struct CopyPermit {
    _memory: OwnedSemaphorePermit,
    permit: CallerPermit,
}

impl Default for CopyMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MEMORY_PARTS as usize)))
    }
}

impl CopyMemory {
    /// Memory for so many bytes of `all`, when it is there. Who comes first has it first; one that takes all waits until all is free.
    async fn take(&self, bytes: usize, all: usize) -> Result<OwnedSemaphorePermit, Stopped> {
        let permit = Arc::clone(&self.0).acquire_many_owned(parts(bytes, all)).await;
        permit.map_err(|_| Stopped)
    }

    /// The same if it is there now.
    fn try_take(&self, bytes: usize, all: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_many_owned(parts(bytes, all)).ok()
    }
}

fn parts(bytes: usize, all: usize) -> u32 {
    let parts = bytes.saturating_mul(MEMORY_PARTS as usize).div_ceil(all.max(1));
    u32::try_from(parts)
        .unwrap_or(MEMORY_PARTS)
        .clamp(1, MEMORY_PARTS)
}

impl Region {
    /// The right to keep a copy of a site, when the caller has a permit, the caller's pause is over, and there is memory for it.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the process ends.
    pub(super) async fn copy(&self, caller: &str, site: &SharedSite) -> Result<CopyPermit, Error> {
        let Inner {
            copies,
            cooldowns,
            copy_memory,
            ..
        } = &*self.inner;
        let permit = cooldowns.permit(copies, caller).await?;
        let memory = copy_memory
            .take(site.copy_bytes(), self.limits().inventory)
            .await?;
        Ok(CopyPermit {
            _memory: memory,
            permit,
        })
    }

    /// The same right if nothing of it must be waited for.
    pub(super) fn try_copy(&self, caller: &str, site: &SharedSite) -> Option<CopyPermit> {
        let Inner {
            copies,
            cooldowns,
            copy_memory,
            ..
        } = &*self.inner;
        let permit = cooldowns.try_permit(copies, caller)?;
        let memory = copy_memory.try_take(site.copy_bytes(), self.limits().inventory)?;
        Some(CopyPermit {
            _memory: memory,
            permit,
        })
    }

    /// Computes a slice of a question that keeps a copy, when its caller has a permit to compute. The copy counts until the slice is computed, also
    /// when its caller has left.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the process ends.
    pub(crate) async fn compute_copy<T: Send + 'static>(
        &self,
        copy: CopyPermit,
        slice: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, CopyPermit), Error> {
        let (caller, cooldowns) = (copy.permit.caller().to_owned(), self.inner.cooldowns.clone());
        let slice = move || {
            let begun = Instant::now();
            let computed = slice();
            cooldowns.record(copy.permit.caller(), begun.elapsed());
            (computed, copy)
        };
        self.compute(&caller, slice).await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn copies_together_take_no_more_than_there_is() {
        let memory = CopyMemory::default();
        let half = memory.take(50, 100).await.unwrap();
        let more = memory.take(50, 100).await.unwrap();
        let mut waits = Box::pin(memory.take(1, 100));
        assert!((&mut waits).now_or_never().is_none());
        drop(half);
        drop(waits.await.unwrap());
        // Also one that has become larger than all there is.
        let mut largest = Box::pin(memory.take(300, 100));
        assert!((&mut largest).now_or_never().is_none());
        drop(more);
        drop(largest.await.unwrap());
    }

    #[test]
    fn a_small_copy_takes_a_part_and_none_takes_more_than_all() {
        assert_eq!(parts(0, 512 << 20), 1);
        assert_eq!(parts(1 << 20, 512 << 20), 2);
        assert_eq!(parts(usize::MAX, 512 << 20), MEMORY_PARTS);
        assert_eq!(parts(1, 0), MEMORY_PARTS);
    }
}
