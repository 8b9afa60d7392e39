//! Helps count the members that wait to be replaced or moved.

use placement::{Decision, Help, Host, RefusalKind, Selector, decide};

use crate::fixtures::*;
use crate::{marked_to_move, workers};

#[test]
fn a_smaller_count_includes_failed_members() {
    let site = site([
        host("a").rack("a").marked_failed(),
        host("b").rack("b").marked_failed(),
        host("c").rack("c"),
    ]);
    let members = ["a", "b", "c"].map(|name| member(name, "Worker", name));
    let decision = decide(&site, &workers(4), &members);
    let helps = decision.refusal.expect("no host is free").helps;
    let less: Vec<_> = helps
        .iter()
        .filter_map(|help| match help {
            Help::WantLess(roles) => Some(roles[0].1),
            Help::MoreHosts(_) | Help::MakeEligible { .. } => None,
        })
        .collect();
    assert_eq!(less, [1]);
    let followed = decide(&site, &workers(1), &members);
    assert_eq!(
        (followed.refusal.clone(), kept_hosts(&followed)),
        (None, vec!["Worker/c".to_owned()])
    );
}

#[test]
fn two_more_hosts_help_in_every_rack_that_is_not_excluded() {
    // Two workers have failed, one of them may be replaced; one more is wanted.
    let site = site([
        host("a").rack("r1").marked_failed(),
        host("b").rack("r2").marked_failed(),
        host("c").rack("r3"),
    ]);
    let members = [
        member("a", "Worker", "r1"),
        member("b", "Worker", "r2"),
        member("c", "Worker", "r3"),
    ];
    let refusal = decide(&site, &workers(4), &members)
        .refusal
        .expect("no host is free");
    let Some(Help::MoreHosts(needs)) = refusal.helps.first() else {
        panic!("{:?}", refusal.helps);
    };
    assert_eq!((needs[0].count, needs.len()), (2, 1));
    let racks: Vec<String> = (1..9).map(|rack| format!("r{rack}")).collect();
    let racks: Vec<&String> = racks
        .iter()
        .filter(|rack| !needs[0].not_in.iter().any(|not| not.as_str() == **rack))
        .collect();
    for (index, one) in racks.iter().enumerate() {
        for other in &racks[index + 1..] {
            let mut site = site.clone();
            site.upsert(host("x").rack(one));
            site.upsert(host("y").rack(other));
            let refusal = decide(&site, &workers(4), &members).refusal;
            let still = refusal.is_some_and(|refusal| refusal.kind == RefusalKind::NoFit);
            assert!(!still, "{one} and {other} do not help, {:?}", needs[0].not_in);
        }
    }
}

/// A control-plane host that nothing can replace, and a worker whose rack has the one free host; one worker more is wanted.
fn two_moves_and_growth(more: impl IntoIterator<Item = Host>) -> Decision {
    let moved = |name: &str, rack: &str| marked_to_move(host(name).rack(rack));
    let hosts = [
        moved("a", "ra").flavor("cp"),
        moved("c", "r1"),
        host("e").rack("r1"),
    ];
    let wanted = request([
        role("ControlPlane", flavor_is("cp"), 1),
        role("Worker", Selector::default(), 2),
    ]);
    let members = [member("a", "ControlPlane", "ra"), member("c", "Worker", "r1")];
    decide(&site(hosts.into_iter().chain(more)), &wanted, &members)
}

#[test]
fn new_hosts_help_though_they_let_another_role_move_first() {
    let refusal = two_moves_and_growth([]).refusal.expect("no host to grow by");
    let Some(Help::MoreHosts(needs)) = refusal.helps.first() else {
        panic!("{:?}", refusal.helps);
    };
    assert_eq!(needs.len(), 1, "{needs:?}");
    let new = (0..needs[0].count).map(|number| {
        let name = format!("new{number}");
        host(&name).rack(&name).flavor("cp")
    });
    let followed = two_moves_and_growth(new).refusal.map(|refusal| refusal.kind);
    assert_eq!(followed, Some(RefusalKind::ReplacementLimit), "{needs:?}");
}

