//! What people, Machines and metal3 do to hosts while the ledger may be lost at any time.

use placement::{HostId, MemberState};
use proto::inventory::v1 as wire;
use scheduler::{
    convert,
    record::{Record, ReleaseReason},
};

use super::{
    steps::{HOSTS, Touch},
    world::World,
};
use crate::fixtures::{SITE, host, used};

/// Labels a host for a cluster, and changes nothing else of it.
pub(super) fn label(known: &mut wire::Host, labels: &wire::Host) {
    known.labels.clone_from(&labels.labels);
}

/// Takes a cluster's labels off, and marks the host with the release.
pub(super) fn unlabel(known: &mut wire::Host, revision: u64) {
    let name = known.r#ref.as_ref().map(|known| known.name.clone());
    known.labels = host(&name.unwrap_or_default()).labels;
    known.release_mark = revision;
}

/// Whether this is the host that a status names, and not another one of its name.
pub(super) fn is_same(known: &wire::Host, named: &wire::HostRef) -> bool {
    known.r#ref.as_ref().is_some_and(|known| known.uid == named.uid)
}

/// A status names each host once: the member that stays, or else the last.
pub(super) fn name_each_once(status: &mut wire::ObservedCluster) {
    let goes = |member: &wire::ObservedMember| member.state() == wire::MemberState::Releasing;
    let name = |member: &wire::ObservedMember| member.host.clone().unwrap_or_default().name;
    let all = status.members.clone();
    status.members.retain(|member| {
        let others = all
            .iter()
            .filter(|other| name(other) == name(member) && *other != member);
        !(goes(member)
            && others
                .into_iter()
                .any(|other| !goes(other) || other.revision > member.revision))
    });
}

impl World {
    /// What is done to one host.
    pub(super) async fn touch(&mut self, which: usize, touch: Touch) {
        let name = format!("h{which}");
        match touch {
            Touch::Vanish => self.vanish(&name).await,
            Touch::Return { again } => self.come_back(&name, again).await,
            Touch::Mark | Touch::Move | Touch::Fall | Touch::Clear | Touch::Consume | Touch::LetGo => {
                let Some(known) = self.hosts.get_mut(&name) else {
                    return;
                };
                match touch {
                    Touch::Mark => known.marked_failed = true,
                    Touch::Move => known.replace_requested = true,
                    Touch::Fall => known.set_operational_status(wire::OperationalStatus::Error),
                    Touch::Consume => *known = used(known.clone()),
                    Touch::LetGo => known.consumer = None,
                    Touch::Clear | Touch::Vanish | Touch::Return { .. } => {
                        known.marked_failed = false;
                        known.replace_requested = false;
                        known.set_operational_status(wire::OperationalStatus::Ok);
                    }
                }
                let shown = known.clone();
                self.stage.report(&self.session, &[shown]).await;
            }
        }
    }

    async fn vanish(&mut self, name: &str) {
        let Some(gone) = self.hosts.remove(name) else {
            return;
        };
        let changes = wire::HostChanges {
            deleted_hosts: gone.r#ref.clone().into_iter().collect(),
            ..wire::HostChanges::default()
        };
        self.away.insert(name.to_owned(), gone);
        self.stage
            .region
            .report(SITE, &self.session, convert::changes(SITE, changes))
            .await
            .unwrap();
    }

    /// `again`: it is restored, under a new uid and with the labels that it had.
    async fn come_back(&mut self, name: &str, again: bool) {
        let Some(mut back) = self.away.remove(name) else {
            return;
        };
        if again {
            self.restored += 1;
            back.r#ref.as_mut().unwrap().uid = format!("uid-{name}-{}", self.restored);
        }
        self.hosts.insert(name.to_owned(), back.clone());
        self.stage.report(&self.session, &[back]).await;
    }

    /// Every host is there, unused, and nobody asks for anything.
    pub(super) async fn calm_down(&mut self) {
        for which in 0..HOSTS {
            for touch in [Touch::Return { again: false }, Touch::Clear, Touch::LetGo] {
                self.touch(which, touch).await;
            }
        }
    }

    /// How many of a cluster's members, as its status has them, its roles count: a member that is moved off and its
    /// replacement are one.
    pub(super) fn places(&self, name: &str, promised: &[&HostId]) -> usize {
        let members = &self.clusters[name].status.members;
        let old = members
            .iter()
            .filter(|member| member.state() != wire::MemberState::Releasing)
            .filter_map(|member| member.replaces.clone());
        let old: Vec<String> = old.map(|old| old.name).collect();
        let counted = promised
            .iter()
            .filter(|id| !old.iter().any(|old| old == id.name.name()));
        counted.count()
    }

