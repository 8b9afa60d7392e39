//! The rules of the decision once more, as plainly as can be: every placement is tried.
#![allow(
    clippy::expect_used,
    reason = "the oracle is only used on cases that it can hold"
)]

use std::collections::{BTreeMap, BTreeSet};

use placement::{
    Decision, FailReason, Host, HostName, LabelValue, Member, MemberState, Release, ReleaseReason, Role,
    SipLabels,
};

use crate::fixtures::random::World;

/// One role as the oracle sees it.
pub(crate) struct Role1<'a> {
    pub(crate) role: &'a Role,
    pub(crate) present: Vec<&'a Member>,
    pub(crate) failed: Vec<&'a Member>,
    pub(crate) used: BTreeSet<LabelValue>,
    pub(crate) growth: usize,
    pub(crate) replaceable: usize,
}

impl<'a> Role1<'a> {
    /// The same role where of its failed members this one is replaced, and no domain is free that only others are in.
    fn replacing_only(&self, one: Option<&'a Member>) -> Self {
        let others = self.failed.iter().filter(|other| Some(**other) != one);
        let own = one.and_then(|one| domain(self.role, one));
        let used = others
            .filter_map(|other| domain(self.role, other))
            .filter(|domain| Some(domain) != own.as_ref());
        Self {
            role: self.role,
            present: self.present.clone(),
            failed: one.into_iter().collect(),
            used: self.used.iter().cloned().chain(used).collect(),
            growth: 0,
            replaceable: 1,
        }
    }

    pub(crate) fn failed_domains(&self) -> BTreeSet<LabelValue> {
        let domains = self.failed.iter().filter_map(|member| domain(self.role, member));
        domains.filter(|domain| !self.used.contains(domain)).collect()
    }
}

fn domain(role: &Role, member: &Member) -> Option<LabelValue> {
    role.topology_key.as_ref()?;
    member.domain.as_ref().map(|domain| domain.value.clone())
}

/// The accounts after the surplus that the decision released; `Err` when that is not what the rules say.
pub(crate) fn accounts<'a>(world: &'a World, decision: &Decision) -> Result<Vec<Role1<'a>>, String> {
    let mut roles: Vec<&Role> = world.request.roles.iter().collect();
    roles.sort_by(|a, b| a.name.cmp(&b.name));
    roles
        .into_iter()
        .map(|role| account(world, decision, role))
        .collect()
}

fn account<'a>(world: &'a World, decision: &Decision, role: &'a Role) -> Result<Role1<'a>, String> {
    let of_role = || world.members.iter().filter(|member| member.role == role.name);
    let live: Vec<&Member> = of_role()
        .filter(|member| member.state != MemberState::Releasing)
        .collect();
    let surplus = live.len().saturating_sub(role.want as usize);
    let is_victim =
        |release: &&Release| release.role == role.name && release.reason == ReleaseReason::Surplus;
    let victims: BTreeSet<&HostName> = decision
        .release
        .iter()
        .filter(is_victim)
        .map(|release| &release.host.name)
        .collect();
    if victims.len() != surplus {
        return Err(format!("{}: surplus {surplus}, released {victims:?}", role.name));
    }
    let consumed = |member: &Member| {
        world
            .hosts
            .iter()
            .any(|h| h.id == member.host && h.consumer.is_some())
    };
    let class = |member: &Member| (member.failed.is_none(), consumed(member));
    let (gone, stay): (Vec<&Member>, Vec<&Member>) =
        live.into_iter().partition(|m| victims.contains(&m.host.name));
    let last = gone.iter().map(|member| class(member)).max();
    if last.is_some() && stay.iter().any(|member| Some(class(member)) < last) {
        return Err(format!("{}: wrong victims {victims:?}", role.name));
    }
    let growth = (role.want as usize).saturating_sub(stay.len());
    let (failed, present): (Vec<&Member>, Vec<&Member>) =
        stay.into_iter().partition(|member| member.failed.is_some());
    let releasing = of_role().filter(|member| member.state == MemberState::Releasing);
    let used = present
        .iter()
        .copied()
        .chain(gone)
        .chain(releasing)
        .filter_map(|member| domain(role, member))
        .collect();
    // Wants are below 20, so the limit is 1 for every role.
    Ok(Role1 {
        role,
        replaceable: failed.len().min(1),
        present,
        failed,
        used,
        growth,
    })
}

