//! A region as a plain model: hosts, two or three clusters of one namespace, and what happens to them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use placement::life::Actor;
use placement::{
    ClusterName, Decision, Domain, FailReason, Holder, Host, HostId, LabelKey, Member, MemberState,
    NetworkId, Policy, Replaces, Request, Requirement, Role, RoleName, Selector, Site, decide,
};

use crate::event::Event;
use crate::fixtures::{self, HostExt, RACK, ROOM, cluster, flavor_is, key, role, value};
use crate::judge;
use crate::stages;

/// How large a region is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// A few hosts, of which roles want up to five: one member of a role is replaced at a time.
    Small,
    /// The same with a third cluster, of the first one's roles.
    Crowded,
    /// So many that a role may replace two members at a time, or one, as many as it wants now.
    Large,
}

impl Size {
    pub(crate) fn hosts(self) -> u64 {
        match self {
            Self::Small => 14,
            Self::Crowded => 18,
            Self::Large => 40,
        }
    }

    pub(crate) fn racks(self) -> u64 {
        match self {
            Self::Small | Self::Crowded => 6,
            Self::Large => 30,
        }
    }

    /// How many members a role may want at least, which is wanted of six numbers from there.
    pub(crate) fn least(self, role: &str) -> u32 {
        match self {
            Self::Large if role == LARGE_ROLE => 17,
            Self::Small | Self::Crowded | Self::Large => 0,
        }
    }
}

const LARGE_ROLE: &str = "Worker";

/// What a cluster wants and holds.
pub(crate) struct Tenant {
    pub(crate) name: ClusterName,
    /// Its SIPCluster exists and is not being deleted.
    pub(crate) exists: bool,
    pub(crate) roles: BTreeMap<&'static str, Wanted>,
    /// In which each new host must have an address.
    pub(crate) networks: BTreeSet<NetworkId>,
    pub(crate) members: Vec<Mem>,
}

#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) want: u32,
    pub(crate) removed: bool,
    pub(crate) key: Option<&'static str>,
    pub(crate) selects: Selects,
    pub(crate) replace_after_error: bool,
}

/// Which hosts a role selects.
#[derive(Clone, Copy)]
pub(crate) enum Selects {
    All,
    Flavor,
    /// Those in the first half of the racks.
    FirstRacks,
    /// Those in no rack, and in all racks but the first two.
    OtherRacks,
}

impl Selects {
    pub(crate) fn draw(bits: u64) -> Self {
        match bits % 8 {
            0 => Self::FirstRacks,
            1 => Self::OtherRacks,
            2..=4 => Self::Flavor,
            _ => Self::All,
        }
    }

    fn selector(self, size: Size) -> Selector {
        let racks = |first: u64| (0..first).map(|rack| value(&format!("r{rack}"))).collect();
        match self {
            Self::All => Selector::default(),
            Self::Flavor => flavor_is("w"),
            Self::FirstRacks => Selector::all([Requirement::In(key(RACK), racks(size.racks() / 2))]),
            Self::OtherRacks => Selector::all([Requirement::NotIn(key(RACK), racks(2))]),
        }
    }
}

/// A member with what the simulator itself remembers of it.
#[derive(Clone)]
pub(crate) struct Mem {
    pub(crate) record: Member,
    /// It was taken as a replacement, and is not bound yet: for this host.
    pub(crate) came_for: Option<HostId>,
    /// That one stays until this is bound.
    pub(crate) beside: bool,
    /// The cluster's labels on its host.
    pub(crate) labels: Labels,
    /// In which step it was claimed, or was begun anew as another claim.
    pub(crate) revision: u64,
    /// Released as surplus while its host had the labels, and not released since.
    pub(crate) surplus: bool,
}

/// Whether a host has the labels of the cluster whose member it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Labels {
    /// Not yet.
    Awaited,
    There,
    /// Not any more: it is being released.
    Removed,
}

impl Mem {
    /// Its host has got the cluster's labels.
    pub(crate) fn bind(&mut self) {
        self.record.state = MemberState::Bound;
        self.labels = Labels::There;
        self.came_for = None;
    }
}

