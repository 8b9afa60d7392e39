//! What this process knows of one tenant's cluster: what a pass wants of its Nodes, and what polls have found. Pure; the time is an argument.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use api::TenantNodes;
use kit::message::readable;

use super::{
    Action, Drain, Problem, Report, Wanted, lasting::Lasting, matching, poll::Observation,
    preference::Preference,
};

/// Pause between polls of a cluster.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// The same where a pass wants something new.
const CHANGED_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The longest pause where a user has to change something first, such as to create the Secret: each is twice as long as the one before.
pub(super) const MAX_BACKOFF: Duration = Duration::from_mins(2);

#[derive(Debug)]
pub(super) struct Cluster {
    generation: u64,
    wanted: Wanted,
    preference: Preference,
    problem: Lasting,
    report: Report,
    polls: usize,
    /// Number of the last polls that failed in a row for a reason that needs a change by a user.
    unusable: u32,
    /// Uids of the hosts for whose Nodes the tenant's API server refused the last step.
    refused: BTreeSet<String>,
    /// Whether a pass wants something else than the last poll began with.
    is_changed: bool,
}

impl Cluster {
    /// Begins with the problem and the preferences in the status.
    pub(super) fn new(wanted: Wanted, generation: u64, now: Instant) -> Self {
        let TenantNodes {
            problem,
            not_preferred,
        } = &wanted.known;
        let problem = problem.as_deref().map(bounded);
        Self {
            generation,
            preference: Preference::resumed(&wanted, now),
            report: Report {
                lasting_problem: problem.clone(),
                not_preferred: not_preferred.clone(),
                ..Report::default()
            },
            problem: Lasting::resumed(problem),
            polls: 0,
            unusable: 0,
            refused: BTreeSet::new(),
            is_changed: true,
            wanted,
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// What to do to the Node of a host, for a poll that began with this; `None` if that is no longer wanted, or another `SIPCluster` or kubeconfig
    /// is: another kubeconfig may lead to another cluster.
    pub(super) fn action(&self, began: &Wanted, host: &str) -> Option<Action> {
        let mut members = self.wanted.members.iter();
        let member = members.find(|member| member.host.uid() == host)?;
        self.is_of(began).then_some(member.action)
    }

    pub(super) fn report(&self) -> &Report {
        &self.report
    }

    /// Whether `wanted` is for the same `SIPCluster`, by the same kubeconfig.
    pub(super) fn is_of(&self, wanted: &Wanted) -> bool {
        let known = &self.wanted;
        known.object.uid == wanted.object.uid && known.secret == wanted.secret && known.user == wanted.user
    }

    /// Takes what a pass wants from now on. Returns whether the members differ from before.
    pub(super) fn set_wanted(&mut self, wanted: Wanted) -> bool {
        let is_changed = self.wanted.members != wanted.members;
        self.is_changed |= is_changed;
        self.wanted = wanted;
        is_changed
    }

    /// Pause after a poll.
    pub(super) fn pause(&self) -> Duration {
        if self.is_changed {
            return CHANGED_POLL_INTERVAL;
        }
        let twice = self.unusable.saturating_sub(1).min(u32::BITS - 1);
        POLL_INTERVAL.saturating_mul(1 << twice).min(MAX_BACKOFF)
    }

    /// Begins a poll: what it is to do, and how many polls there were before.
    pub(super) fn begin(&mut self) -> (Wanted, usize) {
        let turn = self.polls;
        self.polls = turn.wrapping_add(1);
        self.is_changed = false;
        (self.wanted.clone(), turn)
    }

    /// Takes the result of a poll that began with this. Returns whether the report has changed.
    pub(super) fn end(&mut self, began: &Wanted, now: Instant, found: Result<Observation, Problem>) -> bool {
        let next = match found {
            Ok(found) => self.answered(began, now, found),
            Err(problem) => self.failed(now, problem),
        };
        let is_changed = self.report != next;
        self.report = next;
        is_changed
    }

    fn answered(
        &mut self,
        began: &Wanted,
        now: Instant,
        Observation { nodes, mut drains }: Observation,
    ) -> Report {
        self.unusable = 0;
        self.take_first_refusals(began, &mut drains);
        // Nodes that the poll did not reach keep their result of the poll before.
        for member in began.members.iter().filter(|member| member.action.drains()) {
            let uid = member.host.uid();
            if let (false, Some(drain)) = (drains.contains_key(uid), self.report.drains.get(uid)) {
                drains.insert(uid.to_owned(), drain.clone());
            }
        }
        let nodes = matching::nodes_by_host(began, &nodes);
        let listed = self.preference.answered(now, began, &nodes);
        let problem = listed.are_too_many.then(|| {
            let most = TenantNodes::MAX_NOT_PREFERRED;
            format!(
                "the Nodes of more than {most} members are not ready: load balancers treat all members alike"
            )
        });
        Report {
            is_polled: true,
            problem: None,
            lasting_problem: self.problem.record(now, problem),
            not_preferred: listed.members,
            drains,
            deletions: BTreeMap::new(),
        }
    }

    /// An API server that has just started refuses calls that it allows a moment later, so only the second refusal in a row counts.
    fn take_first_refusals(&mut self, began: &Wanted, drains: &mut BTreeMap<String, Drain>) {
        let before = std::mem::take(&mut self.refused);
        for member in began.members.iter().filter(|member| member.action.drains()) {
            let uid = member.host.uid();
            let is_second = before.contains(uid);
            match drains.get_mut(uid) {
                Some(drain) => {
                    let Drain::Refused { node, why } = drain else {
                        continue;
                    };
                    let (node, left) = (node.clone(), why.clone());
                    if !is_second {
                        *drain = match member.action {
                            Action::Delete => Drain::Deleting { node },
                            Action::Drain | Action::Keep | Action::Leave => Drain::Draining { node, left },
                        };
                    }
                    self.refused.insert(uid.to_owned());
                }
                // The poll did not reach the Node.
                None if is_second => drop(self.refused.insert(uid.to_owned())),
                None => {}
            }
        }
    }

    fn failed(&mut self, now: Instant, Problem { passes, message }: Problem) -> Report {
        self.unusable = if passes {
            0
        } else {
            self.unusable.saturating_add(1)
        };
        // An API server that has just started refuses calls that it allows a moment later, so one failure alone counts as passing.
        let passes = self.unusable < 2;
        let message = bounded(&message);
        let listed = self.preference.failed(now);
        let before = &self.report.not_preferred;
        Report {
            is_polled: true,
            lasting_problem: self.problem.record(now, Some(message.clone())),
            not_preferred: listed.map_or_else(|| before.clone(), |listed| listed.members),
            drains: BTreeMap::new(),
            deletions: BTreeMap::new(),
            problem: Some(Problem { passes, message }),
        }
    }
}

/// A problem as long as a status may state it.
fn bounded(problem: &str) -> String {
    readable(problem, TenantNodes::MAX_PROBLEM_BYTES)
}
