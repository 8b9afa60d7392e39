//! How many copies of a cluster fit in each site.

mod waits;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use placement::{ClusterName, Holder, Member, MemberState, Namespace, Refusal, Request, Site};
use proto::inventory::v1::{FindCapacityRequest, FindCapacityResponse, SiteCapacity, UnsyncedSite};
use tokio::time::timeout_at;

use self::waits::Waits;
use crate::{
    convert,
    error::Error,
    ledger::StageMetrics,
    load,
    region::{Region, SLICE_DURATION, SharedSite},
    site,
    spec::Spec,
    violation::Violation,
};

/// Maximum number of copies of a cluster that are counted in a site.
const MAX_COPIES: u32 = 1000;

/// Time for a read without a deadline.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a site has no result that had no time for the question.
const BUSY: &str = "busy: changes of the site or other questions left no time for this read; retry";
/// Why a site has no result whose copies were not counted in its share of the time.
const LATE: &str = "not counted in time: ask for fewer copies, or give the call more time";

/// A `FindCapacity`, parsed.
#[derive(Clone, Debug)]
pub(super) struct Question {
    spec: Spec,
    namespace: Namespace,
    most: u32,
}

impl Question {
    /// Parses it.
    ///
    /// # Errors
    /// Every field that breaks a rule.
    pub(super) fn parse(request: FindCapacityRequest) -> Result<Self, Error> {
        let FindCapacityRequest {
            spec,
            namespace,
            max_copies,
        } = request;
        let spec = spec.ok_or_else(|| Error::Invalid(vec![Violation::new("spec", "is missing")]))?;
        let spec = convert::declared_spec(spec, "spec").map_err(Error::Invalid)?;
        let members = spec.require_members(None, "spec");
        members.map_err(|violation| Error::Invalid(vec![violation]))?;
        let namespace = Namespace::new(if namespace.is_empty() {
            "default"
        } else {
            &namespace
        })
        .map_err(|error| Error::Invalid(vec![Violation::new("namespace", error)]))?;
        Ok(Self {
            spec,
            namespace,
            most: max_copies.clamp(1, MAX_COPIES),
        })
    }
}

/// How many copies fit in each site. Sites that have no time at once are asked again after all others, and after these the sites whose copies were
/// not counted in their share of the time.
///
/// # Errors
/// [`Error::Stopped`] when the process ends.
pub(super) async fn find(
    region: &Region,
    caller: &str,
    question: Question,
) -> Result<FindCapacityResponse, Error> {
    let all = region.sites();
    let time = load::time_left().unwrap_or(DEFAULT_TIMEOUT);
    let count = all.len();
    let waits = Waits::new(Instant::now(), time, count);
    let asking = Asking {
        region,
        caller,
        question,
        waits,
    };
    let (mut sites, mut unsynced, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for (asked, (name, site)) in all.into_iter().enumerate() {
        match asking.read(&name, &site, waits.brief, count - asked).await? {
            Read::Counted(capacity) => sites.push(capacity),
            Read::Unsynced(site) => unsynced.push(site),
            Read::Missed(reason) => again.push((reason, name, site)),
        }
    }
    // Sites that take long come last: they get the time that the others leave.
    again.sort_by_key(|(reason, ..)| *reason == LATE);
    let count = again.len();
    for (asked, (first, name, site)) in again.into_iter().enumerate() {
        let left = count - asked;
        let patience = waits.next(Instant::now(), left);
        match asking.read(&name, &site, patience, left).await? {
            Read::Counted(capacity) => sites.push(capacity),
            Read::Unsynced(site) => unsynced.push(site),
            Read::Missed(now) => {
                // Fewer copies help where they took long at first, also if the site is busy now.
                let reason = if first == LATE { first } else { now };
                unsynced.push(UnsyncedSite {
                    site: name,
                    reason: reason.to_owned(),
                });
            }
        }
    }
    sites.sort_by(|one, other| one.site.cmp(&other.site));
    unsynced.sort_by(|one, other| one.site.cmp(&other.site));
    Ok(FindCapacityResponse { sites, unsynced })
}

/// A question that a caller asks of one site after the other.
#[derive(Debug)]
struct Asking<'a> {
    region: &'a Region,
    caller: &'a str,
    question: Question,
    waits: Waits,
}

