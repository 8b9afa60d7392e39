//! The decision: what the workers are to do next, from what they say and what is wanted. Pure.
//!
//! It is made anew after every look. Nothing is remembered of what was decided before, so it does not matter whether that was
//! done, half done or undone by a restart of HAProxy, of this program or of both.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::cli::Pid;
use crate::look::{Look, Worker};
use crate::members::{Members, Server, Word};
use crate::tables::Admin;
use crate::wanted::Wanted;

/// Whom sessions lead to: a name at an address, in whichever backend. A backend that is gone or a port that is another one
/// does not make a member leave; another address does.
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
    /// When it has answered: a member comes before its machine runs, and connections to it would wait for nobody until
    /// `timeout connect`.
    Checked,
    /// At once, as when HAProxy starts: nobody else in its backend is there to take them meanwhile.
    AtOnce,
}

/// A change in the current worker.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Step {
    /// A server that it has not.
    Add(Server, SocketAddr, Entry),
    /// A server that it has may be used.
    Ready(Server),
    /// A server that did not answer, or was not asked yet, is given connections until a check fails: nobody else is left.
    Trust(Server),
    /// A server gets no new connections.
    Drain(Server),
    /// Its connections have had their time.
    Cut(Server),
    /// A server without connections.
    Delete(Server),
}

/// Why orders to the current worker do not do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reason {
    /// It was started from a configuration that differs in more than its servers.
    Configuration,
    /// A server is at another address. Orders could tell HAProxy so, but its sessions at both addresses would be one number
    /// then, and nobody could say when the last one at the old address is over. In an old worker they are by themselves.
    Moved(Server),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration => f.write_str("more than servers differ"),
            Self::Moved(server) => write!(f, "server {server} has another address"),
        }
    }
}

/// What is to become of the current worker.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Course {
    /// There is none.
    Wait,
    /// Another one has to take its place.
    Reload(Reason),
    /// It changes. Without steps there is nothing to do now.
    Change(Vec<Step>),
}

/// What to do next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Decision {
    /// In the current worker.
    pub course: Course,
    /// Servers of old workers whose connections have had their time.
    pub cut: BTreeMap<Pid, BTreeSet<Server>>,
    /// Whether what is wanted runs, and nobody has a connection to anyone else.
    pub runs: bool,
}

/// Who leaves: servers of the current worker that are not wanted, and those of old ones that have connections and are not
/// wanted. `None` while that cannot be told, since what is wanted does not run.
#[must_use]
pub fn leavers(look: &Look, wanted: &Wanted) -> Option<BTreeSet<Member>> {
    let current = look.current.as_ref().filter(|worker| fits(worker, wanted))?;
    let staying = staying(current, wanted);
    let unwanted = current
        .servers
        .iter()
        .filter(|(server, _)| {
            wanted
                .members()
                .is_some_and(|members| members.is_unwanted(server))
        })
        .map(|(server, seen)| member(server, seen.address));
    let connected = look.old.iter().flat_map(|worker| leaving(worker, &staying));
    let connected = connected.map(|(_, member)| member);
    Some(unwanted.chain(connected).collect())
}

/// Decides. The time of those who are `overdue` is over.
#[must_use]
pub fn decide(look: &Look, wanted: &Wanted, overdue: &BTreeSet<Member>) -> Decision {
    let course = course(look.current.as_ref(), wanted, overdue);
    let leavers = leavers(look, wanted);
    let mut cut = BTreeMap::new();
    if let (Some(current), Some(_)) = (&look.current, &leavers) {
        let staying = staying(current, wanted);
        for worker in &look.old {
            let over = leaving(worker, &staying)
                .into_iter()
                .filter(|(_, member)| overdue.contains(member))
                .map(|(server, _)| server.clone());
            let over: BTreeSet<_> = over.collect();
            if !over.is_empty() {
                cut.insert(worker.pid, over);
            }
        }
    }
    // A worker that was told to stop just now may still take a connection, and lead it anywhere.
    let taken_over = look.current.as_ref().is_some_and(|worker| !worker.stopping)
        && look.old.iter().all(|worker| worker.stopping);
    let runs = taken_over
        && course == Course::Change(Vec::new())
        && leavers.is_some_and(|leavers| leavers.is_empty());
    Decision { course, cut, runs }
}

fn course(current: Option<&Worker>, wanted: &Wanted, overdue: &BTreeSet<Member>) -> Course {
    let Some(current) = current else {
        return Course::Wait;
    };
    if !fits(current, wanted) {
        return Course::Reload(Reason::Configuration);
    }
    let Some(members) = wanted.members() else {
        return Course::Change(Vec::new());
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
                return Course::Reload(Reason::Moved(server));
            }
            Some(seen) => {
                let checked = seen.checked || !members.are_checked();
                if seen.admin != Admin::Ready || !checked {
                    steps.push(Step::Ready(server));
                }
            }
        }
    }
    // Those who come are let in before those who leave are kept out.
    let (mut keep_out, mut losing) = (Vec::new(), BTreeSet::new());
    for (server, seen) in &current.servers {
        if !members.is_unwanted(server) {
            continue;
        }
        let over = overdue.contains(&member(server, seen.address));
        match (seen.admin, seen.sessions) {
            (Admin::Ready, _) => {
                losing.insert(&server.backend);
                keep_out.push(Step::Drain(server.clone()));
            }
            (Admin::Drain | Admin::Maintenance, 0) => keep_out.push(Step::Delete(server.clone())),
            (Admin::Drain | Admin::Maintenance, _) if over => keep_out.push(Step::Cut(server.clone())),
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
    steps.extend(keep_out);
    Course::Change(steps)
}

/// Backends in which somebody who stays answers.
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

/// Who is wanted: those whom the configuration names, or, where nobody says who that is, those whom the worker that runs it has.
enum Staying<'a> {
    Named(&'a Members),
    Seen(BTreeSet<Member>),
}

fn staying<'a>(current: &Worker, wanted: &'a Wanted) -> Staying<'a> {
    wanted.members().map_or_else(
        || {
            let servers = current.servers.iter();
            Staying::Seen(
                servers
                    .map(|(server, seen)| member(server, seen.address))
                    .collect(),
            )
        },
        Staying::Named,
    )
}

/// Servers of an old worker that have connections and do not stay.
fn leaving<'a>(worker: &'a Worker, staying: &Staying<'_>) -> Vec<(&'a Server, Member)> {
    let connected = worker.servers.iter().filter(|(_, seen)| seen.sessions > 0);
    connected
        .map(|(server, seen)| (server, member(server, seen.address)))
        .filter(|(_, member)| match staying {
            Staying::Named(members) => !members.has(&member.name, member.address),
            Staying::Seen(seen) => !seen.contains(member),
        })
        .collect()
}

#[cfg(test)]
mod tests;
