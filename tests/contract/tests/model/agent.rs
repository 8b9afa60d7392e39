//! The cluster agent: what it has seen and was told. What a host needs is for the real agent's rules to say.

use std::{cmp::Reverse, collections::VecDeque};

use cluster_agent::{
    inventory::ObservedHost,
    reconcile::{host_actions::Verb, is_drained, is_succeeded, label_or_release::assess, not_older},
};
use kit::placement::Position;
use proto::{inventory::v1 as wire, placement::v1 as api};

use crate::{
    messages::{Answer, Ask, Piece, Placement, Request},
    mutations::Mutation,
    world::{self, CLUSTERS, HOSTS, HostKey, Observed, Status, World},
};

/// A process of the agent's. It may be paused anywhere: all that it knows may be old.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Agent {
    /// The site as its watches have shown it.
    pub(crate) seen: Observed,
    /// Whether they have shown all of it once: nothing is reported before.
    pub(crate) listed: bool,
    /// The last answer about each cluster, and for which uid it was.
    placement: [Option<(u8, Placement)>; CLUSTERS],
    /// Whether the API server had no pod of the load balancer of each cluster that it did not see.
    podless: [bool; CLUSTERS],
    pub(crate) stream: Option<Stream>,
    /// Streams that it has opened.
    streams: u8,
}

/// A stream of reports, with what is under way on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    pub(crate) number: u8,
    pub(crate) queue: VecDeque<Piece>,
    /// What it has reported last.
    sent: Option<Observed>,
}

/// What an agent does to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Label,
    Unlabel,
    Confirm,
    ConfirmGone,
}

impl Agent {
    pub(crate) fn new() -> Self {
        Self {
            seen: Observed {
                hosts: [None; HOSTS],
                clusters: [const { None }; CLUSTERS],
            },
            listed: false,
            placement: [const { None }; CLUSTERS],
            podless: [false; CLUSTERS],
            stream: None,
            streams: 0,
        }
    }

    /// Its watches show the site as it is.
    pub(crate) fn observe(&mut self, now: &Observed) {
        self.seen = now.clone();
        self.listed = true;
    }

    /// Opens a stream, in the place of the one before, and says that it has seen a position.
    pub(crate) fn open(&mut self, seen: Option<(u64, u64)>) {
        self.streams += 1;
        self.stream = Some(Stream {
            number: self.streams,
            queue: VecDeque::from([Piece::Hello(seen)]),
            sent: None,
        });
    }

    /// Whether there is something to report.
    pub(crate) fn reports(&self) -> bool {
        self.stream
            .as_ref()
            .is_some_and(|stream| stream.sent.as_ref() != Some(&self.seen) && stream.queue.len() < 2)
    }

    /// Reports what it sees: all of it first, then what has changed.
    pub(crate) fn report(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let seen = self.seen.clone();
        stream.queue.push_back(match stream.sent.replace(seen.clone()) {
            None => Piece::Snapshot(seen),
            Some(before) => Piece::Delta {
                before: Box::new(before),
                seen,
            },
        });
    }

    /// What it declares of a cluster.
    pub(crate) fn declare(&self, agent: u8, cluster: u8) -> Option<Request> {
        let seen = self.seen.clusters[usize::from(cluster)].as_ref()?;
        let ask = if seen.deleting {
            Ask::Release
        } else {
            Ask::Apply {
                generation: seen.generation,
                want: seen.want,
            }
        };
        Some(Request {
            agent,
            cluster,
            uid: seen.uid,
            ask,
        })
    }

    /// Takes an answer in. When nothing is held any more, the finalizer goes. Returns whether the placement that it writes is older than the
    /// one in its place.
    pub(crate) fn hear(&mut self, answer: Answer, world: &mut World, mutation: Option<Mutation>) -> bool {
        let Answer { request, placement } = answer;
        let index = usize::from(request.cluster);
        let Some(placement) = placement else {
            self.placement[index] = None;
            if request.ask == Ask::Release {
                let gone = |cluster: &mut world::Cluster| cluster.uid == request.uid && cluster.deleting;
                world.now.clusters[index].take_if(gone);
            }
            return false;
        };
        // The status holds it before anything is done about it.
        let written = self.write(&request, &placement, world, mutation);
        if written.is_some() {
            self.placement[index] = Some((request.uid, placement));
        }
        written == Some(true)
    }

