//! What events do to hosts, specs and records.

use std::collections::{BTreeMap, BTreeSet};

use placement::{Host, HostId, MemberState, NetworkId, OperationalStatus, Replaces, Uid};

use crate::event::Event;
use crate::fixtures::{self, HostExt, ROOM, domain};
use crate::world::{Labels, Mem, Selects, Tenant, Wanted, World, hold, network};

fn pick<T>(list: &[T], which: u64) -> Option<usize> {
    (!list.is_empty()).then(|| usize::try_from(which).unwrap_or(0) % list.len())
}

/// Takes a network out of these, or adds it.
fn toggle(networks: &mut BTreeSet<NetworkId>, network: NetworkId) {
    if !networks.remove(&network) {
        networks.insert(network);
    }
}

impl World {
    fn change(&mut self, which: u64, change: impl FnOnce(&mut Host)) {
        let ids: Vec<HostId> = self.site.ids().cloned().collect();
        let Some(host) = ids.get(usize::try_from(which).unwrap_or(0) % ids.len().max(1)) else {
            return;
        };
        if let Some(mut host) = self.site.get(&host.name) {
            change(&mut host);
            self.site.upsert(host);
        }
    }

    pub(crate) fn take_place(&mut self, event: &Event) {
        match event {
            Event::Fail(which) => self.change(*which, |host| host.marked_failed = true),
            Event::Outage(which) => {
                for next in 0..3 {
                    self.change(which + next, |host| host.marked_failed = true);
                }
            }
            Event::Move(which) => self.change(*which, |host| host.replace_requested = true),
            Event::Clear(which) => self.change(*which, |host| {
                host.marked_failed = false;
                host.replace_requested = false;
                host.paused = false;
                host.write_refused = false;
                host.cordoned = false;
                host.operational = OperationalStatus::Ok;
            }),
            Event::Pause(which) => self.change(*which, |host| host.paused = true),
            Event::Refuse(which) => self.change(*which, |host| host.write_refused = true),
            Event::Cordon(which) => self.change(*which, |host| host.cordoned = true),
            Event::Consume(which) => self.change(*which, |host| *host = host.clone().consumed()),
            Event::LetGo(which) => self.change(*which, |host| host.consumer = None),
            Event::Vanish(which) => {
                let ids: Vec<HostId> = self.site.ids().cloned().collect();
                let Some(index) = pick(&ids, *which) else {
                    return;
                };
                let Some(host) = self.site.get(&ids[index].name) else {
                    return;
                };
                if host.paused {
                    self.graced.push(host.id.clone());
                }
                self.site.remove(&host.id.name);
                self.away.push(host);
            }
            Event::Relabel(which, to) => self.relabel(*which, *to),
            Event::Return(_) | Event::MadeAgain(_) | Event::Restored(_) => self.come_back(event),
            Event::InError(which) => self.change(*which, |host| host.operational = OperationalStatus::Error),
            Event::GraceOver => {
                self.graced.clear();
                let in_error = |host: &Host| host.operational == OperationalStatus::Error;
                self.overdue = self.site.hosts().filter(in_error).map(|host| host.id).collect();
            }
            Event::Bind(which) => self.bind(*which),
            Event::Unlabel(which) => self.unlabel(*which),
            Event::LateClaim(which) => self.claim_late(*which),
            Event::Free(which) => self.free(*which),
            Event::Want(which, count) => {
                let size = self.size;
                self.role(*which, |name, role| {
                    role.want = size.least(name) + u32::try_from(count % 6).unwrap_or(0);
                });
            }
            Event::RemoveRole(which) => self.role(*which, |_, role| role.removed = !role.removed),
            Event::TopologyKey(which) => self.role(*which, |_, role| {
                role.key =
                    [Some(fixtures::RACK), Some(ROOM), None][usize::try_from(which / 8 % 3).unwrap_or(0)];
            }),
            Event::Select(which, what) => self.role(*which, |_, role| role.selects = Selects::draw(*what)),
            Event::Networks(which) => {
                if let Some(index) = pick(&self.tenants, *which) {
                    toggle(&mut self.tenants[index].networks, network(which / 8));
                }
            }
            Event::Address(which, to) => self.change(*which, |host| toggle(&mut host.networks, network(*to))),
            Event::Quota(_) | Event::CordonDomain(_) | Event::PreferNamespace => self.edit_policy(event),
            Event::ReplaceAfterError(which) => {
                self.role(*which, |_, role| {
                    role.replace_after_error = !role.replace_after_error;
                });
            }
            Event::LoseLedger => self.lose_ledger(),
            Event::Delete(which) => self.delete(*which),
            Event::MadeAgainCluster(which) => {
                if let Some(index) = pick(&self.tenants, *which) {
                    self.tenants[index].exists = true;
                }
            }
        }
        // An error that ends counts from its next beginning.
        let site = &self.site;
        let is_in_error = |id: &HostId| {
            let host = site.get(&id.name).filter(|host| host.id == *id);
            host.is_some_and(|host| host.operational == OperationalStatus::Error)
        };
        self.overdue.retain(is_in_error);
    }

