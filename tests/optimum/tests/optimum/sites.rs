//! Random sites of some dozen hosts, and requests of several roles that want nearly all of them.

use placement::{
    Host, HostId, HostName, LabelKey, LabelValue, Policy, Request, Requirement, Role, Selector, Site, Uid,
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

/// What is asked, and of which hosts.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) hosts: Vec<Host>,
    pub(crate) request: Request,
}

impl World {
    pub(crate) fn site(&self) -> Site {
        let mut site = Site::new(Policy {
            hierarchy: vec![key(ROOM)],
            ..Policy::default()
        });
        self.hosts.iter().cloned().for_each(|host| site.upsert(host));
        site
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
                hosts: hosts
                    .map(|(index, (rack, side, flavors, inspected, powered_on, trouble))| {
                        let room = match rooms {
                            Rooms::Whole => rack % 3,
                            Rooms::Crossed => (rack + side) % 3,
                        };
                        let mut host = host(index, rack, room, flavors);
                        host.inspected = inspected;
                        host.powered_on = powered_on;
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
