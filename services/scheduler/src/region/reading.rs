//! Large reads of a site. While they wait for its lock they have no permit to compute, and a permit for a copy only for a short time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::time::{sleep, timeout};

use super::{
    Region,
    copy_memory::CopyPermit,
    shared::{SharedSite, run_blocking},
};
use crate::{error::Error, site::Site};

/// Maximum number of attempts of a read that finds the site locked, before it waits for the lock without a permit to compute.
const MAX_ATTEMPTS: usize = 4;
/// How long a read that has a permit for a copy waits for the site's lock before it gives the permit back. Without this time it would need the lock
/// and a permit at the same moment, which may never come: a permit that is returned goes to the next that waits for one, and so does the lock.
/// Reads of other sites wait meanwhile if there is no other permit, or not enough memory beside that of this one.
const LOCK_TIMEOUT: Duration = Duration::from_millis(50);
/// Minimum and maximum pause between two attempts to copy a site.
const COPY_BACKOFF: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

impl Region {
    /// Reads a slice of a site when the caller has a permit. It never waits for the site's lock with the permit: permits are few, and a site's agent
    /// can keep its lock busy for long.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the process ends.
    pub(crate) async fn read<T, F>(&self, caller: &str, site: &Arc<SharedSite>, slice: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Site) -> T + Send + 'static,
    {
        let mut slice = slice;
        for _ in 0..MAX_ATTEMPTS {
            let shared = Arc::clone(site);
            let read = move || match shared.try_reading() {
                Some(site) => Ok(slice(&site)),
                None => Err(slice),
            };
            slice = match self.compute(caller, read).await? {
                Ok(read) => return Ok(read),
                Err(slice) => slice,
            };
            drop(site.reading().await);
        }
        // The site was locked at each attempt: wait for the lock, without a permit.
        let site = site.reading().await;
        Ok(run_blocking(|| slice(&site)))
    }

    /// Reads a slice that copies the hosts of the site, for a part of the time at most, and returns it with the permit to keep the copy. `None`:
    /// its lock, and the rest after other copies, have left no time for a copy within `patience`.
    ///
    /// Nobody waits for one site with a permit for longer than [`LOCK_TIMEOUT`]: there are few permits for the copies of all sites, and a site's agent can
    /// keep its lock busy for long. After that the read waits for the lock without a permit, and copies if there is a permit then.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the process ends.
    pub(crate) async fn read_copying<T, F>(
        &self,
        caller: &str,
        site: &Arc<SharedSite>,
        patience: Duration,
        slice: F,
    ) -> Result<Option<(T, CopyPermit)>, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Site) -> T + Send + 'static,
    {
        let (mut slice, mut left, mut pauses) = (slice, patience, pauses());
        loop {
            let waits = Instant::now();
            if timeout(left, site.copies.rested()).await.is_err() {
                return Ok(None);
            }
            left = left.saturating_sub(waits.elapsed());

            // What is waited for here is not of this site, so it does not count against the patience with it.
            let permit = self.copy(caller, site).await?;
            let shared = Arc::clone(site);
            let read = move || match shared.try_reading().filter(|_| shared.copies.reserve()) {
                Some(locked) => Ok((copied(&shared, &locked, slice), permit)),
                None => Err((slice, permit)),
            };
            let (unread, permit) = match self.compute(caller, read).await? {
                Ok(copy) => return Ok(Some(copy)),
                Err(unread) => unread,
            };
            slice = unread;

            let waits = Instant::now();
            if let Ok(locked) = timeout(LOCK_TIMEOUT.min(left), site.reading()).await
                && site.copies.reserve()
            {
                let read = run_blocking(|| copied(site, &locked, slice));
                return Ok(Some((read, permit)));
            }
            drop(permit);
            left = left.saturating_sub(waits.elapsed());

            let waits = Instant::now();
            {
                // In the order of the queue, so that who is always at work does not keep this read from it.
                let Ok(locked) = timeout(left, site.reading()).await else {
                    return Ok(None);
                };
                if let Some(permit) = self.try_copy(caller, site)
                    && site.copies.reserve()
                {
                    let read = run_blocking(|| copied(site, &locked, slice));
                    return Ok(Some((read, permit)));
                }
            }
            let pause = pauses.next().unwrap_or(COPY_BACKOFF[1]);
            if pause > left {
                return Ok(None);
            }
            sleep(pause).await;
            left = left.saturating_sub(waits.elapsed());
        }
    }
}

