//! Every help that a refusal offers is tried for real.
#![allow(clippy::expect_used, reason = "a fixture that is not valid is a broken test")]

mod fixtures;

use fixtures::random::{SERVER, World, case};
use fixtures::{FLAVOR, HostExt, MemberExt, RACK, ROOM, host, key, value};
use placement::{
    Decision, FailReason, Help, Host, Ineligible, Need, Policy, Refusal, RefusalKind, Requirement, Role,
    RoleName, Selector, decide,
};
use proptest::prelude::*;

fn role<'a>(world: &'a World, name: &RoleName) -> &'a Role {
    world
        .request
        .roles
        .iter()
        .find(|role| role.name == *name)
        .expect("a role of the request")
}

/// A host that fits the role, in its own domains unless `domain` says otherwise; None where the selector allows none there.
fn new_host(role: &Role, index: u32, domain: Option<&str>) -> Option<Host> {
    let name = format!("new{index}");
    let plain = host(&name).label(SERVER, &name).label(ROOM, "m0");
    let with_cp = plain.clone().label("cp", "");
    let flavored = plain.clone().label(FLAVOR, "w");
    let racks = [Some(&*name), Some("r1"), Some("r3"), None];
    let each = racks.into_iter().flat_map(|rack| {
        [&plain, &with_cp, &flavored].map(|host| {
            let mut host = host.clone();
            host.labels.extend(rack.map(|rack| (key(RACK), value(rack))));
            let domain = domain.or((role.topology_key == Some(key(RACK))).then_some(&*name));
            if let (Some(domain), Some(key)) = (domain, &role.topology_key) {
                host.labels.insert(key.clone(), value(domain));
            }
            host
        })
    });
    let mut fits = each.filter(|host| role.selector.matches(&host.labels));
    fits.next()
}

fn decide_with(world: &World, more: Vec<Host>) -> Decision {
    let mut site = world.site();
    for host in more {
        site.upsert(host);
    }
    decide(&site, &world.request, &world.members)
}

fn fits(decision: &Decision) -> bool {
    decision
        .refusal
        .as_ref()
        .is_none_or(|refusal| refusal.kind == RefusalKind::ReplacementLimit)
}

fn more(world: &World, needs: &[Need]) -> Vec<Host> {
    let mut index = 0;
    let mut hosts = Vec::new();
    for need in needs {
        let role = role(world, &need.role);
        for place in 0..need.count {
            let domain = need.only_in.as_ref().map(|open| open[place as usize].as_str());
            hosts.push(new_host(role, index, domain).expect("it can be had"));
            index += 1;
        }
    }
    hosts
}

/// Whether a role's selector names the topology domains that it allows.
fn names_domains(role: &Role) -> bool {
    let mut about = role
        .selector
        .requirements()
        .filter(|one| Some(one.key()) == role.topology_key.as_ref());
    about.any(|one| matches!(one, Requirement::In(..) | Requirement::DoesNotExist(_)))
}

