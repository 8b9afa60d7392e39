//! The scheduler: a real [`Site`] that works through the real committer, and what its process adds: a queue for the disk, and
//! answers that wait for it. What is decided, refused and freed is the code's doing, not the model's.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{Hash, Hasher},
    pin::pin,
    sync::{Arc, LazyLock},
    task::{Context, Waker},
    time::{Duration, SystemTime},
};

use futures::FutureExt as _;
use placement::{ClusterName, Policy};
use proto::inventory::v1 as wire;
use scheduler::{
    convert,
    ledger::{
        Commit, Contents, Fence, History, Refusal, SiteFence, SitePosition,
        commit::{self, Committer, Permit},
    },
    site::{Apply, Author, SessionId, Site},
    spec::Spec,
};

use crate::{
    ledger::{Held, Ledger, Queue, Records, Staged},
    messages::{Answer, Ask, Piece, Placement, Request, changes, observed},
    world::{self, HOSTS, HostKey, Observed},
};

const SITE: &str = "a";
const LEASE: &str = "lease";
/// The clock stands still: nothing that is proved here depends on time.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

/// Who reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Session {
    pub(crate) agent: u8,
    pub(crate) stream: u8,
    pub(crate) synced: bool,
    /// It goes on when this is durable.
    pub(crate) after: u64,
}

/// The process: all of this is lost in a crash.
#[derive(Clone)]
pub(crate) struct Scheduler {
    site: Arc<Site>,
    /// Number of the last change that is staged.
    revision: u64,
    pub(crate) session: Option<Session>,
    id: Option<SessionId>,
    pub(crate) staged: Vec<Staged>,
    /// Clusters of which a report says something that their records were not compared with yet.
    pub(crate) unsettled: BTreeSet<u8>,
    /// Answers, and what must be durable before each is given.
    waiting: Vec<(u64, Answer)>,
    seen: Seen,
}

/// What can be seen of the site.
#[derive(Clone, Debug, PartialEq, Hash)]
struct Seen {
    records: Records,
    observed: Observed,
    /// `SIPCluster`s that are remembered as gone.
    gone: Vec<(u8, String)>,
    due: Vec<u8>,
    history: History,
    issued: u64,
    /// Whether what was issued to the site is known.
    complete: bool,
}

impl Seen {
    fn of_site(site: &Site) -> Self {
        let records = site
            .records()
            .iter()
            .map(|(name, record)| (world::cluster_index(name), Held(Arc::clone(record))));
        let gone = site.deleted_clusters();
        Self {
            gone: gone
                .map(|cluster| (world::cluster_index(&cluster.name), cluster.uid.clone()))
                .collect(),
            records: records.collect(),
            observed: observed(site),
            history: *site.history(),
            issued: site.issued(),
            complete: site.are_positions_complete(),
            due: site.waiting(now()).iter().map(world::cluster_index).collect(),
        }
    }
}

impl Scheduler {
    fn data(&self) -> impl PartialEq + Hash + fmt::Debug {
        let Self {
            site: _,
            revision,
            session,
            id: _,
            staged,
            unsettled,
            waiting,
            seen,
        } = self;
        (*revision, *session, staged, unsettled, waiting, seen)
    }
}

impl PartialEq for Scheduler {
    fn eq(&self, other: &Self) -> bool {
        self.data() == other.data()
    }
}

impl Hash for Scheduler {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.data().hash(state);
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.data().fmt(f)
    }
}

impl Scheduler {
    /// A process that has just opened the ledger.
    pub(crate) fn start(ledger: &Ledger) -> Self {
        let records = ledger
            .records
            .iter()
            .map(|(cluster, held)| (world::cluster_name(*cluster), Arc::clone(&held.0)));
        let fence = ledger.fence.map(|transitions| SiteFence {
            highest: fence(transitions),
            retired: BTreeSet::new(),
        });
        let site = Site::new(
            SITE.to_owned(),
            Policy::default(),
            records.collect(),
            Commit::new(ledger.removed),
            fence,
            ledger.history,
        );
        Self {
            seen: Seen::of_site(&site),
            site: Arc::new(site),
            revision: ledger.revision,
            session: None,
            id: None,
            staged: Vec::new(),
            unsettled: BTreeSet::new(),
            waiting: Vec::new(),
        }
    }

    /// The highest revision that was issued.
    pub(crate) fn issued(&self) -> u64 {
        self.seen.issued
    }

