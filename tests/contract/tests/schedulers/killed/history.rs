//! What was asked and answered, and what is wrong with it.
//!
//! Each host is a register: a cluster has it from the revision of its claim on, at least up to the revision of the last
//! answer that names it. Revisions number the commits of the one writer, so two clusters that have a host at one revision
//! are proof of a double hold, whatever the clocks say.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use proto::{inventory::v1::MemberState, placement::v1::Placement};

/// Site and name of a cluster.
pub(crate) type Name = (String, String);
/// Site and name of a host.
type Host = (String, String);

/// Everything that was heard.
#[derive(Default)]
pub(crate) struct History(Mutex<Heard>);

#[derive(Default)]
struct Heard {
    clusters: BTreeMap<Name, Cluster>,
    /// Cluster, and first and last revision at which it had the host.
    held: BTreeMap<Host, Vec<(Name, u64, u64)>>,
    answers: u64,
    reads: u64,
    lost_claims: Vec<String>,
    stale_reads: Vec<String>,
    double_holds: Vec<String>,
}

#[derive(Default)]
struct Cluster {
    /// Revision of the last answer.
    revision: u64,
    /// Hosts in the last answer.
    members: BTreeSet<String>,
    /// Hosts whose release was confirmed, answered or not, since they were claimed.
    given: BTreeSet<String>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) answers: u64,
    pub(crate) reads: u64,
    /// Hosts that another cluster had before.
    pub(crate) moved: usize,
    pub(crate) double_holds: Vec<String>,
    pub(crate) lost_claims: Vec<String>,
    pub(crate) stale_reads: Vec<String>,
}

impl History {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A release is about to be confirmed: from now on the host may be gone from the cluster.
    pub(crate) fn gives(&self, cluster: &Name, host: &str) {
        let mut heard = self.heard();
        let cluster = heard.clusters.entry(cluster.clone()).or_default();
        cluster.given.insert(host.to_owned());
    }

    /// Whether the confirmation of its release was sent.
    pub(crate) fn may_be_gone(&self, cluster: &Name, host: &str) -> bool {
        let heard = self.heard();
        let cluster = heard.clusters.get(cluster);
        cluster.is_some_and(|cluster| cluster.given.contains(host))
    }

    /// The owner of the cluster, who asks one thing at a time, was answered; `None`: nothing is held.
    pub(crate) fn answered(&self, name: &Name, placement: Option<&Placement>) {
        let mut heard = self.heard();
        heard.answers += 1;
        let revision = placement.map(revision);
        let members: BTreeSet<String> = placement.iter().flat_map(|p| hosts(p)).map(|m| m.0).collect();
        let cluster = heard.clusters.entry(name.clone()).or_default();
        let mut lost = Vec::new();
        if let Some(revision) = revision.filter(|revision| *revision < cluster.revision) {
            lost.push(format!(
                "{name:?}: {revision} is answered after {}",
                cluster.revision
            ));
        }
        for host in cluster.members.difference(&members) {
            if !cluster.given.contains(host) {
                lost.push(format!(
                    "{name:?}: {host} was held at {}, was not released, and is gone at {revision:?}",
                    cluster.revision
                ));
            }
        }
        cluster.given.retain(|host| members.contains(host));
        cluster.members = members;
        cluster.revision = revision.unwrap_or(cluster.revision);
        heard.lost_claims.extend(lost);
        if let Some(placement) = placement {
            heard.hold(name, placement);
        }
    }

    /// Revision of the last answer about a cluster: a read that begins now may not tell less.
    pub(crate) fn reached(&self, cluster: &Name) -> u64 {
        self.heard()
            .clusters
            .get(cluster)
            .map_or(0, |cluster| cluster.revision)
    }

    /// Revision of the last answer about a cluster that has a host whose release nobody has begun to confirm: it must be found.
    pub(crate) fn must_be_found(&self, name: &Name) -> Option<u64> {
        let heard = self.heard();
        let cluster = heard.clusters.get(name)?;
        let holds = cluster.members.difference(&cluster.given).next().is_some();
        holds.then_some(cluster.revision)
    }

    /// Anybody was told that there is no such cluster. `before`: what [`must_be_found`](Self::must_be_found) was when that was asked.
    pub(crate) fn not_found(&self, name: &Name, before: Option<u64>) {
        if before.is_some() && before == self.must_be_found(name) {
            let mut heard = self.heard();
            heard
                .lost_claims
                .push(format!("{name:?}: is not found, and has hosts at {before:?}"));
        }
    }

    /// Anybody has read a cluster that had reached a revision before.
    pub(crate) fn read(&self, name: &Name, reached: u64, placement: &Placement) {
        let mut heard = self.heard();
        heard.reads += 1;
        let revision = revision(placement);
        if revision < reached {
            let stale = format!("{name:?}: {revision} is read after {reached} was answered");
            heard.stale_reads.push(stale);
        }
        heard.hold(name, placement);
    }

    /// What is listed when nobody asks anything any more.
    pub(crate) fn listed(&self, placement: &Placement) {
        let cluster = placement.cluster.clone().unwrap_or_default();
        let name = (placement.site.clone(), cluster.name);
        let reached = self.reached(&name);
        self.read(&name, reached, placement);
    }

    /// A host shows something that no order of promises that were kept can have led to.
    pub(crate) fn contradiction(&self, what: String) {
        self.heard().double_holds.push(what);
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let mut heard = self.heard();
        let mut double_holds = std::mem::take(&mut heard.double_holds);
        let mut moved = 0;
        for (host, held) in &mut heard.held {
            held.sort_by_key(|(_, from, to)| (*from, *to));
            let mut latest: Option<&(Name, u64, u64)> = None;
            for hold in held.iter() {
                if let Some(before) = latest.filter(|before| before.0 != hold.0) {
                    moved += 1;
                    if hold.1 <= before.2 {
                        double_holds.push(format!("{host:?}: {before:?} and {hold:?}"));
                    }
                }
                if latest.is_none_or(|before| before.2 <= hold.2) {
                    latest = Some(hold);
                }
            }
        }
        Verdict {
            answers: heard.answers,
            reads: heard.reads,
            moved,
            double_holds,
            lost_claims: std::mem::take(&mut heard.lost_claims),
            stale_reads: std::mem::take(&mut heard.stale_reads),
        }
    }
}

impl Heard {
    fn hold(&mut self, name: &Name, placement: &Placement) {
        let to = revision(placement);
        for (host, from) in hosts(placement) {
            let held = self.held.entry((name.0.clone(), host)).or_default();
            let same = held.iter_mut().find(|hold| hold.0 == *name && hold.1 == from);
            match same {
                Some(hold) => hold.2 = hold.2.max(to),
                None => held.push((name.clone(), from, to)),
            }
        }
    }
}

fn revision(placement: &Placement) -> u64 {
    placement.revision.unwrap_or_default().revision
}

/// Hosts, and the revision of each claim or release.
fn hosts(placement: &Placement) -> impl Iterator<Item = (String, u64)> + '_ {
    placement.members.iter().map(|member| {
        debug_assert_ne!(member.state(), MemberState::Unspecified);
        (member.host.clone().unwrap_or_default().name, member.revision)
    })
}