/// Whether a host can be claimed for a role, by the rules for one host.
pub(crate) fn is_free(world: &World, role: &Role, host: &Host) -> bool {
    let labelled = role
        .topology_key
        .as_ref()
        .is_none_or(|key| host.labels.get(key).is_some_and(|v| !v.is_empty()));
    role.selector.matches(&host.labels)
        && labelled
        && !host.paused
        && !host.cordoned
        && world
            .policy
            .cordoned
            .iter()
            .all(|domain| host.labels.get(&domain.key) != Some(&domain.value))
        && host.consumer.is_none()
        && host.sip_labels == SipLabels::None
        && !world.held.contains(&host.id)
        && !world.members.iter().any(|member| member.host == host.id)
}

/// What a placement costs: hosts outside the cluster's namespaces, spread over rooms, other roles that want its hosts, uninspected, impaired.
pub(crate) type Cost = (u32, u64, u32, u32, u32);

/// The namespaces of the members that stay.
pub(crate) fn home<'a>(roles: &'a [Role1<'a>]) -> BTreeSet<&'a str> {
    let staying = roles
        .iter()
        .flat_map(|role| role.present.iter().chain(&role.failed));
    staying
        .map(|member| member.host.name.namespace().as_str())
        .collect()
}

/// The best placement of so many hosts per role, with the replacements among them; hosts per role, sorted.
pub(crate) struct Search<'a> {
    pub(crate) world: &'a World,
    pub(crate) roles: &'a [Role1<'a>],
    pub(crate) namespace: Option<&'a str>,
}

impl<'a> Search<'a> {
    /// `replaced` may use failed members' domains, at most so many of them per role.
    pub(crate) fn best(&self, counts: &[usize], replaced: &[usize]) -> Option<(Cost, Vec<Vec<&Host>>)> {
        let mut hosts: Vec<&Host> = self.world.hosts.iter().collect();
        hosts.retain(|host| {
            self.namespace
                .is_none_or(|ns| host.id.name.namespace().as_str() == ns)
        });
        hosts.sort_by(|a, b| a.id.cmp(&b.id));
        let mut chosen = vec![Vec::new(); self.roles.len()];
        let mut best = None;
        self.walk(&hosts, counts, replaced, &mut chosen, &mut best);
        best
    }

