//! Which stages follow which, and who makes that so.

use std::fmt;

use super::Stage;

/// Who makes a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// The decision.
    Decision,
    /// The cluster agent, which labels hosts and confirms releases.
    ClusterAgent,
    /// A person or program that adds or removes a mark of a host.
    Person,
    /// What the site shows of the host and its consumer.
    Site,
}

/// One row of the table: each of the stages in `from` can become each of those in `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// Empty: it was no member before.
    pub from: &'static [Stage],
    /// Empty: it is no longer a member.
    pub to: &'static [Stage],
    /// Who can make it.
    pub by: &'static [Actor],
}

/// Every stage but releasing.
const LIVE: &[Stage] = &[
    Stage::Claimed,
    Stage::Replacement,
    Stage::Bound,
    Stage::ReleaseRequested,
    Stage::MovePending,
    Stage::Outgoing,
    Stage::Failed,
    Stage::FailedReplacement,
];

const fn row(from: &'static [Stage], to: &'static [Stage], by: &'static [Actor]) -> Transition {
    Transition { from, to, by }
}

/// Every transition that there is. `docs/replacement.md` says when each is made. What a person or the site has made can also be
/// undone until the next decision.
pub const TRANSITIONS: &[Transition] = &[
    row(&[], &[Stage::Claimed, Stage::Replacement], &[Actor::Decision]),
    row(
        &[Stage::Claimed, Stage::Replacement],
        &[Stage::Bound],
        &[Actor::ClusterAgent],
    ),
    row(
        &[Stage::Replacement],
        &[Stage::MovePending],
        &[Actor::ClusterAgent],
    ),
    row(
        &[Stage::FailedReplacement],
        &[Stage::Failed],
        &[Actor::ClusterAgent],
    ),
    row(
        &[Stage::Claimed, Stage::Bound, Stage::ReleaseRequested],
        &[Stage::MovePending],
        &[Actor::Person, Actor::Site],
    ),
    row(
        &[Stage::MovePending],
        &[Stage::Claimed, Stage::Bound, Stage::ReleaseRequested],
        &[Actor::Person, Actor::Site],
    ),
    row(&[Stage::MovePending], &[Stage::Outgoing], &[Actor::Decision]),
    row(&[Stage::Outgoing], &[Stage::Releasing], &[Actor::Decision]),
    row(
        &[Stage::Outgoing],
        &[Stage::Claimed, Stage::Bound],
        &[Actor::Person, Actor::Site],
    ),
    row(
        &[Stage::Outgoing],
        &[Stage::MovePending],
        &[Actor::Person, Actor::Site, Actor::Decision],
    ),
    row(
        &[
            Stage::Claimed,
            Stage::Bound,
            Stage::ReleaseRequested,
            Stage::MovePending,
            Stage::Outgoing,
        ],
        &[Stage::Failed],
        &[Actor::Person, Actor::Site],
    ),
    row(
        &[Stage::Replacement],
        &[Stage::FailedReplacement],
        &[Actor::Person, Actor::Site],
    ),
    row(
        &[Stage::Failed],
        &[
            Stage::Claimed,
            Stage::Bound,
            Stage::ReleaseRequested,
            Stage::MovePending,
        ],
        &[Actor::Person, Actor::Site],
    ),
    row(
        &[Stage::FailedReplacement],
        &[Stage::Replacement],
        &[Actor::Person, Actor::Site],
    ),
    row(
        &[Stage::Failed, Stage::FailedReplacement],
        &[Stage::Releasing],
        &[Actor::Decision],
    ),
    row(&[Stage::Bound], &[Stage::ReleaseRequested], &[Actor::Decision]),
    row(LIVE, &[Stage::Releasing], &[Actor::Decision]),
    row(LIVE, &[Stage::Releasing], &[Actor::ClusterAgent]),
    row(&[Stage::ReleaseRequested], &[Stage::Bound], &[Actor::Decision]),
    row(
        &[Stage::ReleaseRequested, Stage::MovePending, Stage::Failed],
        &[Stage::Releasing],
        &[Actor::Site],
    ),
    row(
        &[Stage::Releasing],
        &[Stage::ReleaseRequested, Stage::MovePending, Stage::Failed],
        &[Actor::Site],
    ),
    row(&[Stage::Releasing], &[], &[Actor::ClusterAgent]),
];

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Decision => "scheduler",
            Self::ClusterAgent => "cluster agent",
            Self::Person => "person",
            Self::Site => "site",
        })
    }
}

impl Transition {
    /// The columns of its row in the page: from, to, and who.
    #[must_use]
    pub fn columns(&self) -> [String; 3] {
        let Self { from, to, by } = self;
        let by: Vec<String> = by.iter().map(Actor::to_string).collect();
        [names(from), names(to), by.join(", ")]
    }
}

fn names(stages: &[Stage]) -> String {
    if stages == LIVE {
        return "any but releasing".to_owned();
    }
    if stages.is_empty() {
        return "–".to_owned();
    }
    let names: Vec<String> = stages.iter().map(Stage::to_string).collect();
    names.join(", ")
}