/// What a site answers.
#[derive(Debug)]
enum Read {
    Counted(SiteCapacity),
    Unsynced(UnsyncedSite),
    /// It has no result yet, for this reason.
    Missed(&'static str),
}

impl Asking<'_> {
    /// Reads one of so many sites that are `left`, and counts copies in it for its share of the time.
    async fn read(
        &self,
        name: &str,
        shared: &Arc<SharedSite>,
        patience: Duration,
        left: usize,
    ) -> Result<Read, Error> {
        let Self {
            region,
            caller,
            waits,
            ..
        } = *self;
        // The timeout below would begin a copy that nobody uses.
        if Instant::now() >= waits.ends {
            return Ok(Read::Missed(BUSY));
        }
        // Copies are placed one after the other on a copy of the model, so the lock is not needed for long. Others that ask
        // wait before they have one.
        let begin = {
            let (region, question) = (region.clone(), self.question.clone());
            move |locked: &site::Site| -> Result<_, Error> {
                locked.require_synced()?;
                let revision = region.state(locked).position.into();
                let Question {
                    spec,
                    namespace,
                    most,
                } = question;
                Ok((
                    Count::new(locked.model().clone(), spec, namespace, most),
                    revision,
                ))
            }
        };
        let read = region.read_copying(caller, shared, patience, begin);
        let Ok(read) = timeout_at(waits.ends.into(), read).await else {
            return Ok(Read::Missed(BUSY));
        };
        let Some((started, mut copy)) = read? else {
            return Ok(Read::Missed(BUSY));
        };
        let (mut count, revision) = match started {
            Ok(started) => started,
            Err(error) => {
                return Ok(Read::Unsynced(UnsyncedSite {
                    site: name.to_owned(),
                    reason: error.to_string(),
                }));
            }
        };
        let counted_by = waits.counted_by(Instant::now(), left);
        loop {
            let metrics = region.committer().metrics().clone();
            let advance = region.compute_copy(copy, move || count.advance(&metrics));
            let Ok(advanced) = timeout_at(counted_by.into(), advance).await else {
                return Ok(Read::Missed(LATE));
            };
            let (counted, kept) = advanced?;
            copy = kept;
            match counted? {
                Counted::More(more) => count = more,
                Counted::All(copies, limit) => {
                    return Ok(Read::Counted(SiteCapacity {
                        site: name.to_owned(),
                        copies,
                        limit,
                        revision: Some(revision),
                    }));
                }
            }
        }
    }
}

/// The name of a cluster that is only asked about.
///
/// # Errors
/// When the namespace cannot hold clusters.
pub(super) fn probe(namespace: &Namespace, copy: u32) -> Result<ClusterName, Error> {
    ClusterName::new(namespace.as_str(), format!("capacity-{copy}"))
        .map_err(|error| Error::Invalid(vec![Violation::new("namespace", error)]))
}

/// Copies of a cluster that are placed one after the other in a copy of a site, a slice at a time.
#[derive(Debug)]
pub(super) struct Count {
    model: Site,
    spec: Spec,
    namespace: Namespace,
    copies: u32,
    most: u32,
}

/// What a slice has found.
#[derive(Debug)]
pub(super) enum Counted {
    /// There is more to count.
    More(Box<Count>),
    /// So many copies fit, and why not one more; empty when no more were requested.
    All(u32, String),
}

impl Count {
    pub(super) fn new(model: Site, spec: Spec, namespace: Namespace, most: u32) -> Box<Self> {
        Box::new(Self {
            model,
            spec,
            namespace,
            copies: 0,
            most,
        })
    }

    /// Places copies for a while.
    ///
    /// # Errors
    /// When the namespace cannot hold clusters.
    pub(super) fn advance(mut self: Box<Self>, metrics: &StageMetrics) -> Result<Counted, Error> {
        let begun = Instant::now();
        while self.copies < self.most {
            let cluster = probe(&self.namespace, self.copies)?;
            if let Some(refusal) = metrics.decide("capacity", || self.place(&cluster)) {
                return Ok(Counted::All(self.copies, refusal.message()));
            }
            self.copies += 1;
            if begun.elapsed() >= SLICE_DURATION {
                return Ok(Counted::More(self));
            }
        }
        Ok(Counted::All(self.copies, String::new()))
    }

