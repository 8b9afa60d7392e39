//! `WatchPlacements`: the newest state of each cluster that changed, at the watcher's own pace.
//!
//! Nothing is queued for a watcher. It has a cursor; when the connection has room for another event, the next changes
//! after the cursor are read. A slow watcher sees fewer states in between, never a gap, and costs no memory: changes that are read
//! share their records with the site, and are encoded one at a time.

use std::{collections::VecDeque, sync::Arc};

use futures::Stream;
use proto::placement::v1::{
    Removed, Reset, Synced, WatchPlacementsResponse, watch_placements_response::Event,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{
    convert,
    error::Error,
    ledger::{Commit, SitePosition, commit::Stopped},
    region::{Region, SharedSite},
    site::{Changed, Cursor},
};

/// Changes that are read at once.
const READ: usize = 64;

struct Watcher {
    name: String,
    site: Arc<SharedSite>,
    durable: watch::Receiver<Commit>,
    ending: CancellationToken,
    cursor: Cursor,
    /// Read in this epoch and not sent yet.
    ready: VecDeque<(u64, Changed)>,
    /// To be told before anything else: what is known is to be forgotten.
    reset: Option<SitePosition>,
    /// Everything up to here was told, `Synced` included; `None` before the first time.
    sent: Option<u64>,
}

/// The events of a site, from a revision or from the beginning.
///
/// # Errors
/// [`Error::NotFound`].
pub(super) fn stream(
    region: &Region,
    name: &str,
    resume: Option<SitePosition>,
) -> Result<impl Stream<Item = Result<WatchPlacementsResponse, Status>> + Send + use<>, Error> {
    let site = region.site(name)?;
    let durable = region.committer().watch();
    let here = site.read().position(*durable.borrow());
    let resumed = resume.filter(|at| at.epoch() == here.epoch() && at.revision() <= here.revision());
    let mut watcher = Watcher {
        name: name.to_owned(),
        cursor: Cursor::resume(resumed.unwrap_or_default().revision()),
        site,
        durable,
        ending: region.committer().ending().clone(),
        ready: VecDeque::new(),
        reset: None,
        sent: None,
    };
    if resumed.is_none() {
        watcher.reset(here);
    }
    Ok(futures::stream::unfold(watcher, |mut watcher| async move {
        let event = watcher
            .next()
            .await
            .map_err(|stopped| Status::from(Error::Stopped(stopped)));
        Some((event, watcher))
    }))
}

impl Watcher {
    fn reset(&mut self, here: SitePosition) {
        self.cursor = self.site.read().beginning();
        self.ready.clear();
        self.reset = Some(SitePosition::new(here.epoch(), 0));
    }

    async fn next(&mut self) -> Result<WatchPlacementsResponse, Stopped> {
        loop {
            if let Some(at) = self.reset.take() {
                return Ok(event(at, Event::Reset(Reset {})));
            }
            if let Some((epoch, change)) = self.ready.pop_front() {
                return Ok(self.event(epoch, change));
            }
            let durable = *self.durable.borrow_and_update();
            let (here, changes) = {
                let site = self.site.read();
                let here = site.position(durable);
                (here, site.changes(self.cursor, here.revision(), READ))
            };
            match changes {
                None => self.reset(here),
                Some(changes) if changes.is_empty() => {
                    self.cursor.advance(here.revision());
                    if self.sent.is_none_or(|sent| sent < here.revision())
                        && self.sent.replace(here.revision()).is_none()
                    {
                        return Ok(event(here, Event::Synced(Synced {})));
                    }
                    let changed = self.ending.run_until_cancelled(self.durable.changed()).await;
                    changed.ok_or(Stopped)?.map_err(|_| Stopped)?;
                }
                Some(changes) => {
                    for change in changes {
                        self.cursor.advance(change.revision());
                        self.ready.push_back((here.epoch(), change));
                    }
                }
            }
        }
    }

    fn event(&self, epoch: u64, change: Changed) -> WatchPlacementsResponse {
        let at = SitePosition::new(epoch, change.revision());
        match change {
            Changed::Record(record) => {
                event(at, Event::Changed(convert::placement(&self.name, epoch, &record)))
            }
            Changed::Removed { revision: _, cluster } => event(
                at,
                Event::Removed(Removed {
                    cluster: Some(convert::cluster_ref(&cluster)),
                }),
            ),
        }
    }
}

fn event(at: SitePosition, event: Event) -> WatchPlacementsResponse {
    WatchPlacementsResponse {
        revision: Some(at.into()),
        event: Some(event),
    }
}
