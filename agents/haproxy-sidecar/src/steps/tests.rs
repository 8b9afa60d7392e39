//! Random worlds: wishes change, connections come and end, HAProxy starts again, and after each a turn is taken or not. A plain
//! account of who may have connections is compared with what is decided.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fixtures::server;
use crate::tables::ServerState;
use crate::wanted::Origin;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const BACKENDS: [(&str, u16); 2] = [("p1", 1), ("p2", 2)];

/// A configuration: each name's address if it is in, what is no server, and whether it is said what is.
#[derive(Clone, Debug)]
struct Wish {
    members: [Option<u8>; 4],
    frame: u8,
    template: bool,
}

impl Wish {
    fn members(&self) -> impl Iterator<Item = (&'static str, u8)> {
        let named = NAMES.into_iter().zip(self.members);
        named.filter_map(|(name, address)| Some((name, address?)))
    }

    fn wanted(&self) -> Wanted {
        let servers: Vec<_> = self
            .members()
            .map(|(name, last)| json!({"name": name, "address": format!("192.0.2.{last}")}))
            .collect();
        let backends = BACKENDS.map(|(name, port)| json!({"name": name, "port": port}));
        let membership = json!({
            "frame": self.frame.to_string(),
            "keywords": "check",
            "backends": backends,
            "servers": servers,
        });
        let text = format!("{membership}");
        let membership = (!self.template).then_some(text.as_str());
        Wanted::parse(&text, membership).unwrap()
    }

    /// A worker that was started from it.
    fn worker(&self, pid: Pid) -> Worker {
        let origin = self.wanted().file();
        let origin = origin.split_whitespace().last().unwrap();
        let servers = BACKENDS.iter().flat_map(|(backend, port)| {
            self.members().map(|(name, last)| {
                let seen = ServerState {
                    address: Some(IpAddr::from([192, 0, 2, last])),
                    port: *port,
                    admin: Admin::Ready,
                    up: true,
                    checked: true,
                    sessions: 0,
                };
                (server(backend, name), seen)
            })
        });
        // Of HAProxy's own: versions before 2.4 show it.
        let own = ServerState::UNLISTED;
        Worker {
            pid,
            stopping: false,
            origin: Origin::parse(origin),
            servers: servers.chain([(server("MASTER", "cur-1"), own)]).collect(),
            undecided: 0,
        }
    }

    fn has(&self, server: &Server, seen: &ServerState) -> bool {
        self.members().any(|(name, last)| {
            server.name.to_string() == name && seen.address == Some(IpAddr::from([192, 0, 2, last]))
        })
    }
}

#[derive(Clone, Debug)]
enum Event {
    Want(Wish),
    /// Some server of some worker gets a connection, if it may.
    Connect(usize, usize),
    /// A client connects to some worker, if it may, and has no server yet.
    Arrive(usize),
    /// All connections of some server of some worker end.
    Disconnect(usize, usize),
    /// A server answers, or does not.
    Health(usize, bool),
    /// HAProxy starts anew from an older file, or from the newest.
    Crash(Option<Wish>),
    /// A turn, after which some have had their time.
    Pass(bool),
}