fn holds(world: &World, help: &Help) -> Result<(), TestCaseError> {
    match help {
        Help::MoreHosts(needs) => {
            prop_assert!(fits(&decide_with(world, more(world, needs))), "{help:?}");
            let [
                Need {
                    role: name,
                    count: 1,
                    not_in,
                    only_in: _,
                },
            ] = needs.as_slice()
            else {
                return Ok(());
            };
            for domain in not_in {
                let Some(there) = new_host(role(world, name), 0, Some(domain.as_str())) else {
                    continue;
                };
                let mut others = world.request.roles.iter().filter(|role| role.name != *name);
                if others.all(|other| !other.selector.matches(&there.labels)) {
                    prop_assert!(
                        !fits(&decide_with(world, vec![there])),
                        "{domain} would do: {help:?}"
                    );
                }
            }
        }
        Help::MakeEligible {
            role: _,
            reasons,
            hosts,
        } => {
            let mut without = world.clone();
            if matches!(reasons.as_slice(), [Ineligible::CordonedDomain(_)]) {
                without.policy.cordoned.clear();
            }
            let mended = world
                .hosts
                .iter()
                .filter(|host| hosts.contains(&host.id.name))
                .cloned()
                .map(|mut host| {
                    host.paused = false;
                    host.cordoned = false;
                    host.consumer = None;
                    host.networks.extend(world.request.networks.iter().cloned());
                    host
                });
            prop_assert!(fits(&decide_with(&without, mended.collect())), "{help:?}");
        }
        Help::WantLess(roles) => {
            let mut less = world.clone();
            for (name, want) in roles {
                less.request
                    .roles
                    .iter_mut()
                    .filter(|role| role.name == *name)
                    .for_each(|role| role.want = *want);
            }
            let decision = decide(&less.site(), &less.request, &less.members);
            let short = decision.refusal.iter().flat_map(|refusal| refusal.roles.values());
            prop_assert!(
                short.into_iter().all(|funnel| funnel.placeable >= funnel.want),
                "{help:?}"
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(fixtures::runs::cases(10_000))]

    #[test]
    fn each_help_makes_the_request_fit(case in case()) {
        let world = case.world();
        let decision = decide(&world.site(), &world.request, &world.members);
        for help in decision.refusal.iter().flat_map(|refusal| &refusal.helps) {
            holds(&world, help)?;
        }
        if let Some(refusal) = decision.refusal {
            prop_assert!(refusal.message().len() < 4_000);
            let can_be_had = refusal.kind == RefusalKind::NoFit && !world.request.roles.iter().any(names_domains);
            prop_assert!(!can_be_had || refusal.helps.iter().any(|help| matches!(help, Help::MoreHosts(_))));
        }
    }
}

#[test]
fn a_failed_members_domain_does_not_help_a_role_to_grow() {
    let hosts = [
        host("a").rack("r1"),
        host("b").rack("r1").paused(),
        host("c").rack("r2"),
        host("d").rack("r2"),
    ];
    let failed = |name, rack| fixtures::member(name, "Worker", rack).failed(FailReason::MarkedFailed);
    let members = [failed("a", "r1"), failed("c", "r2")];
    let wanted = fixtures::request([fixtures::role("Worker", Selector::default(), 3)]);
    let refusal = decide(&fixtures::site(hosts), &wanted, &members)
        .refusal
        .expect("two racks");
    let mended = refusal
        .helps
        .iter()
        .filter(|help| matches!(help, Help::MakeEligible { .. }));
    assert_eq!(mended.count(), 0, "{:?}", refusal.helps);
    assert!(
        refusal
            .message()
            .ends_with("would help: one more eligible host in a rack other than r1, r2")
    );
}

#[test]
fn the_message_says_what_would_do_and_where_it_would_not() {
    let hosts =
        ["a", "b", "c"].map(|name| host(name).rack(if name == "c" { "r2" } else { "r1" }).flavor("w"));
    let site = fixtures::site(
        hosts
            .into_iter()
            .chain([host("d").rack("r3").flavor("w").paused()]),
    );
    let wanted = fixtures::request([fixtures::role("Worker", fixtures::flavor_is("w"), 3)]);
    let refusal = decide(&site, &wanted, &[]).refusal.expect("two racks");
    let message = refusal.message();
    assert_eq!(
        message,
        format!(
            "Worker: 3 wanted, 2 can be placed: 4 hosts match, 4 have {RACK}, 3 are eligible, 3 free, in 2 racks; \
             would help: one more eligible host with {FLAVOR}=w in a rack other than r1, r2"
        )
    );
    let helps: Vec<String> = refusal
        .helps
        .iter()
        .map(|help| refusal.help_message(help))
        .collect();
    assert_eq!(
        helps[1..],
        [
            "metal/d becoming eligible for Worker (now: it is paused)",
            "a smaller count: 2 Worker"
        ]
    );
}

#[test]
fn the_message_names_the_networks_that_hosts_lack() {
    let mut hosts = ["a", "b", "c", "d"].map(|name| host(name).rack(name));
    let network = |name: &str| -> placement::NetworkId { name.parse().expect("a network") };
    hosts[0].networks.extend([network("oam"), network("pxe")]);
    hosts[1].networks.insert(network("pxe"));
    hosts[3].paused = true;
    let mut wanted = fixtures::request([fixtures::role("Worker", Selector::default(), 2)]);
    wanted.networks.extend([network("oam"), network("pxe")]);
    let refusal = decide(&fixtures::site(hosts), &wanted, &[])
        .refusal
        .expect("one host");
    assert_eq!(
        refusal.message(),
        format!(
            "Worker: 2 wanted, 1 can be placed: 4 hosts match, 4 have {RACK}, 3 without an address in networks oam, pxe, \
             1 are eligible, 1 free, in 1 rack; would help: one more eligible host with an address in networks oam, pxe in \
             a rack other than a, or metal/b becoming eligible for Worker (now: it has no address in network oam)"
        )
    );
    let helps: Vec<String> = refusal
        .helps
        .iter()
        .map(|help| refusal.help_message(help))
        .collect();
    assert!(
        helps.contains(
            &"metal/c becoming eligible for Worker (now: it has no address in network oam, it has no address in network pxe)"
                .to_owned()
        ),
        "{helps:?}"
    );
}

#[test]
fn a_host_with_an_empty_rack_label_is_in_no_rack() {
    // Only x can serve A, and B cannot use another host of m9; h would serve A if an empty label were a rack.
    let site = |paused: bool| {
        let mut h = host("h").rack("").label(ROOM, "m9");
        h.paused = paused;
        let x = host("x").rack("r1").label(ROOM, "m1");
        fixtures::site([h, x, host("m").label(ROOM, "m9")])
    };
    let mut in_rooms = fixtures::role("B", Selector::default(), 2);
    in_rooms.topology_key = Some(key(ROOM));
    let wanted = fixtures::request([fixtures::role("A", Selector::default(), 1), in_rooms]);
    let mut members = [fixtures::member("m", "B", "")];
    members[0].domain = Some(fixtures::domain(ROOM, "m9"));
    let refusal = decide(&site(true), &wanted, &members)
        .refusal
        .expect("one host for two");
    let named = refusal
        .helps
        .iter()
        .filter(|help| matches!(help, Help::MakeEligible { .. }));
    assert_eq!(decide(&site(false), &wanted, &members).take.len(), 0);
    assert_eq!(named.count(), 0, "{:?}", refusal.helps);
}

/// The refusal of so many workers and one more, where each of that many racks has a worker and nothing else.
fn one_more_worker(racks: u32, new: Option<&str>) -> Option<Refusal> {
    let names: Vec<String> = (0..racks).map(|rack| format!("r{rack}")).collect();
    let hosts = names.iter().map(|name| host(name).rack(name));
    let new = new.map(|rack| host("new").rack(rack));
    let members: Vec<_> = names
        .iter()
        .map(|name| fixtures::member(name, "Worker", name))
        .collect();
    let wanted = fixtures::request([fixtures::role("Worker", Selector::default(), racks + 1)]);
    decide(&fixtures::site(hosts.chain(new)), &wanted, &members).refusal
}

#[test]
fn a_sentence_names_every_rack_that_does_not_help() {
    let refusal = one_more_worker(8, None).expect("eight racks");
    let sentence = refusal.help_message(&refusal.helps[0]);
    for rack in (0..9).map(|rack| format!("r{rack}")) {
        let is_named = sentence.split([' ', ',']).any(|word| word == rack);
        let helps = one_more_worker(8, Some(&rack)).is_none();
        assert!(is_named || helps, "{rack}: {sentence}");
    }
}

#[test]
fn a_sentence_about_many_racks_states_a_rule() {
    let refusal = one_more_worker(30, None).expect("thirty racks");
    assert_eq!(
        refusal.help_message(&refusal.helps[0]),
        "one more eligible host in a rack where the site has no host and Worker has no member"
    );
    assert_eq!(one_more_worker(30, Some("r30")), None);
}

#[test]
fn a_sentence_about_many_racks_of_a_selector_names_the_others() {
    let names: Vec<String> = (10..35).map(|rack| format!("r{rack}")).collect();
    let selector = Selector::all([Requirement::In(
        key(RACK),
        names.iter().map(|name| value(name)).collect(),
    )]);
    let hosts = names[..23].iter().map(|name| host(name).rack(name));
    let wanted = fixtures::request([fixtures::role("Worker", selector, 24)]);
    let refusal = decide(&fixtures::site(hosts), &wanted, &[])
        .refusal
        .expect("23 racks");
    let sentence = refusal.help_message(&refusal.helps[0]);
    assert!(sentence.ends_with(" in one of the racks r33, r34"), "{sentence}");
}

#[test]
fn a_sentence_counts_the_hosts_and_members_of_every_role() {
    let roles = (0..8).map(|number| {
        let selector = fixtures::flavor_is(&format!("f{number}"));
        fixtures::role(&format!("Role{number}"), selector, number + 1)
    });
    let refusal = decide(&fixtures::site([]), &fixtures::request(roles), &[])
        .refusal
        .expect("no host");
    let sentences: Vec<String> = refusal
        .helps
        .iter()
        .map(|help| refusal.help_message(help))
        .collect();
    assert!(
        sentences[0].ends_with(
            " and more eligible hosts for other roles, each in a domain of its own where the site has no host and the role no \
             member: 5 for Role4, 6 for Role5, 7 for Role6, 8 for Role7"
        ),
        "{}",
        sentences[0]
    );
    let less = (0..8).map(|number| format!("0 Role{number}"));
    let less = less.collect::<Vec<_>>().join(", ");
    assert_eq!(sentences[1..], [format!("a smaller count: {less}")]);
}

/// The refusal of three members of a role for which these racks have a host each.
fn three_wanted(requirement: Requirement, policy: Policy, racks: &[&str]) -> Refusal {
    let hosts = racks.iter().zip(["a", "b", "c"]);
    let site = fixtures::site_with(policy, hosts.map(|(rack, name)| host(name).rack(rack)));
    let wanted = fixtures::request([fixtures::role("Worker", Selector::all([requirement]), 3)]);
    decide(&site, &wanted, &[]).refusal.expect("too few racks")
}

fn in_racks(racks: &[&str]) -> Requirement {
    Requirement::In(key(RACK), racks.iter().map(|rack| value(rack)).collect())
}

#[test]
fn more_hosts_help_in_racks_that_the_selector_allows() {
    let cordoned = Policy {
        cordoned: [fixtures::domain(RACK, "r3")].into(),
        ..Policy::default()
    };
    let none = [
        three_wanted(in_racks(&["r1", "r2"]), Policy::default(), &["r1", "r2", "r2"]),
        three_wanted(in_racks(&["r1", "r2", "r3"]), cordoned, &["r1", "r2", "r2"]),
        three_wanted(Requirement::DoesNotExist(key(RACK)), Policy::default(), &[]),
    ];
    for refusal in none {
        let first = refusal.helps.first();
        assert!(matches!(first, Some(Help::WantLess(_))), "{:?}", refusal.helps);
    }
    let refusal = three_wanted(in_racks(&["r1", "r2", "r3"]), Policy::default(), &["r1", "r2"]);
    let sentence = refusal.help_message(&refusal.helps[0]);
    assert!(sentence.ends_with(" in rack r3"), "{sentence}");
}