    /// Somebody changes the policy of the site.
    fn edit_policy(&mut self, event: &Event) {
        match event {
            Event::Quota(count) => {
                let tenant = "tenant".parse().unwrap_or_else(|_| unreachable!());
                let quota = (tenant, u32::try_from(3 + count % 8).unwrap_or(0));
                self.policy.quotas = if count % 4 == 0 {
                    BTreeMap::new()
                } else {
                    [quota].into()
                };
            }
            Event::CordonDomain(which) => {
                let rack = domain(fixtures::RACK, &format!("r{}", which % self.size.racks()));
                self.policy.cordoned = if which % 2 == 0 { [rack].into() } else { [].into() };
            }
            Event::PreferNamespace => {
                let lab = "lab".parse().unwrap_or_else(|_| unreachable!());
                self.policy.namespace_preference = vec![lab];
                self.policy.hierarchy = vec![fixtures::key(ROOM)];
            }
            _ => return,
        }
        self.site.set_policy(self.policy.clone());
    }

    fn relabel(&mut self, which: u64, to: u64) {
        let (racks, value) = (self.size.racks(), to / 8);
        self.change(which, |host| {
            let (key, value) = match to % 8 {
                0 => {
                    host.labels.remove(&fixtures::key(fixtures::RACK));
                    return;
                }
                1 | 2 => (ROOM, value % 4),
                _ => (fixtures::RACK, value % racks),
            };
            *host = host.clone().label(key, &format!("r{value}"));
        });
    }

    /// An agent labels a host, none that it does not see or cannot write, or that somebody uses.
    fn bind(&mut self, which: u64) {
        let site = &self.site;
        let claimed = self.tenants.iter_mut().flat_map(|tenant| &mut tenant.members);
        let mut claimed: Vec<&mut Mem> = claimed
            .filter(|member| member.record.state == MemberState::Claimed)
            .filter(|member| {
                let host = site.get(&member.record.host.name);
                host.is_some_and(|host| {
                    host.id == member.record.host && host.consumer.is_none() && !host.write_refused
                })
            })
            .collect();
        if let Some(index) = pick(&claimed, which) {
            claimed[index].bind();
        }
    }

    /// A host that had vanished is there again: the same object, another one, or another one with what the first had.
    fn come_back(&mut self, event: &Event) {
        let (Event::Return(which) | Event::MadeAgain(which) | Event::Restored(which)) = event else {
            return;
        };
        let Some(index) = pick(&self.away, *which) else {
            return;
        };
        let mut host = self.away.remove(index);
        self.graced.retain(|id| *id != host.id);
        let before = host.id.clone();
        if !matches!(event, Event::Return(_)) {
            self.made += 1;
            host.id.uid = Uid::new(format!("again-{}", self.made)).unwrap_or(host.id.uid);
        }
        if matches!(event, Event::MadeAgain(_)) {
            host.consumer = None;
        }
        if matches!(event, Event::Restored(_)) {
            self.follow(&before, &host.id);
        }
        self.site.upsert(host);
    }

    /// The member whose labels a host shows under its new uid is the same member.
    fn follow(&mut self, before: &HostId, now: &HostId) {
        self.revision += 1;
        for tenant in &mut self.tenants {
            let labelled = |mem: &Mem| mem.labels == Labels::There && mem.record.host == *before;
            if !tenant.members.iter().any(labelled) {
                continue;
            }
            for mem in &mut tenant.members {
                if mem.record.host == *before {
                    mem.record.host = now.clone();
                    mem.revision = self.revision;
                    self.site.unhold(before);
                    hold(&mut self.site, &tenant.name, &mem.record);
                }
                match &mut mem.record.replaces {
                    // It is no earlier claim than the one that goes on.
                    Some(Replaces::Beside(old)) if *old == *before => {
                        old.clone_from(now);
                        mem.revision = self.revision;
                    }
                    Some(Replaces::Alone(old)) if *old == *before => old.clone_from(now),
                    Some(Replaces::Beside(_) | Replaces::Alone(_)) | None => {}
                }
                if mem.came_for.as_ref() == Some(before) {
                    mem.came_for = Some(now.clone());
                }
            }
            self.renamed = Some((before.clone(), now.clone()));
        }
    }

