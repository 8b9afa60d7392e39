//! Decides every cluster of an input, as the scheduler would.

mod grid;
mod holdings;
mod remarks;

use std::collections::BTreeMap;

use placement::whatif::Priority;
use placement::{
    ClusterName, Decision, Holder, HostId, Member, MemberState, ReleaseReason, Request, RoleName, Site,
    decide, reports_without_decision,
};

pub use grid::{Cell, Change, Grid, Row, WhyNot};
use holdings::Holdings;

use crate::input::{Declared, Error, Input};
use crate::line::one_line;
use crate::report::{self, Report};

/// Maximum number of characters of the faults of an invalid SIPCluster.
const MAX_FAULT_CHARACTERS: usize = 4096;

/// What would be decided for each cluster, sorted by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    clusters: Vec<Planned>,
}

/// What would be decided for one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The contract's part.
    pub report: report::Cluster,
    /// The same over the domains of the site, for people.
    pub grid: Grid,
}

impl Plan {
    /// The clusters, sorted by name.
    #[must_use]
    pub fn clusters(&self) -> &[Planned] {
        &self.clusters
    }

    /// The contract.
    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            clusters: self
                .clusters
                .iter()
                .map(|planned| planned.report.clone())
                .collect(),
        }
    }

    /// The part of one cluster.
    ///
    /// # Errors
    /// The cluster is not in the input.
    pub fn only(self, cluster: &ClusterName) -> Result<Self, Error> {
        let name = cluster.to_string();
        let clusters: Vec<_> = self
            .clusters
            .into_iter()
            .filter(|planned| planned.report.cluster == name)
            .collect();
        if clusters.is_empty() {
            return Err(Error::NoSuchCluster(cluster.clone()));
        }
        Ok(Self { clusters })
    }
}

/// Decides every cluster: replacements first, then growth, then new clusters; within each by creation time (unknown ones
/// last), then by name. Each sees what the earlier ones take; what they release frees neither host nor domain, since
/// nobody has confirmed it yet, but no longer counts for a quota. Surplus members and those of deleted clusters are released before
/// anything is taken: they wait for nobody. Pure, and the same for the same documents in whatever order they came.
#[must_use]
pub fn plan(input: &Input) -> Plan {
    let (mut site, holdings) = read(input);
    let mut clusters = Vec::new();
    for declared in input.clusters.values() {
        let remarks = || remarks::collect(input, declared, &holdings, &Decision::default());
        let report = match &declared.request {
            _ if declared.deleting => {
                let members = holdings.members(&declared.name);
                report::released_whole(&declared.name, &declared.roles, members, remarks())
            }
            Err(rule) => report::invalid(&declared.name, &one_line(rule, MAX_FAULT_CHARACTERS), remarks()),
            Ok(_) => continue,
        };
        clusters.push(planned(input, declared, report));
    }
    decide_each(input, &mut site, &holdings, |site, decided| {
        let Decided {
            declared,
            request,
            members: _,
            decision,
        } = decided;
        let remarks = remarks::collect(input, declared, &holdings, decision);
        let report = report::cluster(&declared.name, &request.roles, decision, remarks);
        let mut planned = planned(input, declared, report);
        planned.grid.explain(site, request, &planned.report);
        clusters.push(planned);
    });
    clusters.sort_by(|a, b| a.report.cluster.cmp(&b.report.cluster));
    Plan { clusters }
}

/// The decision about one cluster.
struct Decided<'a> {
    declared: &'a Declared,
    request: &'a Request,
    members: &'a [Member],
    decision: &'a Decision,
}