#[test]
fn an_eligible_host_helps_though_another_role_could_move_to_it() {
    let mut paused = host("p").rack("rp").flavor("cp");
    paused.paused = true;
    let refusal = two_moves_and_growth([paused.clone()])
        .refusal
        .expect("no host to grow by");
    let is_named = refusal.helps.iter().any(|help| match help {
        Help::MakeEligible { hosts, .. } => hosts.contains(&paused.id.name),
        Help::MoreHosts(_) | Help::WantLess(_) => false,
    });
    paused.paused = false;
    let followed = two_moves_and_growth([paused]).refusal.map(|refusal| refusal.kind);
    assert_eq!((followed, is_named), (Some(RefusalKind::ReplacementLimit), true));
}

#[test]
fn a_smaller_count_starts_no_other_move() {
    // Of twenty workers two may be replaced at once: c has failed, and d is to be moved. No host is left to grow by, and none
    // for the control plane's a, whose move waits for that of d.
    let names: Vec<String> = (0..17).map(|number| format!("w{number:02}")).collect();
    let worker = |name: &str| host(name).rack(name).flavor("w");
    let mut all: Vec<Host> = names.iter().map(|name| worker(name)).collect();
    all.extend([
        marked_to_move(host("a").rack("a").flavor("cp")),
        worker("c").marked_failed(),
        marked_to_move(worker("d")),
        worker("x"),
        worker("y"),
    ]);
    let site = site(all);
    let wanted = |workers| {
        request([
            role("ControlPlane", flavor_is("cp"), 1),
            role("Worker", flavor_is("w"), workers),
        ])
    };
    let mut members: Vec<_> = names.iter().map(|name| member(name, "Worker", name)).collect();
    members.extend(["c", "d"].map(|name| member(name, "Worker", name)));
    members.push(member("a", "ControlPlane", "a"));
    let refusal = decide(&site, &wanted(20), &members)
        .refusal
        .expect("no host to grow by");
    for help in refusal.helps {
        let Help::WantLess(less) = help else { continue };
        let [(name, want)] = less.as_slice() else {
            panic!("{less:?}");
        };
        assert_eq!(name.as_str(), "Worker");
        let followed = decide(&site, &wanted(*want), &members)
            .refusal
            .map(|refusal| refusal.kind);
        assert_ne!(followed, Some(RefusalKind::NoFit), "{less:?}");
    }
}

#[test]
fn a_new_host_helps_in_every_rack_that_a_role_may_grow_into() {
    // A member of each role has failed, and both find a host in its rack; the control plane lacks one to grow by.
    let site = site([
        host("a").rack("r0").marked_failed(),
        host("b").rack("r5").marked_failed(),
        host("c").rack("r0"),
        host("d").rack("r1"),
        host("x").rack("r0"),
        host("y").rack("r1"),
        host("z").rack("r5"),
    ]);
    let members = [
        member("a", "ControlPlane", "r0"),
        member("b", "Worker", "r5"),
        member("c", "Worker", "r0"),
        member("d", "Worker", "r1"),
    ];
    let wanted = request([
        role("ControlPlane", Selector::default(), 3),
        role("Worker", Selector::default(), 3),
    ]);
    let refusal = decide(&site, &wanted, &members)
        .refusal
        .expect("one host is missing");
    let Some(Help::MoreHosts(needs)) = refusal.helps.first() else {
        panic!("{:?}", refusal.helps);
    };
    let [need] = needs.as_slice() else {
        panic!("{needs:?}");
    };
    assert_eq!(need.count, 1);
    for rack in ["r0", "r1", "r2", "r5"] {
        let mut site = site.clone();
        site.upsert(host("new").rack(rack));
        let followed = decide(&site, &wanted, &members).refusal;
        let is_excluded = need.not_in.iter().any(|not| not.as_str() == rack);
        assert!(followed.is_none() || is_excluded, "{rack}: {need:?}");
    }
}