pub(crate) struct World {
    pub(crate) size: Size,
    /// Counts the steps of all clusters.
    pub(crate) revision: u64,
    pub(crate) site: Site,
    pub(crate) policy: Policy,
    pub(crate) away: Vec<Host>,
    /// Hosts that vanished while they were paused.
    pub(crate) graced: Vec<HostId>,
    /// Hosts that are in error for longer than any role allows.
    pub(crate) overdue: Vec<HostId>,
    /// The member that went on under another uid of its host in this event.
    pub(crate) renamed: Option<(HostId, HostId)>,
    pub(crate) made: u32,
    pub(crate) tenants: Vec<Tenant>,
}

fn wanted(want: u32) -> Wanted {
    Wanted {
        want,
        removed: false,
        key: Some(RACK),
        selects: Selects::All,
        replace_after_error: true,
    }
}

impl World {
    pub(crate) fn new(size: Size) -> Self {
        let mut site = Site::new(Policy::default());
        for index in 0..size.hosts() {
            let namespace = if index % 7 == 3 { "lab" } else { "metal" };
            let host = fixtures::host(&format!("{namespace}/h{index:02}"));
            let host = host
                .rack(&format!("r{}", index % size.racks()))
                .label(ROOM, &format!("r{}", index % 4));
            let mut host = if index % 5 == 4 { host } else { host.flavor("w") };
            // A quarter of the hosts have an address in one network only, and some in none.
            let last = match index % 8 {
                3 => 0,
                1 | 6 => 1,
                _ => 2,
            };
            host.networks.extend((0..last).map(network));
            site.upsert(host);
        }
        let tenant = |name, roles: &[(&'static str, u32)]| Tenant {
            name: cluster(name),
            exists: true,
            roles: roles.iter().map(|(role, want)| (*role, wanted(*want))).collect(),
            networks: BTreeSet::new(),
            members: Vec::new(),
        };
        let workers = match size {
            Size::Small | Size::Crowded => 3,
            Size::Large => 20,
        };
        let mut tenants = vec![
            tenant("tenant/a", &[("ControlPlane", 1), (LARGE_ROLE, workers)]),
            tenant("tenant/b", &[("Storage", 1)]),
        ];
        if size == Size::Crowded {
            tenants.push(tenant("tenant/c", &[("ControlPlane", 3), (LARGE_ROLE, 2)]));
        }
        Self {
            size,
            revision: 0,
            site,
            policy: Policy::default(),
            away: Vec::new(),
            graced: Vec::new(),
            overdue: Vec::new(),
            renamed: None,
            made: 0,
            tenants,
        }
    }

    /// Every cluster has what it wants, and its agents have labelled it.
    pub(crate) fn placed(size: Size) -> Result<Self, String> {
        let mut world = Self::new(size);
        for index in 0..world.tenants.len() {
            world.decide(index)?;
            for member in &mut world.tenants[index].members {
                member.bind();
            }
        }
        Ok(world)
    }

    /// Lets these happen one after the other, and each cluster decide after the last of them.
    pub(crate) fn happen(&mut self, events: &[Event]) -> Result<(), String> {
        for (index, event) in events.iter().enumerate() {
            let mut before = stages::all(self);
            self.renamed = None;
            self.take_place(event);
            if let Some((old, new)) = &self.renamed {
                let name = |((tenant, host), stage)| {
                    ((tenant, if host == *old { new.clone() } else { host }), stage)
                };
                before = before.into_iter().map(name).collect();
            }
            (0..self.tenants.len()).for_each(|index| self.observe(index));
            let undecided = index > 0;
            // It may change both of a pair at once.
            let is_several = matches!(event, Event::Outage(_)) && undecided;
            if let Some(makers) = stages::makers(event).filter(|_| !is_several) {
                stages::follow(&before, &stages::all(self), makers, undecided)?;
            }
        }
        let mut seen = stages::all(self);
        for index in 0..self.tenants.len() {
            self.decide(index)?;
            let decided = stages::all(self);
            stages::follow(&seen, &decided, &[Actor::Decision], false)?;
            seen = decided;
        }
        Ok(())
    }

    pub(crate) fn request(&self, index: usize) -> Request {
        let tenant = &self.tenants[index];
        let present = tenant.roles.iter().filter(|(_, wanted)| !wanted.removed);
        let roles: Vec<Role> = present
            .map(|(name, wanted)| {
                let mut role = role(name, wanted.selects.selector(self.size), wanted.want);
                role.topology_key = wanted.key.map(key);
                role.replace_after_error = wanted.replace_after_error.then_some(Duration::ZERO);
                role
            })
            .collect();
        Request {
            cluster: tenant.name.clone(),
            networks: tenant.networks.clone(),
            ..fixtures::request(roles)
        }
    }

    /// What the scheduler tells the decision of the members.
    fn observe(&mut self, index: usize) {
        let tenant = &mut self.tenants[index];
        let replaced_after_error = |record: &Member| {
            let roles = tenant.roles.iter();
            let mut roles = roles.filter(|(name, _)| **name == record.role.as_str());
            roles.any(|(_, wanted)| wanted.replace_after_error)
        };
        for member in &mut tenant.members {
            let host = self
                .site
                .get(&member.record.host.name)
                .filter(|host| host.id == member.record.host);
            let record = &mut member.record;
            record.failed = match &host {
                None if self.graced.contains(&record.host) => None,
                None => Some(FailReason::Gone),
                Some(host) if host.marked_failed => Some(FailReason::MarkedFailed),
                Some(host) if record.state == MemberState::Claimed && host.consumer.is_some() => {
                    Some(FailReason::UsedBeforeLabelled)
                }
                Some(host) if record.state == MemberState::Claimed && host.write_refused => {
                    Some(FailReason::WriteRefused)
                }
                Some(host)
                    if !host.paused && self.overdue.contains(&host.id) && replaced_after_error(record) =>
                {
                    Some(FailReason::InError)
                }
                Some(host) => host.replace_requested.then_some(FailReason::MoveRequested),
            };
            record.requested = record.state == MemberState::Releasing
                && member.surplus
                && member.labels == Labels::There
                && host.is_some_and(|host| host.consumer.is_some());
        }
    }

    fn decide(&mut self, index: usize) -> Result<(), String> {
        self.observe(index);
        if !self.tenants[index].exists {
            return Ok(());
        }
        let request = self.request(index);
        let members: Vec<Member> = self.tenants[index]
            .members
            .iter()
            .map(|member| member.record.clone())
            .collect();
        let decision = decide(&self.site, &request, &members);
        let under_way = judge::under_way(self, index, &request);
        judge::step(self, index, &request, &decision)?;
        self.apply(index, &request, &decision);
        judge::after(self, index, &request, &under_way)?;
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
        self.revision += 1;
        let revision = self.revision;
        let tenant = &mut self.tenants[index];
        for member in &mut tenant.members {
            let record = &mut member.record;
            if let Some(keep) = decision.keep.iter().find(|keep| keep.host == record.host) {
                record.replaces.clone_from(&keep.replaces);
                if record.requested {
                    record.state = MemberState::Bound;
                    member.surplus = false;
                    member.revision = revision;
                }
            }
            if let Some(release) = decision
                .release
                .iter()
                .find(|release| release.host == record.host)
            {
                // Only a host that has its labels can be asked for.
                member.surplus =
                    release.reason == placement::ReleaseReason::Surplus && member.labels == Labels::There;
                record.state = MemberState::Releasing;
                member.came_for = None;
            }
            hold(&mut self.site, &tenant.name, record);
            let is_released = |old: &HostId| decision.release.iter().any(|release| release.host == *old);
            member.beside = member.beside && !member.came_for.as_ref().is_some_and(is_released);
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
                beside: matches!(take.replaces, Some(Replaces::Beside(_))),
                labels: Labels::Awaited,
                revision,
                record,
                surplus: false,
            });
        }
    }
}

/// One of two networks.
pub(crate) fn network(number: u64) -> NetworkId {
    let name = format!("net{}", number % 2);
    name.parse().unwrap_or_else(|_| unreachable!())
}

pub(crate) fn topology_key(request: &Request, role: &RoleName) -> Option<LabelKey> {
    request
        .roles
        .iter()
        .find(|wanted| wanted.name == *role)?
        .topology_key
        .clone()
}

pub(crate) fn hold(site: &mut Site, cluster: &ClusterName, member: &Member) {
    let holder = Holder::Cluster {
        cluster: cluster.clone(),
        role: member.role.clone(),
        state: member.state,
    };
    site.hold(&member.host, holder);
}