/// Decides the clusters that are valid and not being deleted, one after the other. `visit` gets each decision with the site as it was made
/// on.
fn decide_each(
    input: &Input,
    site: &mut Site,
    holdings: &Holdings,
    mut visit: impl FnMut(&Site, &Decided<'_>),
) {
    let mut in_order = Vec::new();
    for declared in input.clusters.values() {
        let members = holdings.members(&declared.name);
        if declared.deleting {
            for Member { host, role, .. } in members {
                hold(site, &declared.name, host, role, MemberState::Releasing);
            }
        } else if let Ok(request) = &declared.request {
            let request = checkable(input, request);
            let priority = Priority::new(site, &request, members, declared.created);
            in_order.push((priority, declared, request));
        }
    }
    in_order.sort_by(|(a, _, _), (b, _, _)| a.cmp(b));
    for (_, declared, request) in &in_order {
        release_surplus(site, request, holdings.members(&declared.name));
    }
    for (_, declared, request) in &in_order {
        let members = holdings.members(&declared.name);
        let decision = decide(site, request, members);
        let decided = Decided {
            declared,
            request,
            members,
            decision: &decision,
        };
        visit(site, &decided);
        record(site, &declared.name, members, &decision);
    }
}

/// The site of an input, and the members that each cluster has once the plan is carried out: all of them bound. An invalid `SIPCluster`
/// keeps what it has.
pub(crate) fn after_plan(input: &Input) -> (Site, BTreeMap<ClusterName, Vec<Member>>) {
    let (mut site, holdings) = read(input);
    let mut after = BTreeMap::new();
    decide_each(input, &mut site, &holdings, |_, decided| {
        after.insert(
            decided.declared.name.clone(),
            members_after(decided.members, decided.decision),
        );
    });
    let mut all = holdings.into_members();
    for declared in input.clusters.values().filter(|declared| declared.deleting) {
        all.remove(&declared.name);
    }
    all.extend(after);
    (site, all)
}

fn members_after(members: &[Member], decision: &Decision) -> Vec<Member> {
    let is_released = |member: &&Member| decision.release.iter().any(|gone| gone.host == member.host);
    let stay = members
        .iter()
        .filter(|member| member.is_live() && !is_released(member));
    let stay = stay.map(|member| Member {
        state: MemberState::Bound,
        requested: false,
        ..member.clone()
    });
    let taken = decision.take.iter().map(|taken| Member {
        host: taken.host.clone(),
        role: taken.role.clone(),
        state: MemberState::Bound,
        requested: false,
        domain: None,
        failed: None,
        replaces: taken.replaces.clone(),
    });
    stay.chain(taken).collect()
}

/// Hosts whose labels make them a member of no cluster.
#[must_use]
pub fn unassignable(input: &Input) -> Vec<report::Remark> {
    let (_, holdings) = read(input);
    holdings
        .unassignable
        .iter()
        .map(remarks::about_unassignable)
        .collect()
}

/// The site of an input, and the members of each cluster.
pub(crate) fn held(input: &Input) -> (Site, BTreeMap<ClusterName, Vec<Member>>) {
    let (site, holdings) = read(input);
    (site, holdings.into_members())
}

fn read(input: &Input) -> (Site, Holdings) {
    let mut site = Site::new(input.policy.clone());
    for observed in input.hosts.values() {
        site.upsert(observed.host.clone());
    }
    let holdings = Holdings::read(input, &mut site);
    (site, holdings)
}

fn planned(input: &Input, declared: &Declared, report: report::Cluster) -> Planned {
    let grid = Grid::new(input, declared.request.as_ref().ok(), &report);
    Planned { report, grid }
}

/// Without any Secret with networkData nobody can say which addresses a host has, so they are not asked for.
fn checkable(input: &Input, request: &Request) -> Request {
    let mut request = request.clone();
    if !input.has_addresses {
        request.networks.clear();
    }
    request
}

/// Records the members that a cluster gives back whatever hosts there are. Only quotas depend on it.
fn release_surplus(site: &mut Site, request: &Request, members: &[Member]) {
    if site.policy().quotas.is_empty() || reports_without_decision(site, request, members).is_some() {
        return;
    }
    for released in decide(site, request, members).release {
        let waits = match released.reason {
            ReleaseReason::Surplus | ReleaseReason::Moved => false,
            // A failed member may be replaced; the decision on the cluster itself chooses by which host.
            ReleaseReason::Failed(_) => true,
        };
        if !waits {
            let (host, role) = (&released.host, &released.role);
            hold(site, &request.cluster, host, role, MemberState::Releasing);
        }
    }
}

/// Records a decision as the scheduler does.
fn record(site: &mut Site, cluster: &ClusterName, members: &[Member], decision: &Decision) {
    for taken in &decision.take {
        hold(site, cluster, &taken.host, &taken.role, MemberState::Claimed);
    }
    for released in &decision.release {
        hold(
            site,
            cluster,
            &released.host,
            &released.role,
            MemberState::Releasing,
        );
    }
    let requested = members.iter().filter(|member| member.requested);
    for member in requested.filter(|member| decision.keep.iter().any(|kept| kept.host == member.host)) {
        hold(site, cluster, &member.host, &member.role, MemberState::Bound);
    }
}

fn hold(site: &mut Site, cluster: &ClusterName, host: &HostId, role: &RoleName, state: MemberState) {
    let holder = Holder::Cluster {
        cluster: cluster.clone(),
        role: role.clone(),
        state,
    };
    site.hold(host, holder);
}
