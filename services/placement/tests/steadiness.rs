//! Members that are well never move, whatever happens around them.

mod fixtures;

use std::collections::{BTreeMap, BTreeSet};

use fixtures::{HostExt, ROOM, any_rack, apply, flavor_is, host, id, request, role, rooms, site_with};
use placement::{
    Decision, FailReason, Host, HostId, Member, MemberState, Policy, Replaces, Request, RoleName, Selector,
    Site, decide, reports_without_decision,
};
use proptest::prelude::*;

/// One thing that happens at a site. Numbers are taken modulo what there is.
#[derive(Debug, Clone)]
enum Event {
    Want { role: u8, count: u32 },
    Fail(u8),
    Repair(u8),
    Pause(u8),
    Relabel(u8),
    Lose(u8),
    Return(u8),
    Consume(u8),
    Move(u8),
    Narrow(u8),
    BindAndFree,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0_u8..3, 0_u32..7).prop_map(|(role, count)| Event::Want { role, count }),
        2 => any::<u8>().prop_map(Event::Fail),
        1 => any::<u8>().prop_map(Event::Repair),
        1 => any::<u8>().prop_map(Event::Pause),
        1 => any::<u8>().prop_map(Event::Relabel),
        1 => any::<u8>().prop_map(Event::Lose),
        1 => any::<u8>().prop_map(Event::Return),
        1 => any::<u8>().prop_map(Event::Consume),
        1 => any::<u8>().prop_map(Event::Move),
        1 => any::<u8>().prop_map(Event::Narrow),
        4 => Just(Event::BindAndFree),
    ]
}

struct World {
    site: Site,
    away: Vec<Host>,
    members: Vec<Member>,
    want: [u32; 3],
    selector: Selector,
}

impl World {
    fn new() -> Self {
        let hosts = (0..24).map(|index| {
            let rack = index % 8;
            host(&format!("h{index:02}"))
                .rack(&format!("r{rack}"))
                .label(ROOM, &format!("m{}", rack % 2))
                .flavor("w")
        });
        let site = site_with(rooms(Policy::default()), hosts);
        Self {
            site,
            away: Vec::new(),
            members: Vec::new(),
            want: [3, 2, 4],
            selector: Selector::default(),
        }
    }

    fn change(&mut self, which: u8, change: impl FnOnce(&mut Host)) {
        let name = id(&format!("h{:02}", which % 24)).name;
        if let Some(mut host) = self.site.get(&name) {
            change(&mut host);
            self.site.upsert(host);
        }
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Want { role, count } => self.want[usize::from(*role)] = *count,
            Event::Fail(which) => self.change(*which, |host| host.marked_failed = true),
            Event::Repair(which) => self.change(*which, |host| {
                host.marked_failed = false;
                host.paused = false;
            }),
            Event::Pause(which) => self.change(*which, |host| host.paused = true),
            Event::Relabel(which) => {
                self.change(*which, |host| {
                    *host = host.clone().rack(&format!("r{}", which % 8)).flavor("other");
                });
            }
            Event::Lose(which) => {
                let name = id(&format!("h{:02}", which % 24)).name;
                self.away.extend(self.site.get(&name));
                self.site.remove(&name);
            }
            Event::Return(which) => {
                if !self.away.is_empty() {
                    let host = self.away.remove(usize::from(*which) % self.away.len());
                    self.site.upsert(host);
                }
            }
            Event::Consume(which) => self.change(*which, |host| *host = host.clone().consumed()),
            Event::Move(which) => {
                let count = self.members.len().max(1);
                for member in self.members.iter_mut().skip(usize::from(*which) % count).take(1) {
                    member.failed = Some(FailReason::MoveRequested);
                }
            }
            Event::Narrow(which) => {
                self.selector = if which % 2 == 0 {
                    Selector::default()
                } else {
                    flavor_is("w")
                };
            }
            Event::BindAndFree => {
                self.members
                    .retain(|member| member.state != MemberState::Releasing);
                self.members
                    .iter_mut()
                    .for_each(|member| member.state = MemberState::Bound);
            }
        }
    }

    fn decide(&self) -> Decision {
        decide(&self.site, &self.request(), &self.members)
    }

    fn request(&self) -> Request {
        let names = ["ControlPlane", "Storage", "Worker"];
        let roles = names
            .iter()
            .zip(self.want)
            .map(|(name, want)| role(name, self.selector.clone(), want));
        let roles = roles.map(|role| {
            if role.name.as_str() == "Storage" {
                any_rack(role)
            } else {
                role
            }
        });
        request(roles)
    }
}

