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
    /// Somebody who marks a host, or takes a mark away.
    Person,
    /// What the site shows of the host and its consumer.
    Site,
}

/// One row of the table: each of the stages in `from` can become each of those in `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// Empty: it was no member before.
    pub from: &'static [Stage],
    /// Empty: it is no member any more.
    pub to: &'static [Stage],
    /// Who can make it.
    pub by: &'static [Actor],
}

/// Every stage but releasing.
const LIVE: &[Stage] = &[
    Stage::Claimed,
    Stage::Replacement,
    Stage::Bound,
    Stage::Requested,
    Stage::Leaving,
    Stage::Outgoing,
    Stage::Lost,
    Stage::LostReplacement,
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
    row(&[Stage::Replacement], &[Stage::Leaving], &[Actor::ClusterAgent]),
    row(&[Stage::LostReplacement], &[Stage::Lost], &[Actor::ClusterAgent]),
    row(
        &[Stage::Claimed, Stage::Bound, Stage::Requested],
        &[Stage::Leaving],
        &[Actor::Person, Actor::Site],
    ),
    row(
        &[Stage::Leaving],
        &[Stage::Claimed, Stage::Bound, Stage::Requested],
        &[Actor::Person, Actor::Site],
    ),
    row(&[Stage::Leaving], &[Stage::Outgoing], &[Actor::Decision]),
    row(&[Stage::Outgoing], &[Stage::Releasing], &[Actor::Decision]),
    row(
        &[Stage::Outgoing],
        &[Stage::Claimed, Stage::Bound],
        &[Actor::Person, Actor::Site],
    ),
    row(
        &[Stage::Outgoing],
        &[Stage::Leaving],
        &[Actor::Person, Actor::Site, Actor::Decision],
    ),
    row(
        &[
            Stage::Claimed,
            Stage::Bound,
            Stage::Requested,
            Stage::Leaving,
            Stage::Outgoing,
        ],
        &[Stage::Lost],
        &[Actor::Person, Actor::Site],
    ),
    row(
        &[Stage::Replacement],
        &[Stage::LostReplacement],
        &[Actor::Person, Actor::Site],
    ),
    row(
        &[Stage::Lost],
        &[Stage::Claimed, Stage::Bound, Stage::Requested, Stage::Leaving],
        &[Actor::Person, Actor::Site],
    ),
    row(
        &[Stage::LostReplacement],
        &[Stage::Replacement],
        &[Actor::Person, Actor::Site],
    ),
    row(
        &[Stage::Lost, Stage::LostReplacement],
        &[Stage::Releasing],
        &[Actor::Decision],
    ),
    row(&[Stage::Bound], &[Stage::Requested], &[Actor::Decision]),
    row(LIVE, &[Stage::Releasing], &[Actor::Decision]),
    row(LIVE, &[Stage::Releasing], &[Actor::ClusterAgent]),
    row(&[Stage::Requested], &[Stage::Bound], &[Actor::Decision]),
    row(
        &[Stage::Requested, Stage::Leaving, Stage::Lost],
        &[Stage::Releasing],
        &[Actor::Site],
    ),
    row(
        &[Stage::Releasing],
        &[Stage::Requested, Stage::Leaving, Stage::Lost],
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
