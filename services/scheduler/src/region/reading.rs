//! Large reads of a site: in turn, and without a turn while they wait for its lock.

use std::{sync::Arc, time::Instant};

use super::{
    Region,
    shared::{SharedSite, aside},
};
use crate::{error::Error, site::Site};

/// How many turns a read takes that find the site locked, before it waits for the lock without a turn.
const ATTEMPTS: usize = 4;

impl Region {
    /// Reads a slice of a site when it is the caller's turn. A turn never waits for the site's lock: turns are few, and a site's agent can keep its
    /// lock busy for long.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the process ends.
    pub(crate) async fn read<T, F>(&self, caller: &str, site: &Arc<SharedSite>, slice: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Site) -> T + Send + 'static,
    {
        let mut slice = slice;
        for _ in 0..ATTEMPTS {
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
        // The site was locked in each turn: wait for the lock, without a turn.
        let site = site.reading().await;
        Ok(aside(|| slice(&site)))
    }

    /// The same for a slice that copies the hosts of the site: for a part of the time at most.
    pub(crate) async fn read_copying<T, F>(
        &self,
        caller: &str,
        site: &Arc<SharedSite>,
        slice: F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Site) -> T + Send + 'static,
    {
        site.copies.due().await;
        let timed = move |site: &Site| {
            let begun = Instant::now();
            (slice(site), begun.elapsed())
        };
        let (read, took) = self.read(caller, site, timed).await?;
        site.copies.made(took);
        Ok(read)
    }
}
