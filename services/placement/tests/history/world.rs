//! A region as a plain model: hosts, two clusters of one namespace, and what happens to them.

use std::collections::BTreeMap;

use placement::life::By;
use placement::{
    ClusterName, Decision, Domain, FailReason, Holder, Host, HostId, LabelKey, Member, MemberState, Policy,
    Replaces, Request, Role, RoleName, Selector, Site, Uid, decide,
};

use crate::event::Event;
use crate::fixtures::{self, HostExt, ROOM, cluster, domain, flavor_is, key, role};
use crate::judge;
use crate::stages;

const HOSTS: u64 = 14;

/// What a cluster wants and holds.
pub(crate) struct Tenant {
    pub(crate) name: ClusterName,
    pub(crate) roles: BTreeMap<&'static str, Wanted>,
    pub(crate) members: Vec<Mem>,
}

#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) want: u32,
    removed: bool,
    key: Option<&'static str>,
    narrow: bool,
}

/// A member with what the simulator itself remembers of it.
#[derive(Clone)]
pub(crate) struct Mem {
    pub(crate) record: Member,
    /// It was taken as a replacement, and is not bound yet: for this host.
    pub(crate) came_for: Option<HostId>,
    /// Released as surplus while somebody used it, and not given back since.
    surplus: bool,
}

pub(crate) struct World {
    pub(crate) site: Site,
    policy: Policy,
    away: Vec<Host>,
    /// Hosts that vanished while they were paused.
    graced: Vec<HostId>,
    made: u32,
    pub(crate) tenants: [Tenant; 2],
}

