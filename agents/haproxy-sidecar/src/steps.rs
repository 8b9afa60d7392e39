//! The decision: the next steps of the workers, from their observed state and the wanted configuration. Pure.
//!
//! It is made after every observation and keeps no state, so it does not matter whether earlier decisions were
//! executed, partly executed or undone by a restart of HAProxy, of this program or of both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::cli::Pid;
use crate::members::{Members, Server, Word};
use crate::observe::{Observation, Worker};
use crate::tables::{Admin, ServerState};
use crate::wanted::Wanted;

/// Where sessions end: a name at an address, in any backend. A member has left when its name or address is gone, not when
/// a backend is removed or a port changes.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Member {
    /// Its name.
    pub name: Word,
    /// Its address, if it has one.
    pub address: Option<IpAddr>,
}

/// When a new server is given its first connection.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Entry {
    /// After its first successful check: a member is added before its machine runs, and connections to it would hang until
    /// `timeout connect`.
    Checked,
    /// At once, as when HAProxy starts: no other server of its backend could take them.
    AtOnce,
}

/// A change in the current worker.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Step {
    /// Add a server.
    Add(Server, SocketAddr, Entry),
    /// Admit connections to a server.
    Ready(Server),
    /// Give connections to a server that has not passed a check yet, until one fails: no other server is left.
    Trust(Server),
    /// Give a server no new connections.
    Drain(Server),
    /// Close a server's connections: the drain time is over.
    Cut(Server),
    /// Delete a server without connections.
    Delete(Server),
}

/// Why commands to the current worker are not enough.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reason {
    /// It was started from a configuration that differs in more than its servers.
    Configuration,
    /// A server has another address. A command could change it, but its sessions at both addresses would be counted together
    /// then, and the end of the last one at the old address could not be observed. An old worker has only those.
    Moved(Server),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration => f.write_str("it differs in more than its servers"),
            Self::Moved(server) => write!(f, "server {server} has another address"),
        }
    }
}

/// What to do with the current worker.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// There is none: wait for it.
    Wait,
    /// Replace it.
    Reload(Reason),
    /// Run steps in it; without steps there is nothing to do now.
    Change(Vec<Step>),
}

/// What to do next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Decision {
    /// In the current worker.
    pub action: Action,
    /// Servers of old workers whose drain time is over.
    pub cut: BTreeMap<Pid, BTreeSet<Server>>,
    /// Whether the wanted configuration runs, and no connection leads to a member that left or can be given to one.
    pub runs: bool,
}

/// Members that drain: servers of the current worker that are not wanted, and those of old workers that have connections and are not
/// wanted. `None` while this is unknown because the wanted configuration does not run.
#[must_use]
pub fn leavers(observed: &Observation, wanted: &Wanted) -> Option<BTreeSet<Member>> {
    let current = observed.current.as_ref().filter(|worker| fits(worker, wanted))?;
    let kept = kept_members(current, wanted);
    let unwanted = current
        .servers
        .iter()
        .filter(|(server, _)| {
            wanted
                .members()
                .is_some_and(|members| members.is_unwanted(server))
        })
        .map(|(server, seen)| member(server, seen.address));
    let connected = observed.old.iter().flat_map(|worker| leaving(worker, &kept));
    let connected = connected.map(|(_, member)| member);
    Some(unwanted.chain(connected).collect())
}

/// Decides; the drain time of the `overdue` members is over.
#[must_use]
pub fn decide(observed: &Observation, wanted: &Wanted, overdue: &BTreeSet<Member>) -> Decision {
    let action = action(observed.current.as_ref(), wanted, overdue);
    let leavers = leavers(observed, wanted);
    let mut cut = BTreeMap::new();
    let mut is_decided = true;
    if let (Some(current), Some(_)) = (&observed.current, &leavers) {
        let kept = kept_members(current, wanted);
        is_decided = !observed.old.iter().any(|worker| may_choose_leaver(worker, &kept));
        for worker in &observed.old {
            let over = leaving(worker, &kept)
                .into_iter()
                .filter(|(_, member)| overdue.contains(member))
                .map(|(server, _)| server.clone());
            let over: BTreeSet<_> = over.collect();
            if !over.is_empty() {
                cut.insert(worker.pid, over);
            }
        }
    }
    // A worker that was only just signalled to stop may still accept a connection, and connect it to any of its servers.
    let taken_over = observed.current.as_ref().is_some_and(|worker| !worker.stopping)
        && observed.old.iter().all(|worker| worker.stopping);
    let runs = taken_over
        && is_decided
        && action == Action::Change(Vec::new())
        && leavers.is_some_and(|leavers| leavers.is_empty());
    Decision { action, cut, runs }
}

