//! Which cluster holds which host, by labels and statuses.

use std::collections::{BTreeMap, BTreeSet};

use api::labels;
use placement::{
    ClusterName, Domain, FailReason, Holder, Host, HostId, HostName, LabelKey, Member, MemberState, Replaces,
    RoleName, SipLabels, Site, Uid,
};

use crate::input::{Claim, Declared, Input, Observed};

/// In the place of the uid of a host that is deleted.
const DELETED_UID: &str = "gone";

/// The members of each cluster, and contradictions between labels and statuses.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    members: BTreeMap<ClusterName, Vec<Member>>,
    /// Entries of statuses that labels alone do not show, or that labels contradict.
    pub(super) mismatches: BTreeMap<ClusterName, Vec<StatusMismatch>>,
    /// Hosts that are neither a member nor free.
    pub(super) unassignable: Vec<UnassignableHost>,
}

/// An entry of `status.placement` that is reported to people.
#[derive(Debug)]
pub(super) struct StatusMismatch {
    pub(super) host: HostName,
    pub(super) role: RoleName,
    pub(super) kind: MismatchKind,
}

/// Why an entry is reported.
#[derive(Debug)]
pub(super) enum MismatchKind {
    /// Claimed, and not labelled yet: a member.
    NotLabelled,
    /// Being released: it does not count, and is not free.
    Releasing,
    /// It was surplus and has a consumer: it stays if its role wants it again.
    ReleaseRequested,
    /// The host does not have the cluster's labels: not a member.
    NotAMember,
}

/// A host whose SIP labels make it a member of no cluster.
#[derive(Debug)]
pub(super) struct UnassignableHost {
    pub(super) host: HostName,
    /// The cluster that its labels name, if they name one.
    pub(super) names: Option<ClusterName>,
    /// The role that its labels name, if they name one.
    pub(super) role: Option<RoleName>,
    pub(super) kind: UnassignableKind,
    /// The clusters that its labels name or that could take it if it were free.
    pub(super) concerned: BTreeSet<ClusterName>,
}

impl UnassignableHost {
    /// Whether the report of a cluster mentions the host. A host that concerns no cluster is mentioned in all reports, so that it is never
    /// overlooked.
    pub(super) fn concerns(&self, cluster: &ClusterName) -> bool {
        self.concerned.is_empty() || self.concerned.contains(cluster)
    }
}

/// What is wrong with its labels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum UnassignableKind {
    /// Not all three, or not valid ones.
    Partial,
    /// The labels name a SIPCluster that is not in the input.
    Orphaned,
}

impl Holdings {
    /// Reads labels and statuses, and records in the site which cluster holds which host.
    pub(super) fn read(input: &Input, site: &mut Site) -> Self {
        let mut holdings = Self::default();
        for observed in input.hosts.values() {
            holdings.by_labels(input, &observed.host, site);
        }
        for declared in input.clusters.values() {
            for claim in &declared.claims {
                holdings.by_status(input, declared, claim, site);
            }
        }
        holdings
    }

    /// The members of a cluster; those that are being released are among them.
    pub(super) fn members(&self, cluster: &ClusterName) -> &[Member] {
        self.members.get(cluster).map_or(&[], Vec::as_slice)
    }

    /// The members of every cluster.
    pub(super) fn into_members(self) -> BTreeMap<ClusterName, Vec<Member>> {
        self.members
    }

    fn by_labels(&mut self, input: &Input, host: &Host, site: &mut Site) {
        match &host.sip_labels {
            SipLabels::None => {}
            SipLabels::Partial => {
                self.unassignable
                    .push(unassignable(input, host, UnassignableKind::Partial));
            }
            SipLabels::Complete { cluster, role } => {
                let Some(declared) = input.clusters.get(cluster) else {
                    site.hold(&host.id, Holder::Orphaned);
                    self.unassignable
                        .push(unassignable(input, host, UnassignableKind::Orphaned));
                    return;
                };
                let claim = declared
                    .claim_of(&host.id.name)
                    .filter(|claim| is_of(claim, host, input));
                let state = match claim.map(|claim| claim.state) {
                    Some(MemberState::Releasing) => MemberState::Releasing,
                    // A host with the labels is bound, even if the status still says claimed.
                    Some(MemberState::Claimed | MemberState::Bound) | None => MemberState::Bound,
                };
                let requested = claim.is_some_and(|claim| is_request(claim, host, role));
                let member = Member {
                    host: host.id.clone(),
                    role: role.clone(),
                    state,
                    requested,
                    domain: claim
                        .filter(|claim| claim.role == *role)
                        .and_then(|claim| domain(declared, claim)),
                    failed: None,
                    replaces: claim.and_then(|claim| replaces(input, declared, claim)),
                };
                self.add(cluster, member, site);
                if requested {
                    self.add_mismatch(cluster, &host.id.name, role, MismatchKind::ReleaseRequested);
                } else if state == MemberState::Releasing {
                    self.add_mismatch(cluster, &host.id.name, role, MismatchKind::Releasing);
                }
            }
        }
    }

