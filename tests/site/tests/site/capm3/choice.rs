//! Which hosts CAPM3 would take for a `Metal3Machine`.

use kube::{ResourceExt as _, api::DynamicObject};
use rand::{rngs::StdRng, seq::IndexedRandom as _};

use super::{FAILURE_DOMAIN, Metal3Machine, NODE_REUSE};

/// Annotations by which a host is passed over.
const PASSED_OVER: [&str; 3] = [
    "baremetalhost.metal3.io/paused",
    "capm3.metal3.io/unhealthy",
    // Before CAPM3 1.10.
    "capi.metal3.io/unhealthy",
];

/// One at random: of those that are kept for its owner, else of those in its failure domain, else of all that are free.
pub(super) fn choose(
    machine: &Metal3Machine,
    hosts: Vec<DynamicObject>,
    random: &mut StdRng,
) -> Option<DynamicObject> {
    let free: Vec<DynamicObject> = hosts.into_iter().filter(|host| is_free(machine, host)).collect();
    let of = |kept: bool| -> Vec<&DynamicObject> {
        let hosts = free.iter();
        hosts
            .filter(|host| host.labels().contains_key(NODE_REUSE) == kept)
            .collect()
    };
    let (kept, rest) = (of(true), of(false));
    let in_domain: Vec<&DynamicObject> = rest
        .iter()
        .filter(|host| {
            machine.failure_domain.is_some()
                && host.labels().get(FAILURE_DOMAIN) == machine.failure_domain.as_ref()
        })
        .copied()
        .collect();
    let candidates = [kept, in_domain, rest];
    let candidates = candidates.iter().find(|hosts| !hosts.is_empty())?;
    candidates.choose(random).map(|host| (*host).clone())
}

fn is_free(machine: &Metal3Machine, host: &DynamicObject) -> bool {
    let status = &host.data["status"];
    let state = status["provisioning"]["state"].as_str();
    host.data["spec"]["consumerRef"].is_null()
        && host.metadata.deletion_timestamp.is_none()
        && status["errorMessage"].as_str().is_none_or(str::is_empty)
        && PASSED_OVER.iter().all(|key| !host.annotations().contains_key(*key))
        // A host that is kept for somebody else is passed over without a word.
        && host.labels().get(NODE_REUSE).is_none_or(|owner| Some(owner) == machine.reuses_for.as_ref())
        && state.is_some_and(|state| ["ready", "available"].contains(&state))
}