fn live(members: &[Member]) -> impl Iterator<Item = &Member> {
    members
        .iter()
        .filter(|member| member.state != MemberState::Releasing)
}

fn is_well(world: &World, member: &Member) -> bool {
    let marked = world
        .site
        .get(&member.host.name)
        .is_some_and(|host| host.marked_failed);
    member.failed.is_none() && !marked
}

/// Kept beside its replacement until that is bound.
fn is_outgoing(world: &World, member: &Member) -> bool {
    let beside = Some(Replaces::Beside(member.host.clone()));
    live(&world.members).any(|by| by.replaces == beside && is_well(world, by))
}

fn stays_steady(world: &World, decision: &Decision) -> Result<(), TestCaseError> {
    let released: BTreeSet<&HostId> = decision.release.iter().map(|release| &release.host).collect();
    let kept: BTreeMap<&HostId, &RoleName> = decision
        .keep
        .iter()
        .map(|keep| (&keep.host, &keep.role))
        .collect();
    let mut surplus: BTreeMap<&RoleName, i64> = BTreeMap::new();
    for member in live(&world.members) {
        prop_assert!(
            released.contains(&member.host) != kept.contains_key(&member.host),
            "either kept or released"
        );
        *surplus.entry(&member.role).or_default() += 1;
    }
    let wanted = ["ControlPlane", "Storage", "Worker"].into_iter().zip(world.want);
    let wanted: BTreeMap<&str, u32> = wanted.collect();
    for member in live(&world.members).filter(|member| is_well(world, member)) {
        if let Some(role) = kept.get(&member.host) {
            prop_assert_eq!(*role, &member.role, "a member keeps its role");
        } else {
            let over = surplus[&member.role] > i64::from(wanted[member.role.as_str()]);
            prop_assert!(over, "{} is well and was moved", member.host);
        }
    }
    // Never two new members of a role in a domain, and none beside a member that stays.
    let mut domains = BTreeSet::new();
    for take in decision.take.iter().filter(|take| take.domain.is_some()) {
        prop_assert!(domains.insert((&take.role, &take.domain)), "two in one domain");
        let beside = |keep: &&placement::Keep| keep.role == take.role && keep.domain == take.domain;
        let beside: Vec<_> = decision
            .keep
            .iter()
            .filter(beside)
            .map(|keep| Some(keep.host.clone()))
            .collect();
        prop_assert!(
            beside
                .iter()
                .all(|host| host.as_ref() == take.replaces.as_ref().map(Replaces::host)),
            "beside a member that stays"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(fixtures::runs::cases(1_500))]

    #[test]
    fn over_any_history_no_usable_member_moves(events in prop::collection::vec(event(), 1..40)) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
            let decision = world.decide();
            stays_steady(&world, &decision)?;
            world.members = apply(&decision, &world.request(), &world.members, false);
            // Nothing has happened since: nothing more is decided, except what waits for nothing but another decision.
            let again = world.decide();
            prop_assert!(again.take.is_empty(), "a second decision takes {:?} after {:?}", again.take, decision);
            prop_assert!(again.release.is_empty(), "a second decision releases {:?} after {:?}", again.release, decision);
            // Where nobody has failed, and only there, that is known without a decision.
            let failed = live(&world.members).any(|member| !is_well(&world, member) && !is_outgoing(&world, member));
            let said = reports_without_decision(&world.site, &world.request(), &world.members);
            let nothing = (again.refusal.is_none() && !failed).then_some(again.reports);
            prop_assert_eq!(said, nothing);
        }
    }
}
