//! `WatchPlacements`: the newest state of each cluster that changed, at the watcher's own pace. A watcher wakes for changes of its own
//! site, and for those of no other.
//!
//! Nothing is queued for a watcher. It has a cursor; when the connection has room for another event, the next changes
//! after the cursor are read. A slow watcher sees fewer states in between, never a gap, and costs no memory: changes that are read
//! have their records only as long as the site has them, and are encoded one at a time.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

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
    record::{ClusterId, Record},
    region::{Answers, Region, SharedSite},
    site::{Changed, Cursor},
};

/// Number of changes that are read at once.
const CHANGES_PER_READ: usize = 64;

/// A change that was read and is not sent yet.
#[derive(Debug)]
enum Ready {
    /// A record as long as it is the newest: a former one is left out, since its cluster comes again at a later revision.
    Record(Weak<Record>),
    Removed {
        revision: u64,
        cluster: ClusterId,
    },
}

impl Ready {
    fn new(change: Changed) -> Self {
        match change {
            Changed::Record(record) => Self::Record(Arc::downgrade(&record)),
            Changed::Removed { revision, cluster } => Self::Removed { revision, cluster },
        }
    }

    /// How many members the placement has that the event will contain.
    fn members(&self) -> usize {
        match self {
            Self::Record(record) => record.upgrade().map_or(0, |record| record.members.len()),
            Self::Removed {
                revision: _,
                cluster: _,
            } => 0,
        }
    }

    /// `None`: there is a newer state.
    fn change(self) -> Option<Changed> {
        match self {
            Self::Record(record) => record.upgrade().map(Changed::Record),
            Self::Removed { revision, cluster } => Some(Changed::Removed { revision, cluster }),
        }
    }
}

struct Watcher {
    name: String,
    caller: String,
    answers: Answers,
    site: Arc<SharedSite>,
    durable: watch::Receiver<Commit>,
    /// Changes whenever a change of the site is stored or refused.
    stored: watch::Receiver<()>,
    ending: CancellationToken,
    cursor: Cursor,
    /// Changes that were read and not sent yet, each with the epoch in which it was read.
    ready: VecDeque<(u64, Ready)>,
    /// Position for a `Reset` event, which is sent before any other: the client must discard all that it has received.
    reset: Option<SitePosition>,
    /// Revision up to which all events are sent, `Synced` included; `None` before the first `Synced`.
    sent: Option<u64>,
}

