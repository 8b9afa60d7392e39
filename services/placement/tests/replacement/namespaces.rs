//! A replacement stays in the namespace of the cluster's hosts while that has one.

use placement::{FailReason, Host, HostId, decide};

use crate::fixtures::*;
use crate::workers;

/// Hosts of the cluster are in `metal`; `lab` comes before it by name.
fn two_namespaces(names: &[&str]) -> Vec<Host> {
    let rack = |name: &&str| host(name).rack(&name.replace('/', "-"));
    names.iter().map(rack).collect()
}

#[test]
fn a_replacement_stays_in_the_namespace_of_failed_members() {
    let site = site(two_namespaces(&["metal/a", "lab/b", "metal/c"]));
    let members = [member("metal/a", "Worker", "metal-a").failed(FailReason::MarkedFailed)];
    let decision = decide(&site, &workers(1), &members);
    assert_eq!(decision.take[0].host, id("metal/c"));
    let moved = [member("metal/a", "Worker", "metal-a").failed(FailReason::MoveRequested)];
    assert_eq!(decide(&site, &workers(1), &moved).take[0].host, id("metal/c"));
}

#[test]
fn a_replacement_stays_in_the_namespace_if_growth_does_not_fit() {
    let site = site(two_namespaces(&[
        "metal/a", "metal/b", "lab/b", "lab/c", "metal/d",
    ]));
    let members = [
        member("metal/a", "Worker", "metal-a").failed(FailReason::MarkedFailed),
        member("metal/b", "Worker", "metal-b"),
    ];
    // Nowhere: the replacement alone is made.
    let decision = decide(&site, &workers(9), &members);
    let hosts: Vec<&HostId> = decision.take.iter().map(|take| &take.host).collect();
    assert_eq!(hosts, [&id("metal/d")]);
    // Only elsewhere: as few as possible are there.
    let decision = decide(&site, &workers(3), &members);
    let inside = decision.take.iter().filter(|take| take.host == id("metal/d"));
    assert_eq!((decision.take.len(), inside.count()), (2, 1));
}