/// Copies a slice of a site that is locked, and records how long that took.
fn copied<T>(site: &SharedSite, locked: &Site, slice: impl FnOnce(&Site) -> T) -> T {
    let begun = Instant::now();
    let read = slice(locked);
    site.copies.made(begun.elapsed());
    read
}

/// How long to wait before each attempt but the first.
fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(COPY_BACKOFF[0])
        .with_max_delay(COPY_BACKOFF[1])
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;
    use crate::region::fixtures::region_of;

    /// Callers of one site: more than there are permits for copies on a machine of 30 cores.
    const CALLERS: usize = 60;

    #[tokio::test]
    async fn who_waits_for_a_site_keeps_no_copy_of_others() {
        let (region, _writer) = region_of(&["a", "b"]);
        let (busy, other) = (region.site("a").unwrap(), region.site("b").unwrap());
        let changes = busy.lock();
        let mut waiting = JoinSet::new();
        for number in 0..CALLERS {
            let (region, busy) = (region.clone(), Arc::clone(&busy));
            waiting.spawn(async move {
                let caller = number.to_string();
                let name = |site: &Site| site.name().to_owned();
                let read = region.read_copying(&caller, &busy, Duration::MAX, name);
                read.await.map(|read| read.unwrap().0)
            });
        }
        // All of them have found the site locked, or wait for a permit.
        for _ in 0..CALLERS {
            tokio::task::yield_now().await;
        }
        let name = |site: &Site| site.name().to_owned();
        let read = region.read_copying("other", &other, Duration::MAX, name);
        let read = timeout(Duration::from_secs(20), read).await.unwrap().unwrap();
        assert_eq!(read.unwrap().0, "b");
        drop(changes);
        while let Some(read) = waiting.join_next().await {
            assert_eq!(read.unwrap().unwrap(), "a");
        }
    }

    #[tokio::test]
    async fn a_site_at_work_is_given_up_after_the_patience() {
        let (region, _writer) = region_of(&["a", "b"]);
        let busy = region.site("a").unwrap();
        let changes = busy.lock();
        let begun = Instant::now();
        let read = region.read_copying("one", &busy, Duration::from_millis(300), |_: &Site| ());
        assert!(read.await.unwrap().is_none());
        assert!(
            begun.elapsed() >= Duration::from_millis(250),
            "{:?}",
            begun.elapsed()
        );
        drop(changes);
        // Without any patience it is read if it is free.
        let read = region.read_copying("one", &busy, Duration::ZERO, |_: &Site| ());
        assert!(read.await.unwrap().is_some());
    }

    /// Changes a site again and again.
    async fn change_always(site: &SharedSite) {
        loop {
            let changes = site.changing().await;
            sleep(Duration::from_millis(1)).await;
            drop(changes);
        }
    }

    #[tokio::test]
    async fn a_read_needs_no_moment_with_free_lock_and_permit() {
        let (region, _writer) = region_of(&["a", "b"]);
        let (busy, other) = (region.site("a").unwrap(), region.site("b").unwrap());
        let mut copies: JoinSet<()> = JoinSet::new();
        for number in 0..CALLERS {
            let (region, other) = (region.clone(), Arc::clone(&other));
            copies.spawn(async move {
                loop {
                    let permit = region.copy(&number.to_string(), &other).await.unwrap();
                    sleep(Duration::from_millis(1)).await;
                    drop(permit);
                }
            });
        }
        let read = region.read_copying("x", &busy, Duration::from_secs(10), |_: &Site| ());
        // One changes the site while the other waits for its lock.
        let read = tokio::select! {
            read = read => read,
            () = change_always(&busy) => unreachable!(),
            () = change_always(&busy) => unreachable!(),
        };
        assert!(read.unwrap().is_some());
    }

    #[tokio::test]
    async fn reads_at_once_leave_their_site_time_for_changes() {
        const TOOK: Duration = Duration::from_millis(20);
        let (region, _writer) = region_of(&["a", "b"]);
        let site = region.site("a").unwrap();
        let copy = async |caller: &str| {
            let read = region.read_copying(caller, &site, Duration::MAX, |_: &Site| std::thread::sleep(TOOK));
            read.await.unwrap().unwrap();
        };
        let begun = Instant::now();
        copy("first").await;
        tokio::join!(copy("one"), copy("two"), copy("three"), copy("four"));
        // After the first copy four times its duration, and between any two of the others as well.
        let all = begun.elapsed();
        assert!(all >= TOOK + 4 * TOOK + 3 * 5 * TOOK, "{all:?}");
    }
}