fn action(current: Option<&Worker>, wanted: &Wanted, overdue: &BTreeSet<Member>) -> Action {
    let Some(current) = current else {
        return Action::Wait;
    };
    if !fits(current, wanted) {
        return Action::Reload(Reason::Configuration);
    }
    let Some(members) = wanted.members() else {
        return Action::Change(Vec::new());
    };
    let mut steps = Vec::new();
    let served = served(current, members);
    for (server, address) in members.servers() {
        match current.servers.get(&server) {
            None => {
                let is_served = members.are_checked() && served.contains(&server.backend);
                let entry = if is_served { Entry::Checked } else { Entry::AtOnce };
                steps.push(Step::Add(server, address, entry));
            }
            Some(seen) if (seen.address, seen.port) != (Some(address.ip()), address.port()) => {
                return Action::Reload(Reason::Moved(server));
            }
            Some(seen) => {
                let checked = seen.checked || !members.are_checked();
                if seen.admin != Admin::Ready || !checked {
                    steps.push(Step::Ready(server));
                }
            }
        }
    }
    // Members that join get connections before those that leave lose them.
    let (mut removing, mut losing) = (Vec::new(), BTreeSet::new());
    for (server, seen) in &current.servers {
        if !members.is_unwanted(server) {
            continue;
        }
        let over = overdue.contains(&member(server, seen.address));
        match (seen.admin, seen.sessions) {
            (Admin::Ready, _) => {
                losing.insert(&server.backend);
                removing.push(Step::Drain(server.clone()));
            }
            (Admin::Drain | Admin::Maintenance, 0) => removing.push(Step::Delete(server.clone())),
            (Admin::Drain | Admin::Maintenance, _) if over => removing.push(Step::Cut(server.clone())),
            (Admin::Drain | Admin::Maintenance, _) => {}
        }
    }
    let staying = current.servers.iter().filter(|(server, seen)| {
        !seen.up
            && members.address(server).is_some()
            && losing.contains(&server.backend)
            && !served.contains(&server.backend)
    });
    steps.extend(staying.map(|(server, _)| Step::Trust(server.clone())));
    steps.extend(removing);
    Action::Change(steps)
}

/// Backends in which a server that stays is up.
fn served(current: &Worker, members: &Members) -> BTreeSet<Word> {
    let serving = current
        .servers
        .iter()
        .filter(|(server, seen)| seen.up && members.address(server).is_some());
    serving.map(|(server, _)| server.backend.clone()).collect()
}

fn fits(worker: &Worker, wanted: &Wanted) -> bool {
    worker.origin.as_ref().is_some_and(|origin| wanted.fits(origin))
}

fn member(server: &Server, address: Option<IpAddr>) -> Member {
    Member {
        name: server.name.clone(),
        address,
    }
}

/// The wanted members: those in `membership.json`, or, without it, those of the worker that runs the configuration.
enum KeptMembers<'a> {
    Listed(&'a Members),
    OfWorker(BTreeSet<Member>),
}

impl KeptMembers<'_> {
    fn has(&self, member: &Member) -> bool {
        match self {
            Self::Listed(members) => members.has(&member.name, member.address),
            Self::OfWorker(seen) => seen.contains(member),
        }
    }
}

fn kept_members<'a>(current: &Worker, wanted: &'a Wanted) -> KeptMembers<'a> {
    wanted.members().map_or_else(
        || {
            let servers = current.servers.iter();
            KeptMembers::OfWorker(
                servers
                    .map(|(server, seen)| member(server, seen.address))
                    .collect(),
            )
        },
        KeptMembers::Listed,
    )
}

/// Whether an old worker has a connection that it may still give to a server that does not stay: it chooses again when a server does not
/// answer, and an old worker takes no command about servers. One that lists none may have any.
fn may_choose_leaver(worker: &Worker, kept: &KeptMembers<'_>) -> bool {
    let mut listed = worker.servers.iter().filter(|(_, seen)| seen.address.is_some());
    let leaves = |(server, seen): (&Server, &ServerState)| {
        seen.admin == Admin::Ready && !kept.has(&member(server, seen.address))
    };
    worker.undecided > 0 && (listed.clone().next().is_none() || listed.any(leaves))
}

/// Servers of an old worker that have connections and do not stay.
fn leaving<'a>(worker: &'a Worker, kept: &KeptMembers<'_>) -> Vec<(&'a Server, Member)> {
    let connected = worker.servers.iter().filter(|(_, seen)| seen.sessions > 0);
    connected
        .map(|(server, seen)| (server, member(server, seen.address)))
        .filter(|(_, member)| !kept.has(member))
        .collect()
}

#[cfg(test)]
mod tests;
