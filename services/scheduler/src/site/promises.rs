//! What a site was promised by a ledger that is lost or older than the site.
//!
//! A status that is newer than the cluster's record, or from an older epoch while there is no record, is a promise that
//! this ledger does not know. Until the cluster declares itself and takes them over, its hosts are held for it: labels
//! win, then claims over releases, then the older `SIPCluster`.

use std::{collections::BTreeMap, time::SystemTime};

use ::placement::{ClusterName, Holder, HostId, HostName, MemberState, Replaces, RoleName, Uid};
use proto::inventory::v1 as wire;

use super::{Site, labels::Labels};
use crate::{convert, record::ReleaseReason};

/// Stands for the uid of a member that a status does not have any more.
const GONE: &str = "gone";

/// A host that a status names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Promise {
    pub(super) role: RoleName,
    pub(super) state: MemberState,
    /// The member in whose place it comes.
    pub(super) replaces: Option<Replaces>,
    /// Why it is releasing.
    pub(super) release_reason: Option<ReleaseReason>,
}

/// Hosts that are held for clusters without a record that says so.
pub(super) type Promises = BTreeMap<ClusterName, BTreeMap<HostId, Promise>>;

impl Site {
    /// Holds what statuses promise. To be called when a snapshot is complete, before anything is decided.
    pub(super) fn hold_promises(&mut self) {
        let names: Vec<ClusterName> = self
            .promised
            .keys()
            .chain(self.clusters.keys())
            .cloned()
            .collect();
        for name in &names {
            self.withdraw_promises(name);
        }
        self.promising = self
            .clusters
            .keys()
            .filter(|name| self.is_promising(name))
            .cloned()
            .collect();
        self.hold_all(true);
    }

    /// The same for one cluster whose status has changed.
    pub(super) fn renew_promises(&mut self, name: &ClusterName) {
        self.withdraw_promises(name);
        if self.session.synced() && self.is_promising(name) {
            self.promising.insert(name.clone());
            self.hold_all(false);
        }
    }

    /// Holds all hosts that are promised and that nobody has: the first claim wins. `own`: records that hold a host
    /// already are told what the newer status says of it, too.
    pub(super) fn hold_all(&mut self, own: bool) {
        let mut claims: Vec<(Rank, ClusterName, HostId, Promise)> = Vec::new();
        for name in &self.promising {
            let Some(observed) = self.clusters.get(name) else {
                continue;
            };
            for promise in observed
                .members
                .iter()
                .filter_map(|member| self.promise(name, observed, member))
            {
                let (id, promise) = promise;
                claims.push((rank(&promise, observed), name.clone(), id, promise));
            }
        }
        claims.sort_by(|a, b| (&a.0, &a.1, &a.2).cmp(&(&b.0, &b.1, &b.2)));
        for (_, name, id, promise) in claims {
            if own
                || !self
                    .records
                    .get(&name)
                    .is_some_and(|record| record.members.contains_key(&id))
            {
                self.hold_promise(&name, id, promise);
            }
        }
    }

    fn hold_promise(&mut self, name: &ClusterName, id: HostId, promise: Promise) {
        if self.other_holder(&id, name).is_some() {
            if promise.state != MemberState::Releasing {
                self.wanted.entry(id).or_insert_with(|| name.clone());
            }
            return;
        }
        if self
            .model
            .holder(&id)
            .is_none_or(|holder| *holder == Holder::Orphaned)
        {
            tracing::info!(site = self.name, cluster = %name, host = %id.name, "held for a cluster whose status names it");
            let holder = Holder::Cluster {
                cluster: name.clone(),
                role: promise.role.clone(),
                state: promise.state,
            };
            self.model.hold(&id, holder);
        }
        self.promised.entry(name.clone()).or_default().insert(id, promise);
    }

    /// What a record has taken over is no promise any more.
    pub(super) fn keep_unknown(&mut self, name: &ClusterName) {
        let Some(record) = self.records.get(name).filter(|record| !self.is_survived(record)) else {
            return;
        };
        let Some(promised) = self.promised.get_mut(name) else {
            return;
        };
        promised.retain(|id, _| !record.members.contains_key(id));
        if promised.is_empty() {
            self.promised.remove(name);
        }
    }

