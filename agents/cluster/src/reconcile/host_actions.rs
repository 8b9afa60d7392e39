//! Every action on the host of a member, and its condition: the whole list is in this file.
//!
//! Labels are the last step of a placement and the first of a release. Each write is one merge patch to exactly the host that was
//! observed: the API server answers 409 when its uid or resourceVersion is another. So what the table in [`Verb::condition`]
//! asks of labels, consumer and mark holds when the patch is applied, or the patch is not.

use api::{annotations, labels};
use kit::placement::{ClusterId, HostId, Member, Release};
use serde_json::{Value, json};

use super::served_cluster::{ServedCluster, User};
use crate::inventory::{ObservedHost, SipLabels};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Puts the cluster's labels on a host that it has claimed.
    Label,
    /// Restores labels that a user removed from a bound host.
    Relabel,
    /// Restores the labels of a host that leaves and that a Machine of the cluster uses, until the Machine is gone: it claimed the host while the
    /// agent released it, or a user removed the labels.
    RelabelClaimed,
    /// Writes the Cluster API cluster to a host that has the cluster's labels: SIP placed it, or the `SIPCluster` names another one.
    Adopt,
    /// Takes the labels off a host that leaves, and marks it with the revision of its release: of a surplus or failed member, of a
    /// deleted `SIPCluster`, and of one that is gone.
    Unlabel,
    /// Confirms to the scheduler that a release is on the API server. Writes nothing.
    Confirm,
    /// Confirms to the scheduler that a host that leaves is gone, if the API server has no such host. Writes nothing.
    ConfirmGone,
}

/// The labels of a host, compared with those of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Labels {
    /// None of the three.
    None,
    /// Some of the three, with the member's values.
    Partial,
    /// All three, with the member's values.
    Own,
    /// At least one with another value.
    Foreign,
}

/// What an action requires of the host's consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConsumerRule {
    /// The host has no consumer.
    Unused,
    /// The host has no consumer; or it has none of the three labels, and no consumer of the Cluster that the `SIPCluster` serves.
    UnusedIfLabelled,
    /// The host has no consumer, or one that does not belong to another Cluster.
    NotForeign,
    /// The host has a consumer of the Cluster that the `SIPCluster` serves.
    Own,
    /// The host has no consumer, or one that is not known to belong to the Cluster that the `SIPCluster` serves.
    NotOwn,
    /// No requirement.
    Any,
}

/// What an action requires of the revision that the last release has written to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkRule {
    /// It is of an earlier release than the member's claim.
    BeforeMember,
    /// It is the member's release, or a later one.
    OfMember,
    /// No requirement.
    Any,
}

/// What an action requires of the cluster's load balancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadBalancerRule {
    /// Each has applied the member.
    Applied,
    /// None routes to the member.
    Drained,
    /// No requirement.
    Any,
}

impl LoadBalancerRule {
    const fn is_met(self, load_balancers_ready: bool) -> bool {
        match self {
            Self::Applied | Self::Drained => load_balancers_ready,
            Self::Any => true,
        }
    }
}

/// The condition of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) labels: &'static [Labels],
    pub(super) consumer: ConsumerRule,
    pub(super) mark: MarkRule,
    pub(super) load_balancers: LoadBalancerRule,
}