    /// Members that stay though their replacements are claimed, with their clusters: they have not failed, no replacement
    /// of theirs has its labels, and the cluster wants all that its status names.
    pub(super) fn moved_off(&self) -> Vec<(String, HostId)> {
        let mut moved = Vec::new();
        for (name, cluster) in self.clusters.iter().filter(|(_, cluster)| !cluster.deleting) {
            let stays = |member: &&wire::ObservedMember| member.state() != wire::MemberState::Releasing;
            let members: Vec<_> = cluster.status.members.iter().filter(stays).collect();
            let pairs = members.iter().filter_map(|new| {
                let old = members.iter().find(|old| old.host == new.replaces)?;
                Some((self.host_of(old)?, self.host_of(new)?))
            });
            let pairs: Vec<_> = pairs.collect();
            if usize::try_from(cluster.workers).unwrap() < members.len() - pairs.len() {
                continue;
            }
            let is_labelled = |host: &wire::Host| host.labels.contains_key(vocabulary::labels::CLUSTER_NAME);
            for (old, new) in pairs {
                if is_labelled(old) && !old.marked_failed && !is_labelled(new) {
                    let id = old.r#ref.as_ref().unwrap();
                    moved.push((name.clone(), convert::host_id(id).unwrap()));
                }
            }
        }
        moved
    }

    /// The host that a status names, if it is there.
    fn host_of(&self, member: &wire::ObservedMember) -> Option<&wire::Host> {
        let named = member.host.as_ref()?;
        self.hosts.get(&named.name).filter(|host| is_same(host, named))
    }
}

/// Whether nothing is wrong with a host, and nobody asks for anything.
fn is_well(host: &wire::Host) -> bool {
    let is_ok = host.operational_status() == wire::OperationalStatus::Ok;
    is_ok && !host.marked_failed && !host.replace_requested
}

impl World {
    /// No member whose host is well counts as failed, whatever was wrong with it before. Of those that are released that
    /// holds while their release is only asked for.
    pub(super) async fn check_failures(&self) {
        // Nobody declares the others again after a backup was restored, so that nothing is observed of them.
        for (name, _) in self.clusters.iter().filter(|(_, cluster)| !cluster.deleting) {
            if let Some(record) = self.stage.record(name).await {
                self.require_well(&record);
            }
        }
    }

    fn require_well(&self, record: &Record) {
        for (id, member) in &record.members {
            let host = self.hosts.get(id.name.name());
            let Some(host) = host.filter(|host| is_same(host, &convert::host_ref(id))) else {
                continue;
            };
            let is_ours = host
                .labels
                .get(vocabulary::labels::CLUSTER_NAME)
                .map(String::as_str)
                == Some(record.cluster.name());
            let can_stay = match member.state {
                MemberState::Claimed => host.consumer.is_none(),
                MemberState::Bound => true,
                MemberState::Releasing => {
                    let is_surplus = member.release_reason == Some(ReleaseReason::Surplus);
                    is_surplus && !member.confirmed && is_ours && host.consumer.is_some()
                }
            };
            if can_stay && is_well(host) {
                assert_eq!(member.failed_since, None, "{id} is well");
            }
        }
    }

    /// Why the members are released that a status names and whose labels are still on: those that nothing has happened to
    /// which could have changed the reason.
    pub(super) fn reasons(&self, name: &str) -> Vec<(HostId, String)> {
        let known = &self.clusters[name];
        let releasing = known.status.members.iter();
        let releasing = releasing.filter(|member| member.state() == wire::MemberState::Releasing);
        let labelled = releasing.filter_map(|member| {
            let host = self.host_of(member)?;
            let is_ours = host.labels.get(vocabulary::labels::CLUSTER_NAME)? == name;
            let surplus = member.release_reason == ReleaseReason::Surplus.as_str();
            let id = convert::host_id(member.host.as_ref()?).ok()?;
            (is_ours && !surplus).then(|| (id, member.release_reason.clone()))
        });
        labelled.collect()
    }
}

/// Those of a record's members that have not begun to go.
pub(super) fn staying(record: &Record) -> usize {
    let members = record.members.values();
    members
        .filter(|member| member.state != MemberState::Releasing)
        .count()
}
