//! The status that a pass plans, which the outcome of the pass completes.

use api::{
    Placement,
    conditions::{self, Reason},
};
use kit::conditions::Finding;

use super::{
    findings::{self, first_few},
    outcomes::Outcomes,
    status::OwnStatus,
};

/// The status that a pass plans.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Draft {
    /// The outcome does not change it.
    Fixed(OwnStatus),
    /// For a cluster that stays: the outcome adds hosts that cannot be written and Machines that could not be restored.
    Declared(OwnStatus),
    /// For a cluster that is being deleted.
    Deleting(Progress),
}

/// How far a cluster that is being deleted has released its hosts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Progress {
    pub(super) placement: Placement,
    /// How many hosts it holds still.
    pub(super) members: usize,
    /// Hosts that wait, and what for; for messages.
    pub(super) waits: Vec<String>,
    /// Whether a release waits for something that only a user can change.
    pub(super) blocked: bool,
}

impl Draft {
    /// Completes the status by the outcome of the pass.
    pub(super) fn finish(self, outcomes: &Outcomes) -> OwnStatus {
        match self {
            Self::Fixed(status) => status,
            Self::Declared(mut status) => {
                findings::refuse(&mut status.findings, &outcomes.refused);
                findings::unscaled(&mut status.findings, &outcomes.unscaled);
                for member in status.placement.iter_mut().flat_map(|held| &mut held.members) {
                    if let Some(machine) = outcomes.stuck.get(&member.uid) {
                        member.machine.get_or_insert_with(|| machine.to_string());
                    }
                }
                status
            }
            Self::Deleting(progress) => progress.status(outcomes),
        }
    }
}

impl Progress {
    fn status(self, outcomes: &Outcomes) -> OwnStatus {
        let Self {
            placement,
            members,
            mut waits,
            blocked,
        } = self;
        let refused = (!outcomes.refused.is_empty()).then(|| findings::refused_in_words(&outcomes.refused));
        waits.extend(refused);
        let mut why = match members {
            1 => "one host is being released".to_owned(),
            members => format!("{members} hosts are being released"),
        };
        if !waits.is_empty() {
            why = format!("{why}; {}", first_few(&waits));
        }
        OwnStatus {
            findings: deleting(&why, blocked || !outcomes.refused.is_empty()),
            placement: Some(placement),
            tally: None,
            tenant_nodes: None,
        }
    }
}

/// The conditions of a cluster that is being deleted.
pub(super) fn deleting(why: &str, blocked: bool) -> Vec<Finding> {
    let reason = if blocked {
        conditions::ready::UNABLE_TO_DECOMMISSION
    } else {
        conditions::ready::PROGRESSING
    };
    vec![
        Finding::no(
            conditions::SCHEDULED,
            Reason::Deleting,
            "the cluster is being deleted",
        ),
        Finding::no(conditions::HOSTS_LABELED, Reason::Waiting, why),
        Finding::no(conditions::READY, reason, why),
    ]
}