fn wish() -> impl Strategy<Value = Wish> {
    let member = prop::option::weighted(0.6, 1..3_u8);
    (prop::array::uniform4(member), 0..2_u8, prop::bool::weighted(0.2)).prop_map(
        |(members, frame, template)| Wish {
            members,
            frame,
            template,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => wish().prop_map(Event::Want),
        4 => (0..3_usize, 0..8_usize).prop_map(|(worker, server)| Event::Connect(worker, server)),
        2 => (0..3_usize).prop_map(Event::Arrive),
        1 => (0..3_usize, 0..8_usize).prop_map(|(worker, server)| Event::Disconnect(worker, server)),
        1 => (0..8_usize, any::<bool>()).prop_map(|(server, up)| Event::Health(server, up)),
        1 => prop::option::of(wish()).prop_map(Event::Crash),
        4 => any::<bool>().prop_map(Event::Pass),
    ]
}

struct World {
    wish: Wish,
    observed: Observation,
    next: Pid,
}

impl World {
    fn workers(&mut self) -> impl Iterator<Item = &mut Worker> {
        self.observed.current.iter_mut().chain(&mut self.observed.old)
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Want(wish) => self.wish = wish.clone(),
            Event::Connect(worker, which) => {
                let Some(worker) = self.workers().nth(*worker) else {
                    return;
                };
                let waits = worker.undecided > 0;
                let free = !worker.stopping || waits;
                if let Some(seen) = worker.servers.values_mut().nth(*which)
                    && free
                    && seen.address.is_some()
                    && seen.admin == Admin::Ready
                    && seen.up
                {
                    seen.sessions += 1;
                    worker.undecided -= u64::from(waits);
                }
            }
            Event::Arrive(worker) => {
                if let Some(worker) = self.workers().nth(*worker).filter(|worker| !worker.stopping) {
                    worker.undecided += 1;
                }
            }
            Event::Disconnect(worker, which) => {
                let seen = self
                    .workers()
                    .nth(*worker)
                    .and_then(|worker| worker.servers.values_mut().nth(*which));
                if let Some(seen) = seen {
                    seen.sessions = 0;
                }
            }
            Event::Health(which, up) => {
                let current = self.observed.current.as_mut();
                if let Some(seen) = current.and_then(|worker| worker.servers.values_mut().nth(*which)) {
                    seen.up = *up;
                }
            }
            Event::Crash(older) => {
                self.next += 1;
                let from = older.as_ref().unwrap_or(&self.wish);
                self.observed = Observation {
                    current: Some(from.worker(self.next)),
                    old: Vec::new(),
                };
            }
            Event::Pass(over) => {
                self.pass(*over);
            }
        }
    }

    /// Does what is decided. Whether it runs is compared with the plain account.
    fn pass(&mut self, over: bool) -> bool {
        let wanted = self.wish.wanted();
        let leaving = leavers(&self.observed, &wanted).unwrap_or_default();
        let overdue = if over { leaving } else { BTreeSet::new() };
        let Decision { action, cut, runs } = decide(&self.observed, &wanted, &overdue);
        if runs {
            self.assert_runs();
        }
        for worker in &mut self.observed.old {
            // They are told to stop, and do so soon.
            worker.stopping = true;
            if over {
                // No server has answered in time.
                worker.undecided = 0;
            }
            for server in cut.get(&worker.pid).into_iter().flatten() {
                assert!(
                    over && !self.wish.has(server, &worker.servers[server]),
                    "{server} stays, or has time"
                );
                worker.servers.get_mut(server).unwrap().sessions = 0;
            }
        }
        self.observed
            .old
            .retain(|worker| worker.undecided > 0 || worker.servers.values().any(|seen| seen.sessions > 0));
        match action {
            Action::Wait => self.happen(&Event::Crash(None)),
            Action::Reload(_) => {
                self.next += 1;
                self.observed
                    .old
                    .extend(self.observed.current.replace(self.wish.worker(self.next)));
            }
            Action::Change(steps) => self.change(&steps, over),
        }
        runs
    }

    fn change(&mut self, steps: &[Step], over: bool) {
        let current = self.observed.current.as_mut().unwrap();
        let wish = &self.wish;
        let served = |current: &Worker, backend: &str| {
            let servers = current.servers.iter();
            servers
                .filter(|(server, _)| server.backend.to_string() == backend)
                .any(|(_, seen)| seen.admin == Admin::Ready && seen.up)
        };
        let before = BACKENDS.map(|(backend, _)| served(current, backend));
        for step in steps {
            match step {
                Step::Add(server, address, entry) => {
                    let seen = ServerState {
                        address: Some(address.ip()),
                        port: address.port(),
                        admin: Admin::Ready,
                        up: *entry == Entry::AtOnce,
                        checked: true,
                        sessions: 0,
                    };
                    assert!(wish.has(server, &seen));
                    assert_eq!(
                        current.servers.insert(server.clone(), seen),
                        None,
                        "{server} is there"
                    );
                }
                Step::Ready(server) | Step::Trust(server) => {
                    let seen = current.servers.get_mut(server).unwrap();
                    assert!(wish.has(server, seen));
                    match step {
                        Step::Ready(_) => (seen.admin, seen.checked) = (Admin::Ready, true),
                        _ => seen.up = true,
                    }
                }
                Step::Drain(server) | Step::Cut(server) | Step::Delete(server) => {
                    let seen = current.servers.get_mut(server).unwrap();
                    assert!(!wish.has(server, seen), "{server} stays");
                    match step {
                        Step::Drain(_) => seen.admin = Admin::Drain,
                        Step::Cut(_) => {
                            assert!(over && seen.admin != Admin::Ready, "{server} has time");
                            seen.sessions = 0;
                        }
                        _ => {
                            assert_eq!((seen.admin != Admin::Ready, seen.sessions), (true, 0));
                            current.servers.remove(server);
                        }
                    }
                }
            }
        }
        for ((backend, _), before) in BACKENDS.into_iter().zip(before) {
            let somebody = !before || wish.members().next().is_none() || served(current, backend);
            assert!(somebody, "nobody is left in {backend}: {current:#?}");
        }
    }

    fn assert_runs(&self) {
        let current = self.observed.current.as_ref().unwrap();
        let have: BTreeMap<_, _> = current
            .servers
            .iter()
            .map(|(server, seen)| (server, (seen.address, seen.port)))
            .collect();
        let fresh = self.wish.worker(0);
        let want: BTreeMap<_, _> = fresh
            .servers
            .iter()
            .map(|(server, seen)| (server, (seen.address, seen.port)))
            .collect();
        assert_eq!(have, want);
        assert!(
            current
                .servers
                .values()
                .all(|seen| seen.admin == Admin::Ready && (seen.checked || seen.address.is_none()))
        );
        for worker in &self.observed.old {
            assert!(worker.stopping, "it may still get connections");
            for (server, seen) in &worker.servers {
                assert!(
                    seen.sessions == 0 || self.wish.has(server, seen),
                    "{server} is still used"
                );
                let is_chosen = seen.address.is_some() && seen.admin == Admin::Ready;
                assert!(
                    worker.undecided == 0 || !is_chosen || self.wish.has(server, seen),
                    "{server} may still be chosen"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn it_converges_and_never_reports_running_too_early(
        first in wish(),
        events in prop::collection::vec(event(), 0..40),
    ) {
        let observed = Observation { current: Some(first.worker(1)), old: Vec::new() };
        let mut world = World { wish: first, observed, next: 1 };
        for event in &events {
            world.happen(event);
        }
        let turns = (0..8).take_while(|_| !world.pass(true)).count();
        prop_assert!(turns < 8, "it does not run after {turns} turns: {:#?}", world.observed);
    }
}

fn wish_of(members: [Option<u8>; 4]) -> Wish {
    Wish {
        members,
        frame: 0,
        template: false,
    }
}

#[test]
fn a_new_member_is_added_while_others_drain() {
    let before = wish_of([Some(1), Some(2), None, None]);
    let after = wish_of([Some(1), None, Some(3), None]);
    let mut current = before.worker(1);
    let leaver = current.servers.get_mut(&server("p1", "b")).unwrap();
    (leaver.admin, leaver.sessions) = (Admin::Drain, 1);
    let observed = Observation {
        current: Some(current),
        old: Vec::new(),
    };
    let Decision { action, cut, runs } = decide(&observed, &after.wanted(), &BTreeSet::new());
    let address = |port| SocketAddr::from(([192, 0, 2, 3], port));
    let expected = Action::Change(vec![
        Step::Add(server("p1", "c"), address(1), Entry::Checked),
        Step::Add(server("p2", "c"), address(2), Entry::Checked),
        Step::Drain(server("p2", "b")),
    ]);
    assert_eq!((action, cut, runs), (expected, BTreeMap::new(), false));
}

#[test]
fn a_worker_started_from_another_file_is_replaced() {
    let wish = wish_of([Some(1), None, None, None]);
    let mut current = wish.worker(1);
    current.origin = None;
    let observed = Observation {
        current: Some(current),
        old: Vec::new(),
    };
    let decision = decide(&observed, &wish.wanted(), &BTreeSet::new());
    assert_eq!(decision.action, Action::Reload(Reason::Configuration));
}