    fn walk<'h>(
        &self,
        hosts: &[&'h Host],
        counts: &[usize],
        replaced: &[usize],
        chosen: &mut Vec<Vec<&'h Host>>,
        best: &mut Option<(Cost, Vec<Vec<&'h Host>>)>,
    ) {
        let missing: usize = counts
            .iter()
            .zip(chosen.iter())
            .map(|(count, hosts)| count - hosts.len())
            .sum();
        if missing == 0 {
            let cost = self.cost(chosen);
            if best
                .as_ref()
                .is_none_or(|(least, names)| (cost, &names_of(chosen)) < (*least, &names_of(names)))
            {
                *best = Some((cost, chosen.clone()));
            }
            return;
        }
        let Some((host, rest)) = hosts.split_first() else {
            return;
        };
        if missing > hosts.len() {
            return;
        }
        for role in 0..self.roles.len() {
            if chosen[role].len() < counts[role] && self.fits(role, host, &chosen[role], replaced[role]) {
                chosen[role].push(host);
                self.walk(rest, counts, replaced, chosen, best);
                chosen[role].pop();
            }
        }
        self.walk(rest, counts, replaced, chosen, best);
    }

    fn fits(&self, role: usize, host: &Host, chosen: &[&Host], replaced: usize) -> bool {
        let Role1 { role, used, .. } = &self.roles[role];
        if !is_free(self.world, role, host) {
            return false;
        }
        let Some(key) = &role.topology_key else {
            return true;
        };
        let value = &host.labels[key];
        let failed = self
            .roles
            .iter()
            .find(|r| r.role.name == role.name)
            .expect("itself")
            .failed_domains();
        let in_failed = chosen
            .iter()
            .filter(|host| failed.contains(&host.labels[key]))
            .count();
        !used.contains(value)
            && chosen.iter().all(|other| other.labels[key] != *value)
            && (!failed.contains(value) || in_failed < replaced)
    }

    /// Cost of hosts per role.
    pub(crate) fn cost(&self, chosen: &[Vec<&Host>]) -> Cost {
        let mut cost: Cost = (0, 0, 0, 0, 0);
        let home = home(self.roles);
        for (role, hosts) in self.roles.iter().zip(chosen) {
            let mut rooms: BTreeMap<LabelValue, u64> = BTreeMap::new();
            let key = &self.world.policy.hierarchy[0];
            let present = role
                .present
                .iter()
                .filter_map(|m| self.world.hosts.iter().find(|h| h.id == m.host));
            for host in present.chain(hosts.iter().copied()) {
                *rooms.entry(host.labels[key].clone()).or_default() += 1;
            }
            cost.1 += rooms.values().map(|load| load * load).sum::<u64>();
            for host in hosts {
                let others = self
                    .roles
                    .iter()
                    .filter(|other| other.role.name != role.role.name);
                let inside = home.is_empty() || home.contains(host.id.name.namespace().as_str());
                cost.0 += u32::from(!inside);
                cost.2 += u32::try_from(others.filter(|o| o.role.selector.matches(&host.labels)).count())
                    .expect("few");
                cost.3 += u32::from(!host.inspected);
                cost.4 += u32::from(!host.powered_on || host.unhealthy);
            }
        }
        cost
    }

    /// Whether so many replacements fit, which are as many as possible, and whether growth fits with them.
    pub(crate) fn judge(&self, replaced: &[usize]) -> (bool, bool) {
        let total = |v: &[usize]| v.iter().sum::<usize>();
        let fits = |v: &[usize]| self.best(v, v).is_some();
        let most = self.vectors().into_iter().filter(|v| fits(v));
        let most = most.map(|v| total(&v)).max().expect("none is feasible");
        let all: Vec<usize> = self
            .roles
            .iter()
            .zip(replaced)
            .map(|(role, k)| role.growth + k)
            .collect();
        (
            fits(replaced) && total(replaced) == most,
            self.best(&all, replaced).is_some(),
        )
    }

    fn vectors(&self) -> Vec<Vec<usize>> {
        let mut vectors = vec![Vec::new()];
        for role in self.roles {
            vectors = vectors
                .iter()
                .flat_map(|v| (0..=role.replaceable).map(move |k| [v.as_slice(), &[k]].concat()))
                .collect();
        }
        vectors
    }

    /// Why the members are to be replaced that are, where nothing grows: as many as possible, and of those the most pressing.
    pub(crate) fn most_pressing(&self) -> Vec<FailReason> {
        let mut choices: Vec<Vec<Option<&'a Member>>> = vec![Vec::new()];
        for role in self.roles {
            let one = role
                .failed
                .iter()
                .copied()
                .map(Some)
                .take(if role.replaceable > 0 { 8 } else { 0 });
            let one: Vec<Option<&Member>> = one.chain([None]).collect();
            choices = choices
                .iter()
                .flat_map(|v| one.iter().map(move |one| [v.as_slice(), &[*one]].concat()))
                .collect();
        }
        let reasons = |choice: &Vec<Option<&Member>>| {
            let mut reasons: Vec<FailReason> = choice.iter().flatten().filter_map(|one| one.failed).collect();
            reasons.sort();
            reasons
        };
        choices.sort_by_key(|choice| {
            (
                std::cmp::Reverse(choice.iter().flatten().count()),
                reasons(choice),
            )
        });
        let fits = |choice: &&Vec<Option<&Member>>| {
            let roles = self.roles.iter().zip(*choice);
            let roles: Vec<Role1<'_>> = roles.map(|(role, one)| role.replacing_only(*one)).collect();
            let counts: Vec<usize> = roles.iter().map(|role| role.failed.len()).collect();
            let search = Search {
                world: self.world,
                roles: &roles,
                namespace: self.namespace,
            };
            search.best(&counts, &counts).is_some()
        };
        reasons(choices.iter().find(fits).expect("none is feasible"))
    }
}

pub(crate) fn names_of(chosen: &[Vec<&Host>]) -> Vec<Vec<HostName>> {
    chosen
        .iter()
        .map(|hosts| hosts.iter().map(|host| host.id.name.clone()).collect())
        .collect()
}
