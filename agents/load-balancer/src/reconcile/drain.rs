//! Whether any pod of a cluster's load balancers may still route to hosts that leave. Hosts are given back on this evidence,
//! so what is not known counts as routing.
//!
//! Every pod that belongs to the cluster is asked, whichever load balancer it is of: of one that the spec asks for, of one
//! that it no longer names, and of one whose changes are refused.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{Drained, MemberState, Placement, SIPCluster, annotations, conditions::ready::PROGRESSING, labels};
use futures::future::join_all;
use k8s_openapi::{
    api::core::v1::{ContainerState, Pod},
    jiff::Timestamp,
};
use kit::{
    apply,
    load_balancers::{belongs_to, is_finished, selector},
};
use kube::{Api, ResourceExt as _, api::ListParams};
use render::load_balancer::REPORT_PORT_NAME;

use super::{
    Context,
    apply::Lack,
    ask, balancers, pods,
    running::{self, Follows},
};

/// What the pods of each load balancer run once they have followed: its name, and the SHA-256 of the configuration.
pub(super) type Desired = BTreeMap<String, String>;

/// Which hosts nothing routes to any more.
#[derive(Debug, PartialEq)]
pub(super) enum Drain {
    /// None of the hosts that leave by this revision; or, where no host leaves, as it was last said.
    Done(Option<Drained>),
    /// Something may still route to them.
    Waits {
        /// As it was last said.
        known: Option<Drained>,
        /// For people.
        why: String,
        /// Since when hosts leave, as long as that is known.
        waited: Duration,
    },
}

impl Drain {
    /// For the status.
    pub(super) fn known(&self) -> Option<Drained> {
        match self {
            Self::Done(known) | Self::Waits { known, .. } => *known,
        }
    }

    /// When to look again, if no watch tells.
    pub(super) fn again(&self) -> Option<Duration> {
        match self {
            Self::Done(_) => None,
            Self::Waits { waited, .. } => Some(running::pause(*waited)),
        }
    }

    /// What people are told: not what takes its usual time.
    pub(super) fn lack(&self) -> Option<Lack> {
        match self {
            Self::Waits { why, waited, .. } if *waited >= running::SLOW => {
                Some(Lack::new(PROGRESSING, format!("hosts are not given back: {why}")))
            }
            Self::Done(_) | Self::Waits { .. } => None,
        }
    }
}

/// Looks whether the hosts that leave may be given back. The configurations of `desired` are on the API server, and every load
/// balancer that is not in it has been deleted or could not be changed.
pub(super) async fn look(
    context: &Context,
    object: &SIPCluster,
    held: &Placement,
    desired: &Desired,
) -> Drain {
    let known = object.status.as_ref().and_then(|status| status.drained);
    let Some(goal) = goal(held).filter(|goal| Some(*goal) != known) else {
        return Drain::Done(known);
    };
    let waits = |why| Drain::Waits {
        known,
        why,
        waited: waited(held, Timestamp::now()),
    };
    // The watch says cheaply that it is too early. That it is time only a list says that the API server makes now: the watch
    // may be behind, or have shown nothing yet.
    let name = object.name_any();
    let seen = pods::in_namespace(&context.pods, object.namespace().as_deref());
    if let Some(why) = in_the_way(&seen, &name, desired).await {
        return waits(why);
    }
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default());
    let listed = match pods.list(&ListParams::default().labels(&selector())).await {
        Ok(listed) => listed.items.into_iter().map(Arc::new).collect::<Vec<_>>(),
        Err(error) => {
            let why = format!("its pods cannot be listed: {}", apply::reason(&error));
            return waits(why);
        }
    };
    match in_the_way(&listed, &name, desired).await {
        Some(why) => waits(why),
        None => Drain::Done(Some(goal)),
    }
}

/// What is to be said once no pod routes to the hosts that leave; `None` while none leaves.
fn goal(held: &Placement) -> Option<Drained> {
    let leaves = |member: &api::Member| member.state == MemberState::Releasing;
    held.members.iter().any(leaves).then(|| Drained {
        epoch: held.epoch,
        revision: balancers::revision(held),
    })
}

/// For how long the host that left last has been leaving.
fn waited(held: &Placement, now: Timestamp) -> Duration {
    let leaving = held
        .members
        .iter()
        .filter(|member| member.state == MemberState::Releasing);
    let since = leaving.filter_map(|member| member.since.as_ref()).max();
    since
        .and_then(|since| now.duration_since(since.0).try_into().ok())
        .unwrap_or_default()
}

/// The first of the cluster's pods that may route to hosts that leave, and why; for people.
async fn in_the_way(pods: &[Arc<Pod>], cluster: &str, desired: &Desired) -> Option<String> {
    let own = pods.iter().filter(|pod| belongs_to(&***pod, cluster));
    let mut asked = Vec::new();
    for pod in own {
        match routing(pod, desired) {
            Routing::None => {}
            Routing::Some(why) => return Some(why),
            Routing::Ask(digest) => asked.push(running::says(Arc::clone(pod), digest)),
        }
    }
    join_all(asked).await.into_iter().find_map(|answer| match answer {
        Follows::All => None,
        Follows::Not { pod, failed } => {
            let failed = failed.map_or_else(String::new, |words| format!(": {words}"));
            Some(format!(
                "pod {pod} has not confirmed that it runs the newest configuration{failed}"
            ))
        }
    })
}

/// What is known of a pod without asking it.
#[derive(Debug, PartialEq)]
enum Routing<'a> {
    /// It routes to no host that leaves.
    None,
    /// It may; for people.
    Some(String),
    /// It says itself whether it runs the configuration of this digest.
    Ask(&'a str),
}

fn routing<'a>(pod: &Pod, desired: &'a Desired) -> Routing<'a> {
    // It has no Service, and balances nothing.
    let checks = pod.labels().contains_key(labels::TEMPLATE_CHECK);
    // Before it is on a node it has read no configuration.
    let waits = pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none());
    if checks || waits || is_finished(pod) {
        return Routing::None;
    }
    let name = pod.name_any();
    let of = pod.labels().get(labels::INSTANCE).map_or("", String::as_str);
    let Some(digest) = desired.get(of) else {
        return Routing::Some(format!(
            "pod {name} still runs, and {of} is no longer asked for or cannot be changed"
        ));
    };
    if ask::port(pod, REPORT_PORT_NAME).is_some() {
        // What starts HAProxy later reads the newest configuration first.
        return if is_down(pod) {
            Routing::None
        } else {
            Routing::Ask(digest)
        };
    }
    // Without a sidecar it runs what it was made for, if not now, then when it starts.
    match pod.annotations().get(annotations::CONFIG_HASH) {
        Some(made_for) if made_for == digest => Routing::None,
        Some(_) | None => Routing::Some(format!("pod {name} runs an earlier configuration")),
    }
}

/// Whether the kubelet says of every container that it does not run, and why. One that is about to start may run by now.
fn is_down(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref());
    let down = |state: &ContainerState| match state {
        ContainerState {
            running: None,
            waiting: Some(waiting),
            terminated: _,
        } => waiting.reason.as_deref().is_some_and(pods::is_stuck),
        ContainerState {
            running: None,
            waiting: None,
            terminated,
        } => terminated.is_some(),
        ContainerState {
            running: Some(_),
            waiting: _,
            terminated: _,
        } => false,
    };
    containers.is_some_and(|containers| {
        !containers.is_empty()
            && containers
                .iter()
                .all(|container| container.state.as_ref().is_some_and(down))
    })
}