    /// Lets go of what is held for a cluster but for what its record holds.
    pub(super) fn withdraw_promises(&mut self, name: &ClusterName) {
        self.promising.remove(name);
        self.wanted.retain(|_, by| by != name);
        for id in self.promised.remove(name).unwrap_or_default().into_keys() {
            let known = self.records.get(name);
            if !known.is_some_and(|known| known.members.contains_key(&id)) {
                self.model.unhold(&id);
                self.mark(&id);
            }
        }
    }

    /// Whether the cluster's status names the host, and not as one that is given back.
    pub(super) fn is_claimed_by_status(&self, name: &ClusterName, id: &HostId) -> bool {
        let members = self.clusters.get(name).map(|observed| &observed.members);
        members.into_iter().flatten().any(|member| {
            matches!(
                member.state(),
                wire::MemberState::Claimed | wire::MemberState::Bound
            ) && member
                .host
                .as_ref()
                .is_some_and(|host| convert::host_id(host).as_ref() == Ok(id))
        })
    }

    /// Whether the cluster's status says what this ledger does not know.
    fn is_promising(&self, name: &ClusterName) -> bool {
        let at = self.clusters.get(name).and_then(|observed| observed.revision);
        match (at, self.records.get(name)) {
            (None, _) => false,
            (Some(at), _) if !self.is_possible(at.into()) => false,
            (Some(at), Some(record)) => at.revision > record.revision,
            (Some(at), None) => at.epoch < self.epoch,
        }
    }

    fn promise(
        &self,
        name: &ClusterName,
        observed: &wire::ObservedCluster,
        member: &wire::ObservedMember,
    ) -> Option<(HostId, Promise)> {
        let id = convert::host_id(member.host.as_ref()?).ok()?;
        let host = self.reported(&id)?;
        let state = match member.state() {
            wire::MemberState::Claimed => MemberState::Claimed,
            wire::MemberState::Bound => MemberState::Bound,
            wire::MemberState::Releasing => MemberState::Releasing,
            wire::MemberState::Unspecified => return None,
        };
        let labels = Labels::of(host, name);
        let released = state == MemberState::Releasing
            && labels == Labels::None
            && member.revision > 0
            && host.release_mark >= member.revision
            && self.mark_of(host).issued;
        if released || matches!(labels, Labels::Others(_)) {
            return None;
        }
        let role = RoleName::new(&member.role).ok()?;
        let promise = Promise {
            role,
            state,
            replaces: replaces(observed, member),
            release_reason: ReleaseReason::parse(&member.release_reason),
        };
        Some((id, promise))
    }
}

/// In whose place a member comes: beside one that the status has as a member too, or of one that was given back.
fn replaces(observed: &wire::ObservedCluster, member: &wire::ObservedMember) -> Option<Replaces> {
    let old = member.replaces.as_ref()?;
    let id = |host: Option<&wire::HostRef>| host.and_then(|host| convert::host_id(host).ok());
    let name = HostName::new(&old.namespace, &old.name).ok()?;
    let members = observed.members.iter();
    let staying = members.filter(|other| other.state() != wire::MemberState::Releasing);
    let beside = staying
        .filter_map(|other| id(other.host.as_ref()))
        .find(|other| other.name == name);
    if let Some(host) = beside {
        return Some(Replaces::Beside(host));
    }
    let uid = Uid::new(&old.uid).or_else(|_| Uid::new(GONE)).ok()?;
    Some(Replaces::Alone(HostId { name, uid }))
}

/// Who comes first when several statuses name one host: claims before releases, then the older `SIPCluster`, those
/// without a time last.
type Rank = (bool, bool, Option<SystemTime>);

fn rank(promise: &Promise, observed: &wire::ObservedCluster) -> Rank {
    let created = convert::time(observed.created);
    (
        promise.state == MemberState::Releasing,
        created.is_none(),
        created,
    )
}