    fn by_status(&mut self, input: &Input, declared: &Declared, claim: &Claim, site: &mut Site) {
        let Claim {
            host,
            uid,
            role,
            domain: _,
            state,
            revision: _,
            replaces: _,
            is_surplus: _,
        } = claim;
        let cluster = &declared.name;
        let member = |id: HostId, failed| Member {
            host: id,
            role: role.clone(),
            state: *state,
            // Only a member with its labels can have a requested release.
            requested: false,
            domain: domain(declared, claim),
            failed,
            replaces: replaces(input, declared, claim),
        };
        let observed = input.hosts.get(host).map(|observed| &observed.host);
        let mut roles = declared.request.iter().flat_map(|request| &request.roles);
        let wanted = roles.find(|wanted| wanted.name == *role);
        if let Some(observed) = observed.filter(|observed| is_of(claim, observed, input)) {
            match (&observed.sip_labels, state) {
                (
                    SipLabels::Complete {
                        cluster: named,
                        role: _,
                    },
                    _,
                ) if named == cluster => {}
                (SipLabels::None, MemberState::Claimed | MemberState::Releasing)
                    if site.holder(&observed.id).is_none() =>
                {
                    let kind = match state {
                        MemberState::Releasing => MismatchKind::Releasing,
                        MemberState::Claimed | MemberState::Bound => MismatchKind::NotLabelled,
                    };
                    let mut member = member(observed.id.clone(), None);
                    // How long it has been in error is not in the input.
                    member.failed = wanted.and_then(|role| placement::failure(site, role, &member, None));
                    self.add(cluster, member, site);
                    self.add_mismatch(cluster, host, role, kind);
                }
                (SipLabels::None | SipLabels::Partial | SipLabels::Complete { .. }, _) => {
                    self.add_mismatch(cluster, host, role, MismatchKind::NotAMember);
                }
            }
        } else if *state != MemberState::Releasing {
            let uid = uid.clone().or_else(|| Uid::new(DELETED_UID).ok());
            if let Some(uid) = uid {
                let id = HostId {
                    name: host.clone(),
                    uid,
                };
                self.add(cluster, member(id, Some(FailReason::Gone)), site);
            }
        }
    }

    fn add(&mut self, cluster: &ClusterName, member: Member, site: &mut Site) {
        let holder = Holder::Cluster {
            cluster: cluster.clone(),
            role: member.role.clone(),
            state: member.state,
        };
        site.hold(&member.host, holder);
        self.members.entry(cluster.clone()).or_default().push(member);
    }

    fn add_mismatch(&mut self, cluster: &ClusterName, host: &HostName, role: &RoleName, kind: MismatchKind) {
        let mismatch = StatusMismatch {
            host: host.clone(),
            role: role.clone(),
            kind,
        };
        self.mismatches.entry(cluster.clone()).or_default().push(mismatch);
    }
}

/// The domain that a status names, as a value of the key that the role has in the input: a status does not say of which.
fn domain(declared: &Declared, claim: &Claim) -> Option<Domain> {
    let key = declared.topology_key(&claim.role)?.clone();
    let value = claim.domain.clone()?;
    Some(Domain { key, value })
}

/// In whose place a claimed member comes: beside an older one that is a member still, or of one that was released. That one's host may be a
/// member again since: then with a later revision.
fn replaces(input: &Input, declared: &Declared, claim: &Claim) -> Option<Replaces> {
    let name = claim.replaces.as_ref()?;
    let old = declared.claim_of(name);
    let stays = old.is_some_and(|old| old.state != MemberState::Releasing && old.revision <= claim.revision);
    let shown = input.hosts.get(name).map(|observed| observed.host.id.uid.clone());
    let uid = shown
        .or_else(|| old?.uid.clone())
        .or_else(|| Uid::new(DELETED_UID).ok())?;
    let host = HostId {
        name: name.clone(),
        uid,
    };
    Some(if stays {
        Replaces::Beside(host)
    } else {
        Replaces::Alone(host)
    })
}

/// Whether the release of a member that has its labels is only requested: it was surplus, and an object uses it.
fn is_request(claim: &Claim, host: &Host, labelled: &RoleName) -> bool {
    claim.state == MemberState::Releasing
        && claim.is_surplus
        && claim.role == *labelled
        && host.consumer.is_some()
}

/// Whether an entry of a status is about this host and not about an earlier one of its name. A host that carries the
/// cluster's labels again is taken for the same one.
fn is_of(claim: &Claim, host: &Host, input: &Input) -> bool {
    let same_uid = |observed: &Observed| {
        claim
            .uid
            .as_ref()
            .is_none_or(|uid| !observed.has_uid || *uid == observed.host.id.uid)
    };
    let labelled = matches!(host.sip_labels, SipLabels::Complete { .. });
    claim.host == host.id.name && (labelled || input.hosts.get(&claim.host).is_some_and(same_uid))
}

fn unassignable(input: &Input, host: &Host, kind: UnassignableKind) -> UnassignableHost {
    let label = |key: &str| {
        let key = LabelKey::new(key).ok()?;
        host.labels.get(&key)
    };
    let names = label(labels::CLUSTER_NAMESPACE).zip(label(labels::CLUSTER_NAME));
    let names = names.and_then(|(namespace, name)| ClusterName::new(namespace, name).ok());
    let fits = |declared: &Declared| {
        let mut roles = declared.request.iter().flat_map(|request| &request.roles);
        roles.any(|role| role.selector.matches(&host.labels))
    };
    let concerned = input.clusters.values();
    let concerned = concerned.filter(|declared| names.as_ref() == Some(&declared.name) || fits(declared));
    UnassignableHost {
        host: host.id.name.clone(),
        concerned: concerned.map(|declared| declared.name.clone()).collect(),
        names,
        role: label(labels::NODE_TYPE).and_then(|role| RoleName::new(role).ok()),
        kind,
    }
}