    /// Records in memory, durable or not.
    pub(crate) fn records(&self) -> &Records {
        &self.seen.records
    }

    /// Clusters with the hosts that they hold for themselves, durable or not.
    pub(crate) fn claims(&self) -> BTreeSet<(u8, HostKey)> {
        let members = |(cluster, held): (&u8, &Held)| {
            let kept = held.members().filter(|member| !member.releasing);
            let cluster = *cluster;
            kept.map(move |member| (cluster, member.host)).collect::<Vec<_>>()
        };
        self.records().iter().flat_map(members).collect()
    }

    /// What was reported.
    pub(crate) fn observed(&self) -> &Observed {
        &self.seen.observed
    }

    /// Takes a call in.
    pub(crate) fn serve(&mut self, request: &Request) {
        let Request {
            agent: _,
            cluster,
            uid,
            ask,
        } = request;
        let name = world::cluster_name(*cluster);
        let uid = world::cluster_uid(*uid);
        let ask = ask.clone();
        let outcome = self.drive(|site, committer| {
            let author = author("call");
            let permit = permit(committer);
            match ask {
                Ask::Apply { generation, want } => {
                    let apply = Apply {
                        cluster: name,
                        uid,
                        generation,
                        created: None,
                        spec: spec(want),
                    };
                    site.apply(apply, &author, permit)
                }
                Ask::Release => site.release(&name, &uid, &author, permit),
                Ask::Confirm { host, revision } => {
                    let released = BTreeMap::from([(world::host_id(host), revision)]);
                    site.confirm(&name, &uid, &released, &author, permit)
                }
            }
        });
        // A refusal is an answer too: the agent tries again, as it does when it hears nothing.
        let Ok(outcome) = outcome else { return };
        if matches!(request.ask, Ask::Confirm { .. }) {
            return;
        }
        let after = outcome.commit.number();
        let epoch = self.site.history().epoch();
        let placement = outcome.record.map(|record| {
            let revision = record.revision;
            let members = Held(record).members().collect();
            Placement {
                epoch,
                revision,
                members,
            }
        });
        let answer = Answer {
            request: request.clone(),
            placement,
        };
        if !self.waiting.contains(&(after, answer.clone())) {
            self.waiting.push((after, answer));
        }
    }

    /// Whether the session's next message may be looked at: not before all that was reported is settled.
    pub(crate) fn hears(&self, agent: u8, stream: u8, piece: &Piece, ledger: &Ledger) -> bool {
        matches!(piece, Piece::Hello(_))
            || self.session.is_none_or(|session| {
                let is_ready = session.after <= ledger.revision && self.unsettled.is_empty();
                (session.agent, session.stream) != (agent, stream) || is_ready
            })
    }

    /// Takes a message of a stream in; `false` ends the stream.
    pub(crate) fn hear(&mut self, agent: u8, stream: u8, piece: &Piece) -> bool {
        let current = self
            .session
            .is_some_and(|session| (session.agent, session.stream) == (agent, stream));
        match piece {
            Piece::Hello(seen) => {
                let fence = fence(transitions(agent));
                let seen = seen.map(|(epoch, revision)| SitePosition::new(epoch, revision));
                let opened = self.drive(|site, committer| {
                    let (session, opened) = site.open_session(&fence, &author("fence"), permit(committer))?;
                    let raised = seen.map(|seen| site.seen(seen, &author("raise"), permit(committer)));
                    let raised = raised.transpose()?;
                    let after = opened.max(raised.unwrap_or_default());
                    Ok::<_, scheduler::error::Error>((session, after.number()))
                });
                let Ok((session, after)) = opened else {
                    return false;
                };
                self.id = Some(session.id);
                self.session = Some(Session {
                    agent,
                    stream,
                    synced: false,
                    after,
                });
                true
            }
            Piece::Snapshot(seen) => {
                let changes = convert::changes(SITE, changes(None, seen));
                let session = self.session_of(current);
                let heard = self.drive(|site, committer| {
                    let mut touched = site.report(&session, changes, now())?;
                    let author = author("raise");
                    touched.append(&mut site.complete_snapshot(&session, &author, permit(committer))?);
                    Ok::<_, scheduler::error::Error>(touched)
                });
                if let (Ok(_), Some(session)) = (&heard, &mut self.session) {
                    session.synced = true;
                }
                self.touch(&heard)
            }
            Piece::Delta { before, seen } => {
                let changes = convert::changes(SITE, changes(Some(&**before), seen));
                let session = self.session_of(current);
                let heard = self.drive(|site, _| site.report(&session, changes, now()));
                self.touch(&heard)
            }
        }
    }

