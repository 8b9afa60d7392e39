//! Rules got wrong, one at a time: each must make the model find a promise that is broken. What the model does not notice, it does
//! not hold.

use std::collections::BTreeSet;

use stateright::Model as _;

use crate::{
    fair, properties,
    protocol::{Action, Again, Protocol, State},
    rare::Rare,
    world::HostKey,
};

/// A rule that is got wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mutation {
    /// No release waits for pods.
    NoConfirmation,
    /// A release waits for pods only as long as its cluster is not being deleted.
    DeletionWaitsForNobody,
    /// A host that is gone waits for no pod.
    GoneWaitForNobody,
    /// A host that was made again succeeds the one before whatever its address is.
    SucceededByName,
    /// A configuration counts as followed once it is written.
    PodsNotAsked,
    /// A pod follows a configuration when it runs one with the same members, whichever of them it has read.
    TextsCompared,
    /// Pods and the configuration of a load balancer that the spec does not name any more do not count.
    OnlyNamedAsked,
    /// Hosts that leave stay in the configuration.
    LeavesRoutedTo,
    /// Pods whose `SIPCluster` is gone do not count.
    PodsOfGoneClusters,
    /// A host that is released gets no mark.
    NoMark,
    /// Answers are given before the ledger has them.
    AnswersBeforeDisk,
    /// A cluster agent writes the status whatever has become of the object since it was observed.
    StatusUnfenced,
    /// The API server takes the configurations of a load-balancer agent that was paused, whatever has become of the ones that it has found.
    LateConfigurationTaken,
    /// A cluster agent takes answers that are older than the status.
    OlderAnswersTaken,
    /// A configuration counts as one without the hosts that leave, whatever placement it was rendered for.
    EarlierConfigurationsCount,
    /// The load-balancer agent does not know of releases that the members in the status do not show.
    FormerReleaseForgotten,
    /// The load-balancer agent reports again for the releases that go on, though its report covers them.
    ReportGoesBack,
}

impl Mutation {
    const ALL: [Self; 17] = [
        Self::NoMark,
        Self::AnswersBeforeDisk,
        Self::NoConfirmation,
        Self::DeletionWaitsForNobody,
        Self::GoneWaitForNobody,
        Self::SucceededByName,
        Self::PodsNotAsked,
        Self::TextsCompared,
        Self::OnlyNamedAsked,
        Self::LeavesRoutedTo,
        Self::PodsOfGoneClusters,
        Self::StatusUnfenced,
        Self::LateConfigurationTaken,
        Self::OlderAnswersTaken,
        Self::EarlierConfigurationsCount,
        Self::FormerReleaseForgotten,
        Self::ReportGoesBack,
    ];

    /// The states in which its orders begin: close to what it breaks if few of all orders get there.
    fn beginnings(self, model: &Protocol) -> Vec<State> {
        let mut own = match self {
            Self::EarlierConfigurationsCount => vec![fair::not_started()],
            Self::ReportGoesBack => vec![fair::two_releases()],
            _ => return model.init_states(),
        };
        for state in &mut own {
            state.mutation = Some(self);
        }
        own
    }