/// The events of a site for a caller, from a revision or from the beginning.
///
/// # Errors
/// [`Error::NotFound`].
pub(super) fn stream(
    region: &Region,
    caller: &str,
    name: &str,
    resume: Option<SitePosition>,
) -> Result<impl Stream<Item = Result<WatchPlacementsResponse, Status>> + Send + use<>, Error> {
    let site = region.site(name)?;
    let stored = site.stored();
    let durable = region.committer().watch();
    let here = site.position(*durable.borrow());
    let resumed = resume.filter(|at| at.epoch() == here.epoch() && at.revision() <= here.revision());
    let mut watcher = Watcher {
        name: name.to_owned(),
        caller: caller.to_owned(),
        answers: region.answers().clone(),
        cursor: Cursor::resume(resumed.unwrap_or_default().revision()),
        site,
        durable,
        stored,
        ending: region.committer().ending().clone(),
        ready: VecDeque::new(),
        reset: None,
        sent: None,
    };
    if resumed.is_none() {
        watcher.reset = Some(SitePosition::new(here.epoch(), 0));
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
    async fn next(&mut self) -> Result<WatchPlacementsResponse, Stopped> {
        loop {
            if let Some(at) = self.reset.take() {
                self.cursor = self.site.reading().await.beginning();
                self.ready.clear();
                return Ok(event(at, Event::Reset(Reset {})));
            }
            while let Some((epoch, ready)) = self.ready.pop_front() {
                // Nothing has the record while this waits: it may be replaced meanwhile.
                let permit = self.answers.permit_for_event(&self.caller, ready.members()).await;
                if let Some(change) = ready.change() {
                    let event = || self.event(epoch, change);
                    return Ok(match permit {
                        Some(permit) => permit.work(event),
                        None => event(),
                    });
                }
            }
            // Marked as seen before the durable commit is read, so that a change which is stored in between wakes the watcher.
            self.stored.borrow_and_update();
            let durable = *self.durable.borrow();
            let (here, changes) = {
                let site = self.site.reading().await;
                let here = site.position(durable);
                (here, site.changes(self.cursor, here.revision(), CHANGES_PER_READ))
            };
            match changes {
                None => self.reset = Some(SitePosition::new(here.epoch(), 0)),
                Some(changes) if changes.is_empty() => {
                    self.cursor.advance(here.revision());
                    if self.sent.is_none_or(|sent| sent < here.revision())
                        && self.sent.replace(here.revision()).is_none()
                    {
                        return Ok(event(here, Event::Synced(Synced {})));
                    }
                    let changed = self.ending.run_until_cancelled(self.stored.changed()).await;
                    changed.ok_or(Stopped)?.map_err(|_| Stopped)?;
                }
                Some(changes) => {
                    for change in changes {
                        self.cursor.advance(change.revision());
                        self.ready.push_back((here.epoch(), Ready::new(change)));
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

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::atomic::{AtomicUsize, Ordering},
        task::{Context, Poll, Wake, Waker},
        time::Duration,
    };

    use ::placement::ClusterName;
    use futures::StreamExt as _;

    use super::*;
    use crate::{
        ledger::{Contents, Fence, Ledger, Refusal, commit, redb::Redb},
        policy::Policies,
        site::Apply,
        spec::Spec,
    };

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_watcher_wakes_for_its_own_site_only() {
        let ledger = Redb::in_memory().unwrap();
        let mut durable: Contents = ledger.load().unwrap();
        let (committer, mut writer) = commit::committer(durable.commit);
        let region = Region::new(durable.clone(), Policies::new(), committer);
        let mut report = async |site: &str, transitions: i64| {
            let fence = Fence {
                lease: "lease".to_owned(),
                transitions,
            };
            let opened = region.open_session(site, &fence, None, "site/a/agent/cluster");
            let stored = async {
                let batch = writer.receive().await.unwrap();
                writer
                    .store(&ledger, batch, &mut durable, &|_| Commit::MAX)
                    .unwrap();
            };
            tokio::join!(opened, stored).0.unwrap()
        };
        let _a = report("a", 1).await;
        let _b = report("b", 1).await;

        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut events = Box::pin(stream(&region, "reader/one", "a", None).unwrap());
        let mut told = 0;
        while let Poll::Ready(Some(event)) = events.poll_next_unpin(&mut context) {
            event.unwrap();
            told += 1;
        }
        assert_eq!(told, 2, "that it begins anew, and that this is all");
        woken.0.store(0, Ordering::Relaxed);
        for transitions in 2..10 {
            report("b", transitions).await;
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 0, "for another site");
        report("a", 2).await;
        assert!(woken.0.load(Ordering::Relaxed) > 0);
        assert!(events.poll_next_unpin(&mut context).is_pending());
    }

    /// A region with a site, whose writer stores what is changed.
    async fn reporting() -> (Region, impl Sized) {
        let ledger: Arc<dyn Ledger> = Arc::new(Redb::in_memory().unwrap());
        let contents = ledger.load().unwrap();
        let (committer, writer) = commit::committer(contents.commit);
        let region = Region::new(contents.clone(), Policies::new(), committer);
        let undo = region.undo();
        std::thread::spawn(move || {
            let mut durable = contents;
            let undo = |refusal: &Refusal<'_>| undo.reset(refusal);
            futures::executor::block_on(writer.run(&*ledger, &mut durable, &undo))
        });
        let fence = Fence {
            lease: "lease".to_owned(),
            transitions: 1,
        };
        let opened = region.open_session("a", &fence, None, "site/a/agent/cluster");
        let opened = opened.await.unwrap();
        region.complete_snapshot("a", &opened.session().id).await.unwrap();
        (region, opened)
    }

    #[tokio::test]
    async fn a_watcher_that_does_not_read_keeps_no_former_record() {
        const CLUSTERS: usize = 10;
        let (region, _reporter) = reporting().await;
        let declare = async |number: usize, generation: i64| {
            let apply = Apply {
                cluster: ClusterName::new("tenant", format!("c{number}")).unwrap(),
                uid: "uid".to_owned(),
                generation,
                created: None,
                spec: Spec::default(),
            };
            let declared = region.apply("a", apply, "site/a/agent/cluster").await.unwrap();
            Arc::downgrade(&declared.record.unwrap())
        };
        let mut former = Vec::new();
        for number in 0..CLUSTERS {
            former.push(declare(number, 1).await);
        }
        let mut events = Box::pin(stream(&region, "reader/one", "a", None).unwrap());
        for _ in 0..2 {
            // That it begins anew, and the first cluster: the others are read with it.
            events.next().await.unwrap().unwrap();
        }
        for number in 0..CLUSTERS {
            declare(number, 2).await;
        }
        let gone = async {
            while former.iter().any(|record| record.strong_count() > 0) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let gone = tokio::time::timeout(Duration::from_secs(5), gone).await;
        gone.expect("former records are kept for a watcher that does not read");
        // And it misses nothing.
        let mut told = BTreeSet::new();
        loop {
            match events.next().await.unwrap().unwrap().event.unwrap() {
                Event::Changed(placement) => {
                    assert_eq!(placement.generation, 2);
                    told.insert(placement.cluster.unwrap().name);
                }
                Event::Synced(_) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(told.len(), CLUSTERS);
    }
}
