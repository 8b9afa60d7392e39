//! Growth that waits, because an older cluster may get the hosts that it would take.

use std::time::SystemTime;

use ::placement::{ClusterName, MemberState, Withheld, whatif::PriorityClass};

use super::{
    decide::{is_due, priority, withheld},
    state::Site,
    step_room::StepRoom,
};
use crate::record::{Record, Refusal};

/// Maximum number of older clusters that are decided to find out whether they get hosts, for each decision of a younger one. After a
/// declaration retries decide the others, which take half a core at most.
const MAX_DECIDED_CLUSTERS: usize = 2;
/// Maximum number of roles of such a cluster after a declaration: a decision of more may take long.
const MAX_ROLES: usize = 2;
/// Maximum number of wanted members of such a cluster after a declaration, for the same reason.
const MAX_WANTED: u64 = 256;

/// Result of [`Site::precedence`] for one cluster.
#[derive(Debug, Default)]
pub(super) struct Precedence {
    /// An older cluster may get hosts, so this one waits.
    pub(super) must_wait: bool,
    /// Older clusters whose decision showed that they get no hosts.
    pub(super) without_hosts: Vec<ClusterName>,
}

/// Why a cluster is decided.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trigger {
    /// It was declared: a retry decides it too, and the older ones before.
    Declared,
    /// It waits, and this is its turn.
    Retried,
}

impl Site {
    /// Whether a cluster that takes further hosts by `decided` must wait for an older one that may get some since the last change. A cluster that
    /// would get nothing delays no other one.
    pub(super) fn precedence(
        &self,
        record: &Record,
        decided: &Record,
        room: StepRoom<'_>,
        why: Trigger,
        now: SystemTime,
    ) -> Precedence {
        let mut precedence = Precedence::default();
        if !takes_more(record, decided) {
            return precedence;
        }
        let view = self.view();
        let own = priority(view, record, now);
        for name in self.refused.older(record) {
            let Some(older) = self.claims.get(name) else {
                continue;
            };
            // Every older cluster comes before a new one. Before a cluster with members come only others with members and an earlier turn.
            let is_before = if own.kind == PriorityClass::New {
                true
            } else {
                !is_new(older) && priority(view, older, now) < own
            };
            if !is_before || *name == record.cluster || !is_due(view, older) {
                continue;
            }
            let is_large = older.spec.roles().len() > MAX_ROLES || older.spec.wanted() > MAX_WANTED;
            let is_over = precedence.without_hosts.len() == MAX_DECIDED_CLUSTERS;
            match why {
                Trigger::Declared if is_large || is_over => {
                    precedence.must_wait = true;
                    break;
                }
                // A retried cluster waits only for one that is shown to get hosts: clusters that never get any must not delay it.
                Trigger::Retried if is_over => break,
                Trigger::Declared | Trigger::Retried => {}
            }
            let room = self.step_room(name, room.largest);
            let settled = self.settled(Record::clone(older), room, now);
            let next = self.decide_without(withheld(&settled), &settled, room, now);
            let takes = next.members.keys().any(|id| !settled.members.contains_key(id));
            if takes && room.require_growth(&settled, &next).is_ok() {
                precedence.must_wait = true;
                break;
            }
            precedence.without_hosts.push(name.clone());
        }
        precedence
    }

    /// The decision without further hosts, and why.
    pub(super) fn decide_later(&self, settled: &Record, room: StepRoom<'_>, now: SystemTime) -> Record {
        let mut decided = self.decide_without(Withheld::GROWTH, settled, room, now);
        decided.refusal = Some(Refusal::older_first());
        decided
    }
}

/// Whether a cluster has no member that stays.
fn is_new(record: &Record) -> bool {
    let mut members = record.members.values();
    members.all(|member| member.state == MemberState::Releasing)
}

/// Whether a decision takes hosts that replace no member.
fn takes_more(before: &Record, after: &Record) -> bool {
    let mut members = after.members.iter();
    members.any(|(id, member)| member.replaces.is_none() && !before.members.contains_key(id))
}