    /// Writes a placement to the status, unless it is older than the one there, to the object as this process sees it: of a write that comes
    /// later the API server refuses the condition. Returns whether what is replaced is newer; `None` if nothing is written.
    fn write(
        &self,
        request: &Request,
        placement: &Placement,
        world: &mut World,
        mutation: Option<Mutation>,
    ) -> Option<bool> {
        let index = usize::from(request.cluster);
        let seen = self.seen.clusters[index].as_ref();
        let seen = seen.filter(|seen| seen.uid == request.uid)?;
        let answered = Position::new(placement.epoch, placement.revision);
        let takes_older = mutation == Some(Mutation::OlderAnswersTaken);
        if let Some(held) = seen.position().filter(|_| !takes_older) {
            not_older(held, answered).ok()?;
        }
        let is_fenced = mutation != Some(Mutation::StatusUnfenced);
        let now = world.now.clusters[index].as_mut()?;
        if is_fenced && now != seen {
            return None;
        }
        let went_back = now.position().is_some_and(|held| answered < held);
        now.status = Some(Status {
            epoch: placement.epoch,
            revision: placement.revision,
            members: newest_of_each_name(&placement.members),
            former_release: former_release(&placement.members),
            is_forged: false,
        });
        Some(went_back)
    }

    /// Whether it sees no such cluster: what is releasing is then reconciled without one.
    pub(crate) fn misses(&self, cluster: u8) -> bool {
        self.listed && self.seen.clusters[usize::from(cluster)].is_none()
    }

    /// Reads what the ledger says of a cluster that it does not see: what is released is acted on, and nothing else. See
    /// `agents/cluster/src/reconcile/orphans.rs`.
    pub(crate) fn find(&mut self, cluster: u8, uid: u8, placement: Placement, podless: bool) {
        self.podless[usize::from(cluster)] = podless;
        let mut releasing = placement;
        releasing.members.retain(|member| member.releasing);
        self.placement[usize::from(cluster)] = Some((uid, releasing));
    }

    /// What it would do now.
    pub(crate) fn deeds(&self, mutation: Option<Mutation>) -> Vec<(u8, HostKey, Deed)> {
        let mut deeds = Vec::new();
        for (cluster, placement) in (0u8..).zip(&self.placement) {
            let Some((uid, placement)) = placement else {
                continue;
            };
            for told in &placement.members {
                let deed = self.deed((cluster, *uid), told, placement, mutation);
                deeds.extend(deed.map(|deed| (cluster, told.host, deed)));
            }
        }
        deeds
    }

    fn deed(
        &self,
        (cluster, uid): (u8, u8),
        told: &world::Member,
        placement: &Placement,
        mutation: Option<Mutation>,
    ) -> Option<Deed> {
        let among = &placement.members;
        let index = usize::from(told.host.index);
        let seen = self.seen.hosts[index].map(|host| {
            let report = world::reported(index, host);
            ObservedHost::from_report(report, host.version.to_string(), None, None)
        });
        let reference = world::cluster_id(cluster, uid);
        let succeeded = if mutation == Some(Mutation::SucceededByName) {
            let mut others = among.iter().filter(|other| other.host.index == told.host.index);
            others.any(|other| other.host != told.host && !other.releasing)
        } else {
            is_succeeded(&member(told), &among.iter().map(member).collect::<Vec<_>>())
        };
        let served = match mutation {
            Some(Mutation::NoConfirmation) => true,
            Some(Mutation::GoneWaitForNobody) => !self.sees(told.host),
            Some(Mutation::DeletionWaitsForNobody) => {
                let there = self.seen.clusters[usize::from(cluster)].as_ref();
                there.is_none_or(|there| there.deleting)
            }
            Some(_) | None => false,
        };
        let released = Position::new(placement.epoch, told.revision);
        let ready = !told.releasing || succeeded || served || self.drained(cluster, released);
        let member = member(told);
        let assessment = assess(&reference, None, &member, seen.as_ref(), ready);
        Some(match assessment.action()?.verb() {
            Verb::Label | Verb::Relabel | Verb::RelabelClaimed | Verb::Adopt => Deed::Label,
            Verb::Unlabel => Deed::Unlabel,
            Verb::Confirm => Deed::Confirm,
            Verb::ConfirmGone => Deed::ConfirmGone,
        })
    }