    /// Nobody knows any more whether hosts that are away were paused.
    fn lose_ledger(&mut self) {
        let members = self.tenants.iter().flat_map(|tenant| &tenant.members);
        let hosts = members.map(|member| &member.record.host);
        let away = hosts.filter(|id| self.site.get(&id.name).is_none_or(|host| host.id != **id));
        self.graced.extend(away.cloned());
        self.tenants.iter_mut().for_each(rebuild);
    }

    /// Everything that a cluster has is released for good, also what was surplus and in use.
    fn delete(&mut self, which: u64) {
        let Some(index) = pick(&self.tenants, which) else {
            return;
        };
        let tenant = &mut self.tenants[index];
        tenant.exists = false;
        for mem in &mut tenant.members {
            mem.surplus = false;
        }
        let stays = |mem: &&mut Mem| mem.record.state != MemberState::Releasing;
        for mem in tenant.members.iter_mut().filter(stays) {
            mem.record.state = MemberState::Releasing;
            mem.came_for = None;
            hold(&mut self.site, &tenant.name, &mem.record);
        }
    }

    fn role(&mut self, which: u64, change: impl FnOnce(&str, &mut Wanted)) {
        let roles: Vec<(&&str, &mut Wanted)> = self
            .tenants
            .iter_mut()
            .flat_map(|tenant| &mut tenant.roles)
            .collect();
        let count = roles.len();
        if let Some((name, role)) = roles.into_iter().nth(usize::try_from(which).unwrap_or(0) % count) {
            change(name, role);
        }
    }

    /// The members that are releasing, by tenant and place, for which this holds; a host is None where the inventory does not have it.
    fn releasing(&self, holds: impl Fn(&Mem, Option<&Host>) -> bool) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for (index, tenant) in self.tenants.iter().enumerate() {
            for (place, mem) in tenant.members.iter().enumerate() {
                let host = self.site.get(&mem.record.host.name);
                let host = host.filter(|host| host.id == mem.record.host);
                if mem.record.state == MemberState::Releasing && holds(mem, host.as_ref()) {
                    found.push((index, place));
                }
            }
        }
        found
    }

    fn unlabel(&mut self, which: u64) {
        let unused = self.releasing(|mem, host| {
            mem.labels == Labels::There && host.is_some_and(|host| host.consumer.is_none())
        });
        if let Some(index) = pick(&unused, which) {
            let (tenant, place) = unused[index];
            self.tenants[tenant].members[place].labels = Labels::Removed;
        }
    }

    fn claim_late(&mut self, which: u64) {
        let unlabelled = self.releasing(|mem, host| mem.labels == Labels::Removed && host.is_some());
        let Some(index) = pick(&unlabelled, which) else {
            return;
        };
        let (tenant, place) = unlabelled[index];
        let mem = &mut self.tenants[tenant].members[place];
        mem.labels = Labels::There;
        if let Some(host) = self.site.get(&mem.record.host.name) {
            self.site.upsert(host.consumed());
        }
    }

    fn free(&mut self, which: u64) {
        let free = self.releasing(|_, host| host.is_none_or(|host| host.consumer.is_none()));
        if let Some(index) = pick(&free, which) {
            let (tenant, place) = free[index];
            let mem = self.tenants[tenant].members.remove(place);
            self.site.unhold(&mem.record.host);
        }
    }
}

/// What statuses say of replacements: beside a member that stays and is no later claim, or of one that was released.
fn rebuild(tenant: &mut Tenant) {
    let stay = tenant.members.iter();
    let stay = stay.filter(|member| member.record.state != MemberState::Releasing);
    let stay: Vec<(HostId, u64)> = stay
        .map(|member| (member.record.host.clone(), member.revision))
        .collect();
    for member in &mut tenant.members {
        if let Some(old) = member.record.replaces.as_ref().map(|old| old.host().clone()) {
            let is_beside = stay
                .iter()
                .any(|(host, revision)| *host == old && *revision <= member.revision);
            member.record.replaces = Some(if is_beside {
                Replaces::Beside(old)
            } else {
                Replaces::Alone(old)
            });
        }
    }
}
