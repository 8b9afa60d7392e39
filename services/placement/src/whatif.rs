//! Questions about what would be, answered by the same code that decides.

use std::collections::BTreeMap;

use vocabulary::{ClusterName, RoleName};

use crate::decide::{capacity, decide, needs_replacement};
use crate::decision::Decision;
use crate::policy::Domain;
use crate::request::{Holder, Member, MemberState, Request};
use crate::site::Site;

/// When a cluster is decided among several; the smallest comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// Replacements go before growth, and growth before new clusters.
    pub kind: TurnKind,
    /// Whether the cluster's creation time is unknown; such clusters come last.
    pub undated: bool,
    /// The SIPCluster's `creationTimestamp` in seconds since 1970, 0 when unknown.
    pub created: i64,
    /// Which cluster.
    pub cluster: ClusterName,
}

/// What a cluster waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TurnKind {
    /// A member failed.
    Replacement,
    /// It has members, and none failed.
    Growth,
    /// It has no member.
    New,
}

impl Turn {
    /// A cluster's turn. `created` is its `creationTimestamp` in seconds since 1970.
    #[must_use]
    pub fn new(site: &Site, request: &Request, members: &[Member], created: Option<i64>) -> Self {
        let kind = if needs_replacement(site, request, members) {
            TurnKind::Replacement
        } else if members
            .iter()
            .any(|member| member.state != MemberState::Releasing)
        {
            TurnKind::Growth
        } else {
            TurnKind::New
        };
        let (undated, created) = (created.is_none(), created.unwrap_or_default());
        Self {
            kind,
            undated,
            created,
            cluster: request.cluster.clone(),
        }
    }
}

/// Decides several clusters in the order given, each seeing what the earlier ones take. What they give back is not free
/// for the later ones: nobody has confirmed it yet. The site itself does not change.
#[must_use]
pub fn decide_in_order(site: &Site, clusters: &[(Request, Vec<Member>)]) -> Vec<Decision> {
    let mut site = site.clone();
    let one = |(request, members): &(Request, Vec<Member>)| {
        let decision = decide(&site, request, members);
        for take in &decision.take {
            let (cluster, role) = (request.cluster.clone(), take.role.clone());
            site.hold(
                &take.host,
                Holder::Cluster {
                    cluster,
                    role,
                    state: MemberState::Claimed,
                },
            );
        }
        decision
    };
    clusters.iter().map(one).collect()
}

/// How many new clusters of this shape fit beside what is held, at most `at_most`; exact.
///
/// n copies fit exactly when a flow finds n times each role's hosts with at most n of them per domain: a domain's hosts
/// are dealt out to the copies in turn, so that no copy gets two of one domain. Each copy need not be in one namespace.
/// The quota of the request's namespace is observed.
#[must_use]
pub fn how_many_fit(site: &Site, request: &Request, at_most: u32) -> u32 {
    let each = request
        .roles
        .iter()
        .map(|role| role.want)
        .fold(0, u32::saturating_add);
    if each == 0 {
        return at_most;
    }
    let namespace = request.cluster.namespace();
    let quota = site
        .policy()
        .quotas
        .get(namespace)
        .map(|quota| quota.saturating_sub(site.usage(namespace)) / each);
    let hosts = u32::try_from(site.len()).unwrap_or(u32::MAX);
    // `fits` holds and `too_many` does not; what fits n times fits fewer times too.
    let (mut fits, mut too_many) = (
        0,
        at_most
            .min(quota.unwrap_or(u32::MAX))
            .min(hosts / each)
            .saturating_add(1),
    );
    let capacity = capacity::Classes::new(site, request);
    while too_many - fits > 1 {
        let middle = fits + (too_many - fits) / 2;
        if capacity.fit(middle) {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    fits
}

/// What one role of one cluster loses with a domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss {
    /// The cluster.
    pub cluster: ClusterName,
    /// The role.
    pub role: RoleName,
    /// Its members now; releasing ones do not count.
    pub members: u32,
    /// How many of them are in the domain.
    pub lost: u32,
}

impl Loss {
    /// Whether the rest is no majority: a control plane would lose its quorum.
    #[must_use]
    pub fn loses_majority(&self) -> bool {
        let Self {
            cluster: _,
            role: _,
            members,
            lost,
        } = self;
        (members - lost).saturating_mul(2) <= *members
    }
}

/// What the clusters of a site lose if all hosts of a domain are gone; sorted, only roles that lose something.
#[must_use]
pub fn lose_domain(site: &Site, domain: &Domain) -> Vec<Loss> {
    let mut roles: BTreeMap<(&ClusterName, &RoleName), (u32, u32)> = BTreeMap::new();
    for (id, holder) in site.holders() {
        let Holder::Cluster {
            cluster,
            role,
            state: MemberState::Claimed | MemberState::Bound,
        } = holder
        else {
            continue;
        };
        let (members, lost) = roles.entry((cluster, role)).or_default();
        let label = site.slot_of(id).and_then(|slot| site.label(&domain.key, slot));
        *members += 1;
        *lost += u32::from(label.as_ref() == Some(&domain.value));
    }
    let loss = |((cluster, role), (members, lost)): ((&ClusterName, &RoleName), (u32, u32))| {
        (lost > 0).then(|| Loss {
            cluster: cluster.clone(),
            role: role.clone(),
            members,
            lost,
        })
    };
    roles.into_iter().filter_map(loss).collect()
}