    /// Whether an action is likely on the way from this state to what it breaks; without a known way all are.
    pub(crate) fn favours(self, action: &Action, state: &State) -> bool {
        match self {
            // Nothing is disturbed but pods, which are slow: one agent changes one cluster.
            Self::TextsCompared => match action {
                Action::Serve(request, again) => {
                    (request.agent, request.cluster, *again) == (0, 0, Again::No)
                }
                Action::Hear(answer, again) => {
                    (answer.request.agent, answer.request.cluster, *again) == (0, 0, Again::No)
                }
                Action::Look(0)
                | Action::Declare(0, 0)
                | Action::Open(0, None)
                | Action::Report(0)
                | Action::Take(0)
                | Action::Act(0, 0, ..)
                | Action::Render(0, _)
                | Action::Drain(0)
                | Action::Commit
                | Action::Settle
                | Action::Scale(0, _) => true,
                _ => false,
            },
            Self::StatusUnfenced | Self::OlderAnswersTaken => matches!(
                action,
                Action::Look(_)
                    | Action::Declare(..)
                    | Action::Serve(..)
                    | Action::Hear(..)
                    | Action::Commit
                    | Action::Settle
                    | Action::Scale(..)
                    | Action::Delete(_)
            ),
            // One of the beginnings has a paused pass over a cluster whose hosts are about to be free.
            Self::LateConfigurationTaken => matches!(
                action,
                Action::Look(_)
                    | Action::Serve(..)
                    | Action::Report(_)
                    | Action::Take(_)
                    | Action::Follow(..)
                    | Action::Commit
                    | Action::Settle
                    | Action::Rare(Rare::RenderLate(_))
            ),
            // The pod of the load balancer that was dropped starts after the host is free.
            Self::EarlierConfigurationsCount => match action {
                Action::Follow(0, 1) => {
                    let record = state.ledger.records.get(&0);
                    record.is_none_or(|held| held.members().next().is_none())
                }
                Action::Serve(request, again) => (request.agent, *again) == (1, Again::No),
                Action::Look(1)
                | Action::Report(1)
                | Action::Take(1)
                | Action::Act(1, 0, ..)
                | Action::Drain(0)
                | Action::Commit
                | Action::Settle => true,
                _ => false,
            },
            // After the first report the later release ends, and the earlier one goes on.
            Self::ReportGoesBack => match action {
                Action::Act(1, 0, host, _) => is_later_release(state, *host),
                Action::Serve(request, again) => (request.agent, *again) == (1, Again::No),
                Action::Hear(answer, again) => (answer.request.agent, *again) == (1, Again::No),
                Action::Look(1)
                | Action::Declare(1, 0)
                | Action::Report(1)
                | Action::Take(1)
                | Action::Render(0, _)
                | Action::Follow(0, _)
                | Action::Drain(0)
                | Action::Commit
                | Action::Settle => true,
                _ => false,
            },
            _ => true,
        }
    }

    /// Whether it is found only where what is rare happens.
    fn needs_rare(self) -> bool {
        self == Self::LateConfigurationTaken
    }

    /// What must be found to be broken.
    fn breaks(self) -> &'static [&'static str] {
        match self {
            Self::NoConfirmation
            | Self::DeletionWaitsForNobody
            | Self::GoneWaitForNobody
            | Self::SucceededByName
            | Self::PodsNotAsked
            | Self::TextsCompared
            | Self::OnlyNamedAsked
            | Self::LeavesRoutedTo
            | Self::PodsOfGoneClusters
            | Self::LateConfigurationTaken
            | Self::EarlierConfigurationsCount => &[
                "a free host is in no running configuration",
                "a host is claimed only when no other cluster's pods route to it",
            ],
            Self::NoMark | Self::FormerReleaseForgotten => &[properties::ENDS],
            Self::AnswersBeforeDisk => &["what was answered is held until it is released"],
            Self::StatusUnfenced | Self::OlderAnswersTaken => {
                &["no placement in a status is replaced by an older one"]
            }
            Self::ReportGoesBack => &[properties::REPORTS_RISE],
        }
    }
}

/// Whether the first cluster releases another host since before this one.
fn is_later_release(state: &State, host: HostKey) -> bool {
    let Some(held) = state.ledger.records.get(&0) else {
        return false;
    };
    let released = held.members().find(|member| member.host == host);
    released.is_some_and(|released| held.members().any(|member| member.revision < released.revision))
}

/// Random orders after which a mutation must have been found.
const MOST: u64 = 1000;

#[test]
fn every_rule_that_is_got_wrong_is_found() {
    for mutation in Mutation::ALL {
        let model = Protocol {
            // It takes much longer than a step.
            settle_every: if mutation.breaks().contains(&properties::ENDS) {
                5
            } else {
                997
            },
            mutation: Some(mutation),
            has_rare: mutation.needs_rare(),
        };
        let beginnings = mutation.beginnings(&model);
        let found = (1..=MOST).find_map(|seed| {
            let broken = crate::walk(&model, &beginnings, seed, &mut BTreeSet::new()).err()?;
            Some((seed, broken))
        });
        let (seed, broken) = found.unwrap_or_else(|| panic!("{mutation:?} is not found"));
        println!(
            "{mutation:?}: {} after {} steps of order {seed}",
            broken.what,
            broken.steps.len()
        );
        assert!(
            mutation.breaks().contains(&&*broken.what),
            "{mutation:?}: {}",
            broken.what
        );
    }
}
