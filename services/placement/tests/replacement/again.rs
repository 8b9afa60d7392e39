//! A host that was replaced, repaired and taken again is a member like any other.

use placement::{FailReason, MemberState, decide};

use crate::fixtures::*;
use crate::{hosts, marked_to_move, replaced, workers};

#[test]
fn a_host_taken_again_is_a_member_like_any_other() {
    let mut site = site(hosts(&["a", "b"]));
    let wanted = workers(1);
    let members = [member("a", "Worker", "a").failed(FailReason::MarkedFailed)];
    let first = decide(&site, &wanted, &members);
    assert_eq!(replaced(&first), [Some(id("a"))]);
    let mut members = apply(&first, &wanted, &members, true);
    // a is released and repaired, and the cluster grows by it; then it fails again.
    members.retain(|member| member.state != MemberState::Releasing);
    let larger = workers(2);
    let second = decide(&site, &larger, &members);
    assert_eq!(taken(&second), ["Worker/a"]);
    let members = apply(&second, &larger, &members, true);
    site.upsert(host("a").rack("a").marked_failed());

    let without = decide(&site, &larger, &members);
    assert_eq!(
        (released(&without), kept_hosts(&without).len()),
        (vec![], 2),
        "no host can replace it"
    );

    site.upsert(host("c").rack("c"));
    let with = decide(&site, &larger, &members);
    assert_eq!(
        (replaced(&with), released(&with)),
        (vec![Some(id("a"))], vec!["Worker/a".to_owned()])
    );
}

#[test]
fn a_host_taken_again_is_moved_like_any_other() {
    let mut site = site(hosts(&["a", "b", "c"]));
    let wanted = workers(1);
    let members = [member("a", "Worker", "a").failed(FailReason::MarkedFailed)];
    let first = decide(&site, &wanted, &members);
    let mut members = apply(&first, &wanted, &members, true);
    members.retain(|member| member.state != MemberState::Releasing);
    site.remove(&id("c").name);
    let larger = workers(2);
    let second = decide(&site, &larger, &members);
    let members = apply(&second, &larger, &members, true);
    site.upsert(host("c").rack("c"));
    site.upsert(marked_to_move(host("a").rack("a")));

    let decision = decide(&site, &larger, &members);

    assert_eq!(
        (released(&decision), replaced(&decision)),
        (vec![], vec![Some(id("a"))])
    );
    assert_eq!(kept_hosts(&decision).len(), 2, "it stays until c is bound");
}
