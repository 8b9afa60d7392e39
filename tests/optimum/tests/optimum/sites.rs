//! Random sites of some dozen hosts, and requests of several roles that want nearly all of them.

use placement::{
    Consumer, Domain, FailReason, Holder, Host, HostId, HostName, LabelKey, LabelValue, Member, MemberState,
    Policy, Replaces, Request, Requirement, Role, Selector, Site, Uid,
};
use proptest::prelude::*;

const RACK: &str = "airshipit.org/rack";
pub(crate) const ROOM: &str = "airshipit.org/room";
const SERVER: &str = "airshipit.org/server";
const FLAVORS: [&str; 3] = ["cp", "storage", "worker"];

/// Where racks stand.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rooms {
    /// Each in one room.
    Whole,
    /// Hosts of one rack may be in two rooms.
    Crossed,
}

/// What a member of the cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Well,
    /// Claimed in place of one that was released, and not bound yet.
    Replacement,
    /// Its release was requested, and the role wants it again.
    ReleaseRequested,
    /// To be moved, without a replacement.
    MovePending,
    /// To be moved, and kept beside its replacement.
    Outgoing,
    /// The replacement of the outgoing one, not bound yet.
    Incoming,
    Lost,
    /// A replacement that has failed.
    LostReplacement,
    /// On its way out: it has no place, and its domain is used.
    Releasing,
}

impl State {
    /// Whether it is one of the members that its role wants. An outgoing one and its replacement fill one place.
    pub(crate) fn fills_a_place(self) -> bool {
        !matches!(self, Self::Outgoing | Self::Releasing)
    }

    /// Whether it has failed.
    pub(crate) fn is_lost(self) -> bool {
        matches!(self, Self::Lost | Self::LostReplacement)
    }

    /// Whether it is well and stays: loads count by these.
    pub(crate) fn stays_well(self) -> bool {
        self.fills_a_place() && !self.is_lost() && self != Self::MovePending
    }

    /// Whether it was claimed in place of another one, is well and not bound.
    pub(crate) fn is_under_way(self) -> bool {
        matches!(self, Self::Replacement | Self::Incoming)
    }
}

/// A host that the cluster has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) host: usize,
    pub(crate) role: usize,
    pub(crate) state: State,
}

/// What is asked, and of which hosts.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) hosts: Vec<Host>,
    pub(crate) request: Request,
    pub(crate) held: Vec<Held>,
}

impl World {
    pub(crate) fn site(&self) -> Site {
        let mut site = Site::new(Policy {
            hierarchy: vec![key(ROOM)],
            ..Policy::default()
        });
        self.hosts.iter().cloned().for_each(|host| site.upsert(host));
        for member in self.members() {
            let holder = Holder::Cluster {
                cluster: self.request.cluster.clone(),
                role: member.role.clone(),
                state: member.state,
            };
            site.hold(&member.host, holder);
        }
        site
    }

    /// The members as the records of the cluster have them.
    pub(crate) fn members(&self) -> Vec<Member> {
        let member = |held: &Held| {
            let (host, role) = (&self.hosts[held.host], &self.request.roles[held.role]);
            let key = role.topology_key.clone();
            let marked = host.marked_failed.then_some(FailReason::MarkedFailed);
            let to_be_moved = host.replace_requested.then_some(FailReason::MoveRequested);
            Member {
                host: host.id.clone(),
                role: role.name.clone(),
                state: match held.state {
                    State::Well | State::MovePending | State::Outgoing | State::Lost => MemberState::Bound,
                    State::Replacement | State::Incoming | State::LostReplacement => MemberState::Claimed,
                    State::ReleaseRequested | State::Releasing => MemberState::Releasing,
                },
                requested: held.state == State::ReleaseRequested,
                domain: key.map(|key| Domain {
                    value: host.labels[&key].clone(),
                    key,
                }),
                failed: marked.or(to_be_moved),
                replaces: self.replaces(held.state),
            }
        };
        self.held.iter().map(member).collect()
    }

    /// What a member in this state was claimed for.
    fn replaces(&self, state: State) -> Option<Replaces> {
        match state {
            State::Replacement | State::LostReplacement => Some(Replaces::Alone(released())),
            State::Incoming => {
                let mut held = self.held.iter();
                let old = held.find(|held| held.state == State::Outgoing)?;
                Some(Replaces::Beside(self.hosts[old.host].id.clone()))
            }
            State::Well
            | State::ReleaseRequested
            | State::MovePending
            | State::Outgoing
            | State::Lost
            | State::Releasing => None,
        }
    }

