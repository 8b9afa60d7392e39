//! What a site was promised by a ledger that is lost or older than the site.
//!
//! A status of an older epoch that is newer than the cluster's record, or has no record, is a promise that this ledger does not know. Until the cluster declares itself and takes them over, its hosts are held for it: labels
//! win, then claims over releases, then the older `SIPCluster`.

mod status;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use ::placement::{ClusterName, Domain, Holder, HostId, MemberState, Replaces, RoleName, Uid};

use self::status::Status;
use super::{
    claims::Claims,
    cluster_existence::Existence,
    inventory::{Inventory, identity},
    lines::Lines,
    positions::Positions,
};
use crate::{
    observed::{Cluster, Labels, Member},
    record::{Record, ReleaseReason},
};

/// In the place of the uid of a replaced member if the status no longer has that uid.
const REPLACED_UID: &str = "gone";

/// A host that a status names, with what the status states of the member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Promise {
    pub(super) role: RoleName,
    pub(super) state: MemberState,
    /// Its topology domain when the status was written.
    pub(super) domain: Option<Domain>,
    /// The member in whose place it comes.
    pub(super) replaces: Option<Replaces>,
    /// Its number in the role.
    pub(super) ordinal: Option<u32>,
    /// Why it is releasing.
    pub(super) release_reason: Option<ReleaseReason>,
}

/// What statuses state beyond the ledger's records.
#[derive(Clone, Debug, Default)]
pub(super) struct Promises {
    /// Hosts that statuses promise and that are held for those clusters, or that their own records hold in an older state.
    held: BTreeMap<ClusterName, BTreeMap<HostId, Promise>>,
    /// Clusters whose status states more than the ledger's record.
    promising: BTreeSet<ClusterName>,
    /// Clusters whose status has changed since hosts were held.
    due: bool,
    /// Hosts that such a status claims, but that the record of another cluster holds, each with the claiming cluster.
    wanted: BTreeMap<HostId, ClusterName>,
}

/// What promises are compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromiseContext<'a> {
    pub(super) site: &'a str,
    pub(super) existence: &'a Existence,
    pub(super) claims: &'a Claims,
    pub(super) positions: &'a Positions,
    pub(super) lines: &'a Lines,
}

impl Promises {
    /// Hosts that are promised to a cluster.
    pub(super) fn held(&self, name: &ClusterName) -> Option<&BTreeMap<HostId, Promise>> {
        self.held.get(name)
    }

    /// Whether a status claims the host for another cluster than this.
    pub(super) fn wants(&self, id: &HostId, ours: &ClusterName) -> bool {
        self.wanted.get(id).is_some_and(|by| by != ours)
    }

    /// Holds what statuses promise, when a snapshot is complete and before anything is decided. Records that hold a host already
    /// are told what the newer status states of it, too. Returns the hosts that it has released meanwhile.
    pub(super) fn renew_all(&mut self, known: PromiseContext<'_>, inventory: &mut Inventory) -> Vec<HostId> {
        let observed = known.existence.observed().keys();
        let names: BTreeSet<ClusterName> = self.held.keys().chain(observed).cloned().collect();
        let mut freed = Vec::new();
        for name in &names {
            freed.extend(self.withdraw(name, known.claims, inventory));
        }
        self.promising = known
            .existence
            .observed()
            .values()
            .filter(|observed| is_promising(known, observed))
            .map(|observed| observed.id().name.clone())
            .collect();
        self.due = false;
        self.hold_all(known, inventory, true);
        freed
    }

    /// Records that the status of one cluster has changed. What it promises is held by [`hold_due`](Self::hold_due), once for all
    /// statuses of a report.
    pub(super) fn renew(
        &mut self,
        name: &ClusterName,
        known: PromiseContext<'_>,
        inventory: &mut Inventory,
    ) -> Vec<HostId> {
        let freed = self.withdraw(name, known.claims, inventory);
        let observed = known.existence.get(name);
        if observed.is_some_and(|observed| is_promising(known, observed)) {
            self.promising.insert(name.clone());
            self.due = true;
        }
        freed
    }

    /// Holds what statuses promise that have changed.
    pub(super) fn hold_due(&mut self, known: PromiseContext<'_>, inventory: &mut Inventory) {
        if std::mem::take(&mut self.due) {
            self.hold_all(known, inventory, false);
        }
    }

    /// Holds hosts that records have freed and that statuses promise.
    pub(super) fn hold_freed(&mut self, known: PromiseContext<'_>, inventory: &mut Inventory) {
        if !self.promising.is_empty() {
            self.hold_all(known, inventory, false);
        }
    }

    /// Holds all hosts that are promised and that nobody has: the first claim wins. `own`: those that the cluster's own record
    /// holds, too.
    fn hold_all(&mut self, known: PromiseContext<'_>, inventory: &mut Inventory, own: bool) {
        let mut promised: Vec<(Rank, ClusterName, HostId, Promise)> = Vec::new();
        for name in &self.promising {
            let Some(observed) = known.existence.get(name) else {
                continue;
            };
            let status = Status::new(observed);
            let members = observed.members().iter();
            promised.extend(members.filter_map(|member| {
                let id = current(inventory, &status, member);
                let promise = promise(known, inventory, &status, (id, member))?;
                let rank = rank(&promise, observed);
                Some((rank, name.clone(), id.clone(), promise))
            }));
        }
        promised.sort_by(|a, b| (&a.0, &a.1, &a.2).cmp(&(&b.0, &b.1, &b.2)));
        for (_, name, id, promise) in promised {
            if own || !known.claims.holds(&name, &id) {
                self.hold(known, &name, id, promise, inventory);
            }
        }
    }