impl Verb {
    /// What must hold of a host that exists, besides that its uid is the member's and its resourceVersion the observed one. [`Verb::ConfirmGone`]
    /// requires instead that no host has the member's uid. The machine of such a host may have a new `BareMetalHost` already, so its load
    /// balancers have to be drained as for any release.
    #[rustfmt::skip]
    pub(super) const fn condition(self) -> Condition {
        use Labels::{None, Own, Partial};
        let (labels, consumer, mark, load_balancers): (&'static [Labels], _, _, _) = match self {
            Self::Label          => (&[None, Partial],      ConsumerRule::Unused,           MarkRule::BeforeMember, LoadBalancerRule::Applied),
            Self::Relabel        => (&[None, Partial],      ConsumerRule::NotForeign,       MarkRule::BeforeMember, LoadBalancerRule::Applied),
            Self::RelabelClaimed => (&[None],               ConsumerRule::Own,              MarkRule::Any,          LoadBalancerRule::Any),
            Self::Adopt          => (&[Own],                ConsumerRule::Any,              MarkRule::Any,          LoadBalancerRule::Any),
            Self::Unlabel        => (&[None, Partial, Own], ConsumerRule::UnusedIfLabelled, MarkRule::Any,          LoadBalancerRule::Drained),
            Self::Confirm        => (&[None],               ConsumerRule::NotOwn,           MarkRule::OfMember,     LoadBalancerRule::Any),
            Self::ConfirmGone    => (&[],                   ConsumerRule::Any,              MarkRule::Any,          LoadBalancerRule::Drained),
        };
        Condition { labels, consumer, mark, load_balancers }
    }

    /// Whether the action writes the host.
    #[must_use]
    pub const fn writes(self) -> bool {
        match self {
            Self::Label | Self::Relabel | Self::RelabelClaimed | Self::Adopt | Self::Unlabel => true,
            Self::Confirm | Self::ConfirmGone => false,
        }
    }
}

/// What is observed of a member's host, as far as conditions depend on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) cluster: &'a ClusterId,
    pub(super) member: &'a Member,
    pub(super) host: &'a ObservedHost,
    pub(super) served: &'a ServedCluster,
    /// For a member that joins: each load balancer has applied it. For one that leaves: no load balancer routes to it.
    pub(super) load_balancers_ready: bool,
}

impl Facts<'_> {
    pub(super) fn labels(&self) -> Labels {
        let SipLabels {
            namespace,
            name,
            role,
        } = self.host.sip_labels();
        let own = [
            (namespace, self.cluster.namespace()),
            (name, self.cluster.name()),
            (role, self.member.role()),
        ];
        let present = own.iter().filter_map(|(value, own)| Some((value.as_ref()?, own)));
        match present.clone().count() {
            0 => Labels::None,
            _ if present.clone().any(|(value, own)| value != own) => Labels::Foreign,
            3 => Labels::Own,
            _ => Labels::Partial,
        }
    }

    pub(super) fn user(&self) -> User {
        self.served.user(self.host)
    }

    /// Whether the host carries the mark of the member's release, or of a later one.
    pub(super) fn is_marked(&self) -> bool {
        self.host.release_mark() >= self.member.revision()
    }
}

/// The part of a condition that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    Labels,
    Mark,
    Consumer,
    LoadBalancers,
}

impl Condition {
    /// The first part that does not hold.
    pub(super) fn violation(&self, facts: &Facts<'_>) -> Option<Violation> {
        let Self {
            labels,
            consumer,
            mark,
            load_balancers,
        } = *self;
        let user = facts.user();
        let consumer_holds = match consumer {
            ConsumerRule::Unused => user == User::Nobody,
            ConsumerRule::UnusedIfLabelled => {
                user == User::Nobody || (facts.labels() == Labels::None && user != User::Own)
            }
            ConsumerRule::NotForeign => user != User::Foreign,
            ConsumerRule::Own => user == User::Own,
            ConsumerRule::NotOwn => user != User::Own,
            ConsumerRule::Any => true,
        };
        let mark_holds = match mark {
            MarkRule::BeforeMember => !facts.is_marked(),
            MarkRule::OfMember => facts.is_marked(),
            MarkRule::Any => true,
        };
        let load_balancers_hold = load_balancers.is_met(facts.load_balancers_ready);
        [
            (labels.contains(&facts.labels()), Violation::Labels),
            (mark_holds, Violation::Mark),
            (consumer_holds, Violation::Consumer),
            (load_balancers_hold, Violation::LoadBalancers),
        ]
        .into_iter()
        .find_map(|(holds, violation)| (!holds).then_some(violation))
    }
}