fn wanted(want: u32) -> Wanted {
    Wanted {
        want,
        removed: false,
        key: Some(fixtures::RACK),
        narrow: false,
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let mut site = Site::new(Policy::default());
        for index in 0..HOSTS {
            let namespace = if index % 7 == 3 { "lab" } else { "metal" };
            let host = fixtures::host(&format!("{namespace}/h{index:02}"));
            let host = host
                .rack(&format!("r{}", index % 6))
                .label(ROOM, &format!("r{}", index % 4));
            site.upsert(if index % 5 == 4 { host } else { host.flavor("w") });
        }
        let tenant = |name, roles: &[(&'static str, u32)]| Tenant {
            name: cluster(name),
            roles: roles.iter().map(|(role, want)| (*role, wanted(*want))).collect(),
            members: Vec::new(),
        };
        Self {
            site,
            policy: Policy::default(),
            away: Vec::new(),
            graced: Vec::new(),
            made: 0,
            tenants: [
                tenant("tenant/a", &[("ControlPlane", 1), ("Worker", 3)]),
                tenant("tenant/b", &[("Worker", 1)]),
            ],
        }
    }

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

    /// Lets it happen, and each cluster decide after it.
    pub(crate) fn happen(&mut self, event: &Event) -> Result<(), String> {
        let before = stages::all(self);
        self.take_place(event);
        (0..self.tenants.len()).for_each(|index| self.observe(index));
        let mut seen = stages::all(self);
        if let Some(makers) = stages::makers(event) {
            stages::follow(&before, &seen, makers)?;
        }
        for index in 0..self.tenants.len() {
            self.decide(index)?;
            let decided = stages::all(self);
            stages::follow(&seen, &decided, &[By::Decision])?;
            seen = decided;
        }
        Ok(())
    }

    fn pick<T>(list: &[T], which: u64) -> Option<usize> {
        (!list.is_empty()).then(|| usize::try_from(which).unwrap_or(0) % list.len())
    }

    fn take_place(&mut self, event: &Event) {
        match event {
            Event::Fail(which) => self.change(*which, |host| host.marked_failed = true),
            Event::Move(which) => self.change(*which, |host| host.replace_requested = true),
            Event::Clear(which) => self.change(*which, |host| {
                host.marked_failed = false;
                host.replace_requested = false;
                host.paused = false;
                host.cordoned = false;
            }),
            Event::Pause(which) => self.change(*which, |host| host.paused = true),
            Event::Cordon(which) => self.change(*which, |host| host.cordoned = true),
            Event::Consume(which) => self.change(*which, |host| *host = host.clone().consumed()),
            Event::LetGo(which) => self.change(*which, |host| host.consumer = None),
            Event::Vanish(which) => {
                let ids: Vec<HostId> = self.site.ids().cloned().collect();
                let Some(index) = Self::pick(&ids, *which) else {
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
            Event::Return(which) | Event::MadeAgain(which) => {
                let Some(index) = Self::pick(&self.away, *which) else {
                    return;
                };
                let mut host = self.away.remove(index);
                self.graced.retain(|id| *id != host.id);
                if matches!(event, Event::MadeAgain(_)) {
                    self.made += 1;
                    host.consumer = None;
                    host.id.uid = Uid::new(format!("again-{}", self.made)).unwrap_or(host.id.uid);
                }
                self.site.upsert(host);
            }
            Event::GraceOver => self.graced.clear(),
            Event::Bind(which) => {
                let site = &self.site;
                let claimed = self.tenants.iter_mut().flat_map(|tenant| &mut tenant.members);
                // An agent labels no host that it does not see or that somebody uses.
                let mut claimed: Vec<&mut Mem> = claimed
                    .filter(|member| member.record.state == MemberState::Claimed)
                    .filter(|member| {
                        let host = site.get(&member.record.host.name);
                        host.is_some_and(|host| host.id == member.record.host && host.consumer.is_none())
                    })
                    .collect();
                if let Some(index) = Self::pick(&claimed, *which) {
                    claimed[index].record.state = MemberState::Bound;
                    claimed[index].came_for = None;
                }
            }
            Event::Free(which) => self.free(*which),
            Event::Want(which, count) => self.role(*which, |role| {
                role.want = u32::try_from(count % 6).unwrap_or(0);
            }),
            Event::RemoveRole(which) => self.role(*which, |role| role.removed = !role.removed),
            Event::TopologyKey(which) => self.role(*which, |role| {
                role.key =
                    [Some(fixtures::RACK), Some(ROOM), None][usize::try_from(which / 8 % 3).unwrap_or(0)];
            }),
            Event::Narrow(which) => self.role(*which, |role| role.narrow = !role.narrow),
            Event::Quota(count) => {
                let quota = (
                    "tenant".parse().unwrap_or_else(|_| unreachable!()),
                    u32::try_from(3 + count % 8).unwrap_or(0),
                );
                self.policy.quotas = if count % 4 == 0 {
                    BTreeMap::new()
                } else {
                    [quota].into()
                };
                self.site.set_policy(self.policy.clone());
            }
            Event::CordonDomain(which) => {
                let rack = domain(fixtures::RACK, &format!("r{}", which % 6));
                self.policy.cordoned = if which % 2 == 0 { [rack].into() } else { [].into() };
                self.site.set_policy(self.policy.clone());
            }
            Event::PreferNamespace => {
                let lab = "lab".parse().unwrap_or_else(|_| unreachable!());
                self.policy.namespace_preference = vec![lab];
                self.site.set_policy(self.policy.clone());
            }
            Event::LoseLedger => self.tenants.iter_mut().for_each(rebuild),
            Event::MadeAgainCluster => {}
        }
    }

    fn role(&mut self, which: u64, change: impl FnOnce(&mut Wanted)) {
        let roles: Vec<&mut Wanted> = self
            .tenants
            .iter_mut()
            .flat_map(|tenant| tenant.roles.values_mut())
            .collect();
        let count = roles.len();
        if let Some(role) = roles.into_iter().nth(usize::try_from(which).unwrap_or(0) % count) {
            change(role);
        }
    }

    fn free(&mut self, which: u64) {
        let site = &self.site;
        let mut free: Vec<(usize, HostId)> = Vec::new();
        for (index, tenant) in self.tenants.iter().enumerate() {
            let releasing = tenant
                .members
                .iter()
                .filter(|member| member.record.state == MemberState::Releasing);
            let unused = releasing.filter(|member| {
                let host = site
                    .get(&member.record.host.name)
                    .filter(|host| host.id == member.record.host);
                host.is_none_or(|host| host.consumer.is_none())
            });
            free.extend(unused.map(|member| (index, member.record.host.clone())));
        }
        if let Some(index) = Self::pick(&free, which) {
            let (tenant, host) = &free[index];
            self.tenants[*tenant]
                .members
                .retain(|member| member.record.host != *host);
            self.site.unhold(host);
        }
    }

    pub(crate) fn request(&self, index: usize) -> Request {
        let tenant = &self.tenants[index];
        let present = tenant.roles.iter().filter(|(_, wanted)| !wanted.removed);
        let roles: Vec<Role> = present
            .map(|(name, wanted)| {
                let selector = if wanted.narrow {
                    flavor_is("w")
                } else {
                    Selector::default()
                };
                let mut role = role(name, selector, wanted.want);
                role.topology_key = wanted.key.map(key);
                role
            })
            .collect();
        Request {
            cluster: tenant.name.clone(),
            ..fixtures::request(roles)
        }
    }

    /// What the scheduler tells the decision of the members.
    fn observe(&mut self, index: usize) {
        let tenant = &mut self.tenants[index];
        for member in &mut tenant.members {
            let host = self
                .site
                .get(&member.record.host.name)
                .filter(|host| host.id == member.record.host);
            let record = &mut member.record;
            record.failed = match &host {
                None if self.graced.contains(&record.host) => None,
                None => Some(FailReason::Gone),
                Some(host) if host.marked_failed => Some(FailReason::Marked),
                Some(host) if record.state == MemberState::Claimed && host.consumer.is_some() => {
                    Some(FailReason::Taken)
                }
                Some(host) => host.replace_requested.then_some(FailReason::ReplaceRequested),
            };
            record.requested = record.state == MemberState::Releasing
                && member.surplus
                && host.is_some_and(|host| host.consumer.is_some());
        }
    }

    /// A member that was claimed in place of one that stays replaces nobody.
    fn forget_replacements(&mut self, index: usize) {
        let world = &*self;
        let tenant = &world.tenants[index];
        let ordinary: Vec<HostId> = tenant
            .members
            .iter()
            .filter(|mem| stages::replaces_nobody(world, tenant, mem))
            .map(|mem| mem.record.host.clone())
            .collect();
        for mem in &mut self.tenants[index].members {
            if ordinary.contains(&mem.record.host) {
                mem.came_for = None;
            }
        }
    }

    fn decide(&mut self, index: usize) -> Result<(), String> {
        self.observe(index);
        self.forget_replacements(index);
        let request = self.request(index);
        let members: Vec<Member> = self.tenants[index]
            .members
            .iter()
            .map(|member| member.record.clone())
            .collect();
        let decision = decide(&self.site, &request, &members);
        judge::step(self, index, &request, &decision)?;
        self.apply(index, &request, &decision);
        judge::after(self, index, &request)?;
        self.observe(index);
        let members: Vec<Member> = self.tenants[index]
            .members
            .iter()
            .map(|member| member.record.clone())
            .collect();
        let again = decide(&self.site, &request, &members);
        let asked = |host: &HostId| {
            members
                .iter()
                .any(|member| member.host == *host && member.requested)
        };
        let more = again.release.iter().find(|release| !asked(&release.host));
        if !again.take.is_empty() || more.is_some() {
            return Err(format!(
                "a second decision changes more: {again:#?}\nafter {decision:#?}"
            ));
        }
        Ok(())
    }

    fn apply(&mut self, index: usize, request: &Request, decision: &Decision) {
        let tenant = &mut self.tenants[index];
        for member in &mut tenant.members {
            let record = &mut member.record;
            if let Some(keep) = decision.keep.iter().find(|keep| keep.host == record.host) {
                record.replaces.clone_from(&keep.replaces);
                if record.requested {
                    record.state = MemberState::Bound;
                    member.surplus = false;
                }
            }
            if let Some(release) = decision
                .release
                .iter()
                .find(|release| release.host == record.host)
            {
                // Only a host that has its labels can be asked for; a claimed one has none.
                member.surplus = release.reason == placement::ReleaseReason::Surplus
                    && record.state != MemberState::Claimed;
                record.state = MemberState::Releasing;
                member.came_for = None;
            }
            hold(&mut self.site, &tenant.name, record);
        }
        for take in &decision.take {
            let key = topology_key(request, &take.role);
            let record = Member {
                host: take.host.clone(),
                role: take.role.clone(),
                state: MemberState::Claimed,
                requested: false,
                domain: key
                    .zip(take.domain.clone())
                    .map(|(key, value)| Domain { key, value }),
                failed: None,
                replaces: take.replaces.clone(),
            };
            hold(&mut self.site, &tenant.name, &record);
            tenant.members.push(Mem {
                came_for: take.replaces.as_ref().map(|old| old.host().clone()),
                record,
                surplus: false,
            });
        }
    }
}

pub(crate) fn topology_key(request: &Request, role: &RoleName) -> Option<LabelKey> {
    request
        .roles
        .iter()
        .find(|wanted| wanted.name == *role)?
        .topology_key
        .clone()
}

fn hold(site: &mut Site, cluster: &ClusterName, member: &Member) {
    let holder = Holder::Cluster {
        cluster: cluster.clone(),
        role: member.role.clone(),
        state: member.state,
    };
    site.hold(&member.host, holder);
}

/// What statuses say of replacements: beside an older member that stays, or of one that was given back.
fn rebuild(tenant: &mut Tenant) {
    let mut older: Vec<HostId> = Vec::new();
    for member in &mut tenant.members {
        if let Some(old) = member.record.replaces.as_ref().map(|old| old.host().clone()) {
            member.record.replaces = Some(if older.contains(&old) {
                Replaces::Beside(old)
            } else {
                Replaces::Alone(old)
            });
        }
        if member.record.state != MemberState::Releasing {
            older.push(member.record.host.clone());
        }
    }
}