    /// Adds a member, and a place for it.
    fn hold(&mut self, host: usize, role: usize, state: State) {
        self.held.push(Held { host, role, state });
        let known = &mut self.hosts[host];
        known.marked_failed = state.is_lost();
        known.replace_requested = matches!(state, State::MovePending | State::Outgoing);
        if state == State::ReleaseRequested {
            known.consumer = Some(Consumer {
                kind: "Metal3Machine".into(),
                namespace: "metal".into(),
                name: known.id.name.name().into(),
            });
        }
        self.request.roles[role].want += u32::from(state.fills_a_place());
    }
}

/// Whom each replacement is for.
fn released() -> HostId {
    HostId {
        name: HostName::new("metal", "given-back").unwrap(),
        uid: Uid::new("u").unwrap(),
    }
}

pub(crate) fn key(text: &str) -> LabelKey {
    text.parse().unwrap()
}

fn value(text: &str) -> LabelValue {
    text.parse().unwrap()
}

pub(crate) fn world(rooms: Rooms) -> impl Strategy<Value = World> {
    let drawn = (0_u8..12, 0_u8..2, 1_u8..8, any::<bool>(), any::<bool>(), 0_u8..10);
    let role = (0_usize..3, 0_u8..3, 1_u32..9);
    (
        prop::collection::vec(drawn, 12..48),
        prop::collection::vec(role, 2..=4),
    )
        .prop_map(move |(hosts, roles)| {
            let hosts = hosts.into_iter().enumerate();
            World {
                held: Vec::new(),
                hosts: hosts
                    .map(|(index, (rack, side, flavors, inspected, powered_on, trouble))| {
                        let room = match rooms {
                            Rooms::Whole => rack % 3,
                            Rooms::Crossed => (rack + side) % 3,
                        };
                        let mut host = host(index, rack, room, flavors);
                        host.inspected = inspected;
                        host.powered_on = powered_on;
                        host.unhealthy = trouble == 1;
                        host.paused = trouble == 0;
                        host
                    })
                    .collect(),
                request: Request {
                    cluster: "tenant/c".parse().unwrap(),
                    roles: roles
                        .into_iter()
                        .enumerate()
                        .map(|(index, drawn)| role_of(index, drawn))
                        .collect(),
                    networks: std::collections::BTreeSet::new(),
                },
            }
        })
}

fn host(index: usize, rack: u8, room: u8, flavors: u8) -> Host {
    let mut host = Host::available(HostId {
        name: HostName::new("metal", format!("h{index:02}")).unwrap(),
        uid: Uid::new("u").unwrap(),
    });
    host.labels.insert(key(RACK), value(&format!("r{rack}")));
    host.labels.insert(key(ROOM), value(&format!("m{room}")));
    host.labels.insert(key(SERVER), value(&format!("s{index}")));
    let fitting = FLAVORS
        .iter()
        .enumerate()
        .filter(|(bit, _)| flavors >> bit & 1 == 1);
    host.labels
        .extend(fitting.map(|(_, flavor)| (key(flavor), value(""))));
    host
}

fn role_of(index: usize, (flavor, topology, want): (usize, u8, u32)) -> Role {
    Role {
        name: format!("role{index}").parse().unwrap(),
        selector: Selector::all([Requirement::Exists(key(FLAVORS[flavor]))]),
        topology_key: [Some(RACK), Some(SERVER), None][usize::from(topology)].map(key),
        want,
        replace_after_error: None,
    }
}

/// The same worlds, in which the cluster has some hosts already: each role wants more than these, or as many. At most one member of the
/// cluster is outgoing.
pub(crate) fn world_with_members() -> impl Strategy<Value = World> {
    let state = prop_oneof![
        6 => Just(State::Well),
        1 => Just(State::Replacement),
        2 => Just(State::ReleaseRequested),
        6 => Just(State::MovePending),
        1 => Just(State::Outgoing),
        4 => Just(State::Lost),
        2 => Just(State::LostReplacement),
        2 => Just(State::Releasing),
    ];
    let index = any::<prop::sample::Index>;
    let drawn = (index(), index(), index(), state);
    (world(Rooms::Whole), prop::collection::vec(drawn, 1..9)).prop_map(|(mut world, drawn)| {
        for role in &mut world.request.roles {
            role.want = role.want.saturating_sub(3);
        }
        for (host, other, role, state) in drawn {
            let hosts = world.hosts.len();
            let (host, other) = (host.index(hosts), other.index(hosts));
            let role = role.index(world.request.roles.len());
            let is_held = |host: usize| world.held.iter().any(|held| held.host == host);
            let is_moving = world.held.iter().any(|held| held.state == State::Outgoing);
            if is_held(host) {
                continue;
            }
            if state != State::Outgoing {
                world.hold(host, role, state);
            } else if !is_moving && other != host && !is_held(other) {
                world.hold(host, role, State::Outgoing);
                world.hold(other, role, State::Incoming);
            }
        }
        world
    })
}