/// An action on one member's host. Only [`HostAction::new`] and [`HostAction::confirm_gone`] make one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAction {
    verb: Verb,
    release: Release,
    /// Empty where there is no host.
    resource_version: String,
    /// What is merged into the host's metadata; null where nothing is written.
    change: Value,
}

/// A merge patch of a host's metadata that holds for the host as it was observed only.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConditionalPatch<'a> {
    pub(super) host: &'a HostId,
    pub(super) resource_version: &'a str,
    pub(super) change: Value,
}

impl HostAction {
    /// The action on a host, if the condition holds.
    ///
    /// # Errors
    /// What does not hold.
    pub(super) fn new(verb: Verb, facts: &Facts<'_>) -> Result<Self, Violation> {
        match verb.condition().violation(facts) {
            Some(violation) => Err(violation),
            None => Ok(Self {
                verb,
                release: facts.member.release(),
                resource_version: facts.host.resource_version().to_owned(),
                change: change(verb, facts),
            }),
        }
    }

    /// The confirmation that the host of a member that leaves is gone, if the load balancers allow it.
    pub(super) fn confirm_gone(member: &Member, load_balancers_ready: bool) -> Option<Self> {
        let Condition {
            labels: _,
            consumer: _,
            mark: _,
            load_balancers,
        } = Verb::ConfirmGone.condition();
        load_balancers.is_met(load_balancers_ready).then(|| Self {
            verb: Verb::ConfirmGone,
            release: member.release(),
            resource_version: String::new(),
            change: Value::Null,
        })
    }

    /// What is done.
    #[must_use]
    pub fn verb(&self) -> Verb {
        self.verb
    }

    /// Which host.
    #[must_use]
    pub fn host(&self) -> &HostId {
        self.release.host()
    }

    /// The release that is confirmed to the scheduler, once the action is done; `None` for an action on a host that the cluster keeps.
    #[must_use]
    pub fn release(&self) -> Option<&Release> {
        match self.verb {
            Verb::Unlabel | Verb::Confirm | Verb::ConfirmGone => Some(&self.release),
            Verb::Label | Verb::Relabel | Verb::RelabelClaimed | Verb::Adopt => None,
        }
    }

    /// The write; `None` for an action that writes nothing.
    pub(super) fn patch(&self) -> Option<ConditionalPatch<'_>> {
        self.verb.writes().then(|| ConditionalPatch {
            host: self.host(),
            resource_version: &self.resource_version,
            change: self.change.clone(),
        })
    }
}

/// What an action merges into the metadata.
fn change(verb: Verb, facts: &Facts<'_>) -> Value {
    match verb {
        Verb::Label | Verb::Relabel | Verb::RelabelClaimed | Verb::Adopt => {
            let mut change = json!({ "labels": {
                labels::CLUSTER_NAMESPACE: facts.cluster.namespace(),
                labels::CLUSTER_NAME: facts.cluster.name(),
                labels::NODE_TYPE: facts.member.role(),
            }});
            if let Some(annotation) = facts.served.annotation_change(facts.host) {
                change["annotations"][annotations::CLUSTER_API_CLUSTER] = annotation;
            }
            // A Machine on the host may replace its networkData, which then names a Secret that is deleted with the Machine.
            if let Some(secret) = facts.host.unremembered_secret() {
                change["annotations"][annotations::NETWORK_DATA] = secret.into();
            }
            // CAPM3 keeps the host for Machines of a cluster that held it before, and would not choose it for Machines of this one.
            if facts.member.state() == api::MemberState::Claimed {
                change["labels"][labels::NODE_REUSE] = Value::Null;
            }
            change
        }
        Verb::Unlabel => json!({
            "labels": {
                labels::CLUSTER_NAMESPACE: null,
                labels::CLUSTER_NAME: null,
                labels::NODE_TYPE: null,
                labels::NODE_REUSE: null,
            },
            "annotations": { annotations::PLACEMENT_REVISION: facts.member.revision().to_string() },
        }),
        Verb::Confirm | Verb::ConfirmGone => Value::Null,
    }
}