    /// Whether no pod is known to route to a host that is released: what it sees of the cluster says so, or there was no pod.
    fn drained(&self, cluster: u8, released: Position) -> bool {
        match &self.seen.clusters[usize::from(cluster)] {
            Some(seen) => {
                let reported = seen.drained.map(|at| ::api::Drained {
                    epoch: at.epoch(),
                    revision: at.revision(),
                });
                is_drained(reported, released.epoch(), released.revision())
            }
            None => self.podless[usize::from(cluster)],
        }
    }

    /// Whether its watches show the host.
    fn sees(&self, host: HostKey) -> bool {
        let seen = self.seen.hosts[usize::from(host.index)];
        host.former == 0 && seen.is_some_and(|seen| seen.uid == host.uid)
    }

    /// Acts on one host, and says what the scheduler must be told.
    pub(crate) fn act(
        &self,
        agent: u8,
        cluster: u8,
        (host, deed): (HostKey, Deed),
        world: &mut World,
        mutation: Option<Mutation>,
    ) -> Option<Request> {
        let (uid, placement) = self.placement[usize::from(cluster)].as_ref()?;
        let revision = placement
            .members
            .iter()
            .find(|member| member.host == host)?
            .revision;
        let version = self.seen.hosts[usize::from(host.index)].map_or(0, |seen| seen.version);
        let written = match deed {
            Deed::Label => {
                world.patch(host, version, |host| host.label = Some(cluster));
                false
            }
            Deed::Unlabel => world.patch(host, version, |host| {
                host.label = None;
                host.mark = if mutation == Some(Mutation::NoMark) {
                    host.mark
                } else {
                    revision
                };
            }),
            Deed::Confirm => true,
            // It asks the API server, whatever its watches show.
            Deed::ConfirmGone => world.host(host).is_none(),
        };
        written.then_some(Request {
            agent,
            cluster,
            uid: *uid,
            ask: Ask::Confirm { host, revision },
        })
    }
}

/// A member as the scheduler answers it.
fn member(told: &world::Member) -> kit::placement::Member {
    let state = if told.releasing {
        wire::MemberState::Releasing
    } else {
        wire::MemberState::Claimed
    };
    let member = api::Member {
        host: Some(world::host_reference(told.host)),
        role: world::ROLE.to_owned(),
        state: state.into(),
        revision: told.revision,
        addresses: told
            .address
            .map(|address| (world::NETWORK.to_owned(), world::address_text(address)))
            .into_iter()
            .collect(),
        ..api::Member::default()
    };
    member.try_into().unwrap()
}

/// What the status has of the members: of each name the newest claim, or else the newest release.
fn newest_of_each_name(members: &[world::Member]) -> Vec<world::Member> {
    let rank = |member: &world::Member| (!member.releasing, member.revision, Reverse(member.host));
    let newest = |member: &&world::Member| {
        let mut same = members
            .iter()
            .filter(|other| other.host.index == member.host.index);
        same.all(|other| rank(other) <= rank(member))
    };
    members.iter().filter(newest).copied().collect()
}

/// What the status has of a release that its members do not show.
fn former_release(members: &[world::Member]) -> Option<u64> {
    let written = newest_of_each_name(members);
    let told: Vec<_> = members.iter().map(member).collect();
    let former = members
        .iter()
        .filter(|former| former.releasing && !written.contains(former));
    let former = former.filter(|former| !is_succeeded(&member(former), &told));
    former.map(|former| former.revision).max()
}