    /// Places one more copy; why that is not possible.
    fn place(&mut self, cluster: &ClusterName) -> Option<Refusal> {
        let request = Request {
            cluster: cluster.clone(),
            roles: self.spec.roles().to_vec(),
            networks: self.spec.networks().clone(),
        };
        let none: [Member; 0] = [];
        let decision = placement::decide(&self.model, &request, &none);
        if decision.refusal.is_some() {
            return decision.refusal;
        }
        for take in decision.take {
            let holder = Holder::Cluster {
                cluster: cluster.clone(),
                role: take.role,
                state: MemberState::Claimed,
            };
            self.model.hold(&take.host, holder);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use futures::FutureExt as _;

    use super::*;
    use crate::{ledger::CallChanges, region::fixtures::region_of};

    fn question() -> Question {
        Question {
            spec: Spec::default(),
            namespace: Namespace::new("default").unwrap(),
            most: 1,
        }
    }

    /// Names of the sites that had no time for a question whose caller waits so long.
    async fn busy(region: &Region, time: Duration) -> Vec<String> {
        let deadline = Instant::now() + time;
        let found = load::with_deadline(
            Some(deadline.into()),
            CallChanges::default(),
            find(region, "one", question()),
        );
        let FindCapacityResponse { sites, unsynced } = found.await.expect("in time").unwrap();
        // No site has reported; one that had time for the question says so.
        assert_eq!((sites.len(), unsynced.len()), (0, region.sites().len()));
        let busy = unsynced.into_iter().filter(|site| site.reason == BUSY);
        busy.map(|site| site.site).collect()
    }

    #[tokio::test]
    async fn busy_sites_do_not_hide_one_that_rests() {
        let (region, _writer) = region_of(&["a", "b", "c", "d", "z"]);
        let resting = region.site("z").unwrap();
        let copy = |_: &site::Site| thread::sleep(Duration::from_millis(200));
        let copied = region.read_copying("other", &resting, Duration::MAX, copy).await;
        drop(copied.unwrap().unwrap());
        let locked = ["a", "b", "c", "d"].map(|site| region.site(site).unwrap());
        let locks: Vec<_> = locked.iter().map(|site| site.lock()).collect();
        assert_eq!(busy(&region, Duration::from_secs(5)).await, ["a", "b", "c", "d"]);
        drop(locks);
    }

    #[tokio::test]
    async fn a_busy_site_leaves_a_short_deadline_to_others() {
        let (region, _writer) = region_of(&["a", "b"]);
        let locked = region.site("a").unwrap();
        let lock = locked.lock();
        assert_eq!(busy(&region, Duration::from_secs(2)).await, ["a"]);
        drop(lock);
    }

    #[tokio::test]
    async fn a_question_waits_for_no_permit_after_its_time() {
        let (region, _writer) = region_of(&["a", "b"]);
        let kept = region.site("b").unwrap();
        let read = region.read_copying("one", &kept, Duration::MAX, |_: &site::Site| ());
        // The caller has the one copy that it may have.
        let copy = read.await.unwrap().unwrap();
        assert_eq!(busy(&region, Duration::from_secs(1)).await, ["a", "b"]);
        drop(copy);
    }

    #[tokio::test]
    async fn no_copy_is_begun_after_the_time() {
        let (region, _writer) = region_of(&["a"]);
        let asking = Asking {
            region: &region,
            caller: "one",
            question: question(),
            waits: Waits::new(Instant::now(), Duration::ZERO, 1),
        };
        let site = region.site("a").unwrap();
        // It is free, and a copy of it would be waited for.
        let read = asking.read("a", &site, Duration::ZERO, 1).now_or_never();
        assert!(matches!(read, Some(Ok(Read::Missed(BUSY)))), "{read:?}");
    }
}
