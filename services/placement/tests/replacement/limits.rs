//! How many replacements are under way: one that failed still is.

use std::collections::BTreeSet;

use placement::{FailReason, MemberState, Selector, decide};

use crate::fixtures::*;
use crate::{hosts, replaced, workers};

#[test]
fn a_failed_replacement_still_counts_as_under_way() {
    let site = site(hosts(&["a", "b", "c", "d", "e"]));
    let wanted = request([role("ControlPlane", Selector::default(), 3)]);
    // x was given back; b came in its place, is not bound, and has failed; a has failed for a more pressing reason.
    let members = [
        member("a", "ControlPlane", "a").failed(FailReason::Gone),
        member("b", "ControlPlane", "b")
            .state(MemberState::Claimed)
            .alone("x")
            .failed(FailReason::InError),
        member("c", "ControlPlane", "c"),
    ];
    let decision = decide(&site, &wanted, &members);
    assert_eq!(
        (replaced(&decision), released(&decision)),
        (vec![Some(id("b"))], vec!["ControlPlane/b".to_owned()])
    );
}

#[test]
fn failed_replacements_count_against_a_tenth() {
    let names: Vec<String> = (0..30).map(|i| format!("h{i:02}")).collect();
    let site = site(names.iter().map(|name| host(name).rack(name)));
    let mut members: Vec<_> = names[..20]
        .iter()
        .map(|name| member(name, "Worker", name))
        .collect();
    members[0].failed = Some(FailReason::Gone);
    members[1].failed = Some(FailReason::Gone);
    for place in [18, 19] {
        members[place].state = MemberState::Claimed;
        members[place] = members[place].clone().alone("x").failed(FailReason::Marked);
    }
    let decision = decide(&site, &workers(20), &members);
    let both = [Some(id("h18")), Some(id("h19"))];
    assert_eq!(
        replaced(&decision).iter().cloned().collect::<BTreeSet<_>>(),
        both.into()
    );
}