    fn hold(
        &mut self,
        known: PromiseContext<'_>,
        name: &ClusterName,
        id: HostId,
        promise: Promise,
        inventory: &mut Inventory,
    ) {
        if inventory.other_holder(&id, name).is_some() {
            if promise.state != MemberState::Releasing {
                self.wanted.entry(id).or_insert_with(|| name.clone());
            }
            return;
        }
        if inventory.holding_cluster(&id).is_none() {
            if let Some(withheld) = known.lines.promised.line() {
                let site = known.site;
                tracing::info!(site, cluster = %name, host = %id.name, withheld, "held for a cluster whose status names it");
            }
            let holder = Holder::Cluster {
                cluster: name.clone(),
                role: promise.role.clone(),
                state: promise.state,
            };
            // Of a host that is gone its name is known, and no address.
            let known = inventory.reported(&id).map(identity);
            inventory.hold(&id, holder, known.unwrap_or_default());
        }
        self.held.entry(name.clone()).or_default().insert(id, promise);
    }

    /// Removes the promises of hosts that the record has as members.
    pub(super) fn take_over(&mut self, record: &Record) {
        let Some(held) = self.held.get_mut(&record.cluster) else {
            return;
        };
        held.retain(|id, _| !record.members.contains_key(id));
        if held.is_empty() {
            self.held.remove(&record.cluster);
        }
    }

    /// Withdraws all promises of a cluster, and unholds their hosts except those of its record. Returns the hosts that no cluster holds now.
    pub(super) fn withdraw(
        &mut self,
        name: &ClusterName,
        claims: &Claims,
        inventory: &mut Inventory,
    ) -> Vec<HostId> {
        self.promising.remove(name);
        if !self.wanted.is_empty() {
            self.wanted.retain(|_, by| by != name);
        }
        let mut freed: Vec<HostId> = self.held.remove(name).unwrap_or_default().into_keys().collect();
        freed.retain(|id| !claims.holds(name, id));
        for id in &freed {
            inventory.unhold(id);
        }
        freed
    }
}

/// Whether a cluster's status names the host, and not as one that is released.
pub(super) fn claims_host(observed: &Cluster, id: &HostId) -> bool {
    observed.members().iter().any(|member| match member.state {
        Some(MemberState::Claimed | MemberState::Bound) => member.host == *id,
        Some(MemberState::Releasing) | None => false,
    })
}

/// Whether a cluster's status states what this ledger does not know. Only a ledger that is lost can have written that: it is of an earlier
/// epoch, since the loss has raised the site's. A status of this epoch that names more than the record was written by hand.
fn is_promising(known: PromiseContext<'_>, observed: &Cluster) -> bool {
    let Some(at) = observed.position() else {
        return false;
    };
    let record = known.claims.get(&observed.id().name);
    at.epoch() < known.positions.synced_epoch()
        && known.positions.is_possible(at)
        && record.is_none_or(|record| at.revision() > record.revision)
}

/// The host of a member that a status names. If it was made again with the cluster's labels while the ledger was lost, the member
/// continues as that.
fn current<'a>(inventory: &'a Inventory, status: &Status<'_>, member: &'a Member) -> &'a HostId {
    let named = &member.host;
    let continuing = || {
        let now = inventory.incarnation(&named.name)?;
        let labels = inventory.reported(now)?.labels_for(&status.observed.id().name);
        let is_ours = labels == Labels::Ours(member.role.as_ref()?);
        (is_ours && !status.names(now)).then_some(now)
    };
    match inventory.reported(named) {
        Some(_) => named,
        None => continuing().unwrap_or(named),
    }
}

fn promise(
    known: PromiseContext<'_>,
    inventory: &Inventory,
    status: &Status<'_>,
    (id, member): (&HostId, &Member),
) -> Option<Promise> {
    let state = member.state?;
    let is_over = match inventory.reported(id) {
        Some(host) => {
            let labels = host.labels_for(&status.observed.id().name);
            let released = state == MemberState::Releasing
                && labels == Labels::None
                && member.revision > 0
                && host.release_mark() >= member.revision
                && known.positions.mark(host.release_mark()).issued;
            released || matches!(labels, Labels::Others(_))
        }
        // Load balancers may route to its machine until its release is confirmed.
        None => false,
    };
    if is_over {
        return None;
    }
    Some(Promise {
        role: member.role.clone()?,
        state,
        domain: member.domain.clone(),
        replaces: replaces(inventory, status, member),
        ordinal: member.ordinal,
        release_reason: member.release_reason,
    })
}

/// In whose place a member comes: beside an older one that the status has as a member too, or of one that was released. Its host
/// may be a member again since: then with a later revision.
fn replaces(inventory: &Inventory, status: &Status<'_>, member: &Member) -> Option<Replaces> {
    let old = member.replaces.as_ref()?;
    if let Some(other) = status.beside(&old.name, member) {
        let host = current(inventory, status, other);
        return Some(Replaces::Beside(host.clone()));
    }
    let uid = old.uid.clone().or_else(|| Uid::new(REPLACED_UID).ok())?;
    Some(Replaces::Alone(HostId {
        name: old.name.clone(),
        uid,
    }))
}

/// Who comes first when several statuses name one host: claims before releases, then the older `SIPCluster`, those
/// without a time last.
type Rank = (bool, bool, Option<SystemTime>);

fn rank(promise: &Promise, observed: &Cluster) -> Rank {
    let created = observed.created();
    (
        promise.state == MemberState::Releasing,
        created.is_none(),
        created,
    )
}

#[cfg(test)]
mod tests;
