//! What the host of a member needs, by what is observed of it: labels while the member joins or is bound, a release when it leaves, or nothing
//! yet, and what it waits for.

use api::{ClusterApiCluster, MemberState};
use kit::placement::{ClusterId, Member};

use super::{
    host_actions::{Facts, HostAction, Labels, Verb, Violation},
    served_cluster::{ServedCluster, User},
};
use crate::inventory::{ObservedHost, SipLabels};

/// The message about a member without its host.
pub(super) const GONE: &str = "its BareMetalHost is gone";
/// The message about a host that leaves and that the agent cannot write.
pub(super) const UNWRITABLE: &str = "it cannot be released, since the API server refuses every write of it";

/// What a member's host needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assessment {
    /// It is as it should be.
    Settled,
    /// This is due.
    Due(HostAction),
    /// It joins or is bound, and its `BareMetalHost` is gone.
    Gone,
    /// It cannot be written until a user changes something; for messages.
    Blocked(String),
    /// The same, since a consumer of another Cluster uses it; for messages, without what helps.
    ForeignConsumer(String),
    /// It joins, and waits for something that will happen; for messages.
    Waits(String),
    /// It leaves, and its consumer still uses it; for messages.
    InUse(String),
    /// It leaves, and pods of load balancers may still route to it.
    StillRouted,
    /// It leaves, and its Node in the tenant's cluster is not drained or deleted yet; for messages.
    NodeDrains(String),
    /// It leaves without ever having had labels, and cannot be marked: the API server refuses every write of it.
    Unwritable,
}

impl Assessment {
    /// What is due.
    #[must_use]
    pub fn action(&self) -> Option<&HostAction> {
        match self {
            Self::Due(action) => Some(action),
            Self::Settled
            | Self::Gone
            | Self::Blocked(_)
            | Self::ForeignConsumer(_)
            | Self::Waits(_)
            | Self::InUse(_)
            | Self::StillRouted
            | Self::NodeDrains(_)
            | Self::Unwritable => None,
        }
    }
}

/// Assesses the host of a member of a cluster that names a Cluster API cluster by its annotation, or none. `load_balancers_ready`: of
/// a member that joins, each load balancer has applied it; of one that leaves, none routes to it, whether its `BareMetalHost` is there
/// or not: the machine may have another one by now.
#[must_use]
pub fn assess(
    cluster: &ClusterId,
    named: Option<&ClusterApiCluster>,
    member: &Member,
    host: Option<&ObservedHost>,
    load_balancers_ready: bool,
) -> Assessment {
    // A host that was made again under the same name is another host.
    let Some(host) = host.filter(|host| host.id().uid() == member.host().uid()) else {
        if !member.is_releasing() {
            return Assessment::Gone;
        }
        return match HostAction::confirm_gone(member, load_balancers_ready) {
            Some(action) => Assessment::Due(action),
            None => Assessment::StillRouted,
        };
    };
    let facts = Facts {
        cluster,
        member,
        host,
        served: &ServedCluster::new(cluster, named),
        load_balancers_ready,
    };
    match member.state() {
        MemberState::Claimed => join(Verb::Label, &facts),
        // Labels that a user removed are restored while the host is in use; a new claim must find it unused.
        MemberState::Bound => join(Verb::Relabel, &facts),
        MemberState::Releasing => leave(&facts),
    }
}

fn join(verb: Verb, facts: &Facts<'_>) -> Assessment {
    match (facts.labels(), facts.user()) {
        // The policy on consumers reads this annotation, so it is written first; the next pass assesses the consumer.
        (Labels::Own, _) if facts.served.annotation_change(facts.host).is_some() => {
            attempt(Verb::Adopt, facts)
        }
        (Labels::Own, User::Foreign) => {
            Assessment::ForeignConsumer(facts.served.foreign_consumer(facts.host))
        }
        (Labels::Own, User::Nobody | User::Own | User::Unknown) => Assessment::Settled,
        (Labels::None | Labels::Partial | Labels::Foreign, _) => attempt(verb, facts),
    }
}

fn leave(facts: &Facts<'_>) -> Assessment {
    match (facts.labels(), facts.user()) {
        (Labels::None, _) if !facts.is_marked() && facts.host.is_write_refused() => Assessment::Unwritable,
        // A claim was in flight when the agent unlabelled the host, or a user removed the labels: the cluster keeps the host until its Machine is
        // gone. A write of the release would confirm it to the scheduler.
        (Labels::None, User::Own) => attempt(Verb::RelabelClaimed, facts),
        (Labels::None, _) if facts.is_marked() => attempt(Verb::Confirm, facts),
        (Labels::None | Labels::Partial | Labels::Own | Labels::Foreign, _) => attempt(Verb::Unlabel, facts),
    }
}

/// The action, or why its condition does not hold.
fn attempt(verb: Verb, facts: &Facts<'_>) -> Assessment {
    let Facts {
        cluster,
        member,
        host,
        served,
        load_balancers_ready: _,
    } = facts;
    match HostAction::new(verb, facts) {
        Ok(action) => Assessment::Due(action),
        Err(Violation::Labels) => Assessment::Blocked(format!(
            "it has labels of another cluster or role: {}; correct or remove them",
            describe_labels(host.sip_labels(), cluster.namespace())
        )),
        // The claim is older than the release on the host: this process was paused, and another replica has released the host.
        Err(Violation::Mark) => Assessment::Blocked(format!(
            "it has the release revision {} (annotation sip.airshipit.org/placement-revision), which is newer than this claim ({}); the agent waits \
             until it observes the scheduler's next decision",
            host.release_mark(),
            member.revision()
        )),
        // The message does not ask to delete the Machine, since it is another cluster's.
        Err(Violation::Consumer) if facts.user() == User::Foreign && verb != Verb::Label => {
            Assessment::ForeignConsumer(served.foreign_consumer(host))
        }
        Err(Violation::Consumer) if member.is_releasing() => {
            Assessment::InUse(format!("it is still used by {}", consumer(host)))
        }
        Err(Violation::Consumer) => Assessment::Blocked(format!("it is used by {} already", consumer(host))),
        Err(Violation::LoadBalancers) if member.is_releasing() => Assessment::StillRouted,
        Err(Violation::LoadBalancers) => {
            Assessment::Waits("not all load balancers have it in their configuration yet".to_owned())
        }
    }
}

fn consumer(host: &ObservedHost) -> String {
    let consumer = host.consumer().cloned().unwrap_or_default();
    let [kind, namespace, name] =
        [consumer.kind, consumer.namespace, consumer.name].map(Option::unwrap_or_default);
    format!("{kind} {namespace}/{name}")
}

/// The labels, for the tenant of this namespace. Those of a `SIPCluster` of another one may be another tenant's, and are not quoted.
fn describe_labels(labels: &SipLabels, own_namespace: &str) -> String {
    let SipLabels {
        namespace,
        name,
        role,
    } = labels;
    if namespace
        .as_deref()
        .is_some_and(|namespace| namespace != own_namespace)
    {
        return format!("{} names another namespace", api::labels::CLUSTER_NAMESPACE);
    }
    let keys = [
        api::labels::CLUSTER_NAMESPACE,
        api::labels::CLUSTER_NAME,
        api::labels::NODE_TYPE,
    ];
    let labels = keys.into_iter().zip([namespace, name, role]);
    labels
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_ref()?)))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests;