    /// Notes the clusters that a report touches; `false`: it was refused.
    fn touch(&mut self, heard: &Result<BTreeSet<ClusterName>, scheduler::error::Error>) -> bool {
        let is_taken = heard.is_ok();
        self.unsettled
            .extend(heard.iter().flatten().map(world::cluster_index));
        is_taken
    }

    /// Compares the next of the records that a report touches with what was reported.
    pub(crate) fn settle(&mut self) {
        if let Some(cluster) = self.unsettled.pop_first() {
            let name = world::cluster_name(cluster);
            self.drive(|site, committer| site.settle(&name, &author("observe"), permit(committer)));
        }
    }

    /// Notices that a stream has ended. The next one's snapshot settles every record.
    pub(crate) fn close(&mut self) {
        self.unsettled.clear();
        if let Some(session) = self.id.take() {
            self.drive(|site, _| site.close_session(&session, now()));
        }
        self.session = None;
    }

    /// Clusters for which another decision is due.
    pub(crate) fn waits(&self) -> Vec<u8> {
        let synced = self.session.is_some_and(|session| session.synced);
        if synced { self.seen.due.clone() } else { Vec::new() }
    }

    /// The session of the site, or one that it does not know.
    fn session_of(&self, current: bool) -> SessionId {
        self.id
            .clone()
            .filter(|_| current)
            .unwrap_or_else(SessionId::random)
    }

    /// Decides again.
    pub(crate) fn retry(&mut self, cluster: u8) {
        let name = world::cluster_name(cluster);
        self.drive(|site, committer| site.retry(&name, &author("retry"), permit(committer)));
    }

    /// Answers that may be given now; `hasty`: whether or not they are durable.
    pub(crate) fn answers(&mut self, ledger: &Ledger, hasty: bool) -> Vec<Answer> {
        let (now, later) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(after, _)| hasty || *after <= ledger.revision);
        self.waiting = later;
        now.into_iter().map(|(_, answer): (u64, Answer)| answer).collect()
    }

    /// Lets the site work, and queues what it has staged.
    fn drive<T>(&mut self, work: impl FnOnce(&mut Site, &Committer) -> T) -> T {
        let (committer, writer) = commit::committer(Commit::new(self.revision));
        let mut site = (*self.site).clone();
        let result = work(&mut site, &committer);
        self.seen = Seen::of_site(&site);
        self.site = Arc::new(site);
        self.revision = committer.staged().number();
        let queue = Queue::default();
        {
            let mut durable = Contents::default();
            let mut writing = pin!(writer.run(&queue, &mut durable, &no_refusal));
            let pending = writing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(pending.is_pending(), "the committer is still there");
        }
        self.staged.extend(queue.take());
        result
    }
}

/// The queue takes every change.
fn no_refusal(refusal: &Refusal<'_>) -> Commit {
    panic!("{refusal:?}");
}

fn fence(transitions: i64) -> Fence {
    Fence {
        lease: LEASE.to_owned(),
        transitions,
    }
}

/// The later agent was elected later.
fn transitions(agent: u8) -> i64 {
    i64::from(agent) + 1
}

fn author(action: &'static str) -> Author<'static> {
    Author {
        caller: "model",
        action,
        now: now(),
    }
}

fn permit(committer: &Committer) -> Permit {
    committer.reserve().now_or_never().unwrap().unwrap()
}

fn spec(want: u32) -> Spec {
    static SPECS: LazyLock<Vec<Spec>> = LazyLock::new(|| {
        (0..=u32::try_from(HOSTS).unwrap())
            .map(|active| {
                let role = wire::Role {
                    name: world::ROLE.to_owned(),
                    label_selector: Some(wire::LabelSelector::default()),
                    active,
                    ..wire::Role::default()
                };
                let spec = wire::ClusterSpec {
                    roles: vec![role],
                    network_ids: vec![world::NETWORK.to_owned()],
                    other_bytes: 0,
                };
                scheduler::convert::parse_spec(spec, "spec").unwrap()
            })
            .collect()
    });
    SPECS[usize::try_from(want).unwrap()].clone()
}
