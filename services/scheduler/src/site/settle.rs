//! What is observed and what is decided, into a copy of a record. Pure: nothing is staged here.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use ::placement::{
    ClusterName, Decision, Domain, FailReason, Host, HostId, LabelKey, MemberState, Replaces, ReportKind,
    Request, Role, RoleName, whatif::Turn,
};
use proto::{inventory::v1 as wire, placement::v1 as api};

use super::{
    ABSENT, Site,
    claims::{UNNUMBERED, begin_release},
    freed::is_freed,
    labels::Labels,
    promises::Promise,
};
use crate::{
    answer, convert,
    record::{Member, Record, ReleaseReason},
};

impl Site {
    /// Brings the record in line with what is observed. Level-triggered: the order of observations does not matter.
    pub(super) fn settle_record(&self, record: &mut Record, now: SystemTime) {
        let synced = self.session.synced();
        self.follow(record);
        if !self.is_survived(record) {
            self.keep_promises(record);
            self.adopt(record);
        }
        let cluster = record.cluster.clone();
        let spec = record.spec.clone();
        record.members.retain(|id, member| {
            let host = self.reported(id);
            if let Some(host) = host {
                refresh(member, host);
            }
            let labels = host.map(|host| Labels::of(host, &cluster));
            // Nobody is left to confirm what a ledger that is lost knew as released.
            let gone =
                self.absent.contains(&cluster) && member.release_reason != Some(ReleaseReason::Orphaned);
            let settled = gone || self.wanted.get(id).is_some_and(|by| *by != cluster);
            let mut mark = host.map(|host| self.mark_of(host));
            if let Some(mark) = &mut mark {
                // Statuses are written before hosts are: a release that is lost would be in it.
                mark.lost = mark.lost && !self.is_claimed_by_status(&cluster, id);
            }
            let shown = mark.zip(labels.as_ref());
            if is_freed(member, shown, settled, synced) {
                return false;
            }
            if member.state != MemberState::Releasing {
                if labels == Some(Labels::Ours(member.role.clone())) {
                    member.state = MemberState::Bound;
                }
                let role = spec.roles().iter().find(|role| role.name == member.role);
                self.follow_topology_key(id, member, role);
                if synced {
                    self.observe_failure(id, member, role, now);
                }
            }
            true
        });
        record.conflicts = self.conflicts(record);
    }

    /// Members whose hosts were made again with the cluster's labels (a restore, a pivot) go on as those.
    fn follow(&self, record: &mut Record) {
        let again = |id: &HostId, member: &Member| {
            let now = self.incarnation(&id.name).filter(|now| now != id)?;
            let labels = Labels::of(self.reported(&now)?, &record.cluster);
            let follows = labels == Labels::Ours(member.role.clone())
                && !record.members.contains_key(&now)
                && self.other_holder(&now, &record.cluster).is_none();
            follows.then(|| (id.clone(), now))
        };
        // Several incarnations of one host can be members, the later of them live: that one goes on. The others are gone.
        let order = |id: &HostId| {
            let member = record.members.get(id);
            member.map(|member| (member.state != MemberState::Releasing, member.revision))
        };
        let mut moved: BTreeMap<HostId, HostId> = BTreeMap::new();
        for (before, now) in record.members.iter().filter_map(|(id, member)| again(id, member)) {
            let other = moved.get(&now);
            if other.is_none_or(|other| order(other) < order(&before)) {
                moved.insert(now, before);
            }
        }
        for (now, before) in moved {
            let Some(mut member) = record.members.remove(&before) else {
                continue;
            };
            // A release that this host shows, now or in a later report, was of an earlier claim than this.
            if member.state != MemberState::Releasing {
                member.revision = UNNUMBERED;
            }
            member.confirmed = false;
            for replaces in record
                .members
                .values_mut()
                .filter_map(|other| other.replaces.as_mut())
            {
                match replaces {
                    Replaces::Beside(host) | Replaces::Alone(host) if *host == before => {
                        host.clone_from(&now);
                    }
                    Replaces::Beside(_) | Replaces::Alone(_) => {}
                }
            }
            record.members.insert(now, member);
        }
    }

    /// When its role has got another topology key, a member's domain is what its host shows of that.
    fn follow_topology_key(&self, id: &HostId, member: &mut Member, role: Option<&Role>) {
        let key = role.and_then(|role| role.topology_key.as_ref());
        let Some(host) = self.model.get(&id.name).filter(|host| host.id == *id) else {
            return;
        };
        if let Some(key) = key.filter(|key| member.domain.as_ref().is_none_or(|domain| domain.key != **key)) {
            member.domain = domain(&host, key);
        }
    }

    /// Members that a newer status names are what it says, whatever became of them since the record was written.
    fn keep_promises(&self, record: &mut Record) {
        for (id, promise) in self.promised.get(&record.cluster).into_iter().flatten() {
            let Some(member) = record.members.get_mut(id) else {
                continue;
            };
            let Promise {
                role,
                state,
                replaces,
                release_reason,
            } = promise;
            member.replaces.clone_from(replaces);
            if *state == MemberState::Releasing || record.releasing {
                begin_release(member, release_reason.unwrap_or(ReleaseReason::Surplus));
            } else {
                member.state = *state;
                member.role.clone_from(role);
                member.release_reason = None;
            }
            member.confirmed = false;
            member.revision = UNNUMBERED;
        }
    }

    /// Hosts that carry the cluster's labels or that its status names, and that nobody else holds, become members: SIP
    /// placed them, or a ledger that is lost.
    fn adopt(&self, record: &mut Record) {
        if record.uid == ABSENT {
            return;
        }
        let none = BTreeMap::new();
        let promised = self.promised.get(&record.cluster).unwrap_or(&none);
        let labelled = self.labelled.get(&record.cluster).into_iter().flatten();
        let candidates: BTreeSet<&HostId> = labelled.chain(promised.keys()).collect();
        for id in candidates {
            if record.members.contains_key(id) || self.other_holder(id, &record.cluster).is_some() {
                continue;
            }
            let Some(host) = self.reported(id) else { continue };
            let promise = promised.get(id);
            let releasing = promise.is_some_and(|promise| promise.state == MemberState::Releasing);
            let (role, state) = match (Labels::of(host, &record.cluster), promise) {
                (Labels::Ours(role), _) => (role, MemberState::Bound),
                (Labels::None | Labels::Partial | Labels::Others(_), Some(promise)) => {
                    (promise.role.clone(), promise.state)
                }
                (Labels::None | Labels::Partial | Labels::Others(_), None) => continue,
            };
            let mut member = self.adopted(record, id, role, state);
            member.replaces = promise.and_then(|promise| promise.replaces.clone());
            if releasing || record.releasing {
                member.state = MemberState::Bound;
                let reason = if record.releasing {
                    ReleaseReason::Deleted
                } else {
                    let reason = promise.and_then(|promise| promise.release_reason);
                    reason.unwrap_or(ReleaseReason::Surplus)
                };
                begin_release(&mut member, reason);
            }
            record.members.insert(id.clone(), member);
        }
    }

    /// A host as a member of the cluster that its labels or status name.
    pub(super) fn adopted(&self, record: &Record, id: &HostId, role: RoleName, state: MemberState) -> Member {
        let wanted = record.spec.roles().iter().find(|wanted| wanted.name == role);
        let key = wanted.and_then(|role| role.topology_key.as_ref());
        let host = self.model.get(&id.name);
        let domain = key.and_then(|key| domain(&host?, key));
        self.new_member(id, role, domain, state)
    }

    fn new_member(&self, id: &HostId, role: RoleName, domain: Option<Domain>, state: MemberState) -> Member {
        let mut member = Member {
            role,
            domain,
            state,
            revision: UNNUMBERED,
            addresses: BTreeMap::new(),
            bmc_address: String::new(),
            failed_since: None,
            unwell_since: None,
            suspended: false,
            replaces: None,
            release_reason: None,
            confirmed: false,
        };
        if let Some(reported) = self.reported(id) {
            refresh(&mut member, reported);
        }
        member
    }

    pub(super) fn decision(&self, record: &Record, now: SystemTime) -> Decision {
        let (request, members) = self.question(record, now);
        ::placement::decide(&self.model, &request, &members)
    }

    /// What there is to decide.
    fn question(&self, record: &Record, now: SystemTime) -> (Request, Vec<::placement::Member>) {
        let request = Request {
            cluster: record.cluster.clone(),
            roles: record.spec.roles().to_vec(),
            networks: record.spec.networks().clone(),
        };
        let failed = |id: &HostId, member: &Member| {
            let role = record.spec.roles().iter().find(|role| role.name == member.role);
            member
                .failed_since
                .and_then(|_| self.failure(id, member, role?, now))
        };
        let members = record.members.iter().map(|(id, member)| ::placement::Member {
            requested: self.is_request(&record.cluster, id, member),
            ..self::member(id, member, failed(id, member))
        });
        (request, members.collect())
    }

    /// Whether the release of a surplus member is only asked for: its host is used, so another may go in its place.
    fn is_request(&self, cluster: &ClusterName, id: &HostId, member: &Member) -> bool {
        member.state == MemberState::Releasing
            && member.release_reason == Some(ReleaseReason::Surplus)
            && !member.confirmed
            && self.reported(id).is_some_and(|host| {
                host.consumer.is_some() && Labels::of(host, cluster) == Labels::Ours(member.role.clone())
            })
    }

    /// Whether another decision could bring the cluster nearer to what it wants, or its releases to an end.
    pub(super) fn is_due(&self, record: &Record) -> bool {
        let mut members = record.members.iter();
        // For a SIPCluster that does not exist nothing more is claimed, and one that wants something else by now says so.
        if self.absent.contains(&record.cluster) || self.is_outdated(record) {
            return false;
        }
        record.waits()
            || !record.releasing && members.any(|(id, member)| self.is_request(&record.cluster, id, member))
    }

    /// Whether the site shows the `SIPCluster` as another than was declared, changed or made again: what is surplus by the
    /// record, as that of a backup, may be wanted by now.
    fn is_outdated(&self, record: &Record) -> bool {
        let observed = self.clusters.get(&record.cluster);
        self.is_made_again(record) || observed.is_some_and(|observed| observed.generation > record.generation)
    }

    /// Says what people should know of members for which nothing is to be decided; a decision says it of the others.
    pub(super) fn report_record(&self, record: &mut Record, now: SystemTime) {
        if record.releasing
            || record.waits()
            || self.absent.contains(&record.cluster)
            || !self.session.synced()
        {
            return;
        }
        let (request, members) = self.question(record, now);
        if let Some(found) = ::placement::settled(&self.model, &request, &members) {
            record.reports = reports(&found);
        }
    }

    pub(super) fn decide_record(&self, record: &mut Record, now: SystemTime) {
        let (request, members) = self.question(record, now);
        // Most declarations change nothing: agents repeat them with every change of a host.
        let decision = match ::placement::settled(&self.model, &request, &members) {
            // Every member stays as it is, so none is named.
            Some(reports) => Decision {
                reports,
                ..Decision::default()
            },
            None => ::placement::decide(&self.model, &request, &members),
        };
        for kept in &decision.keep {
            let Some(member) = record.members.get_mut(&kept.host) else {
                continue;
            };
            member.replaces.clone_from(&kept.replaces);
            if self.is_request(&record.cluster, &kept.host, member) {
                // Another one goes in its place, or the role wants it again.
                member.state = MemberState::Bound;
                member.revision = UNNUMBERED;
                member.release_reason = None;
            }
        }
        for taken in &decision.take {
            let role = request.roles.iter().find(|role| role.name == taken.role);
            let key = role.and_then(|role| role.topology_key.clone());
            let domain = key.zip(taken.domain.clone());
            let domain = domain.map(|(key, value)| Domain { key, value });
            let role = taken.role.clone();
            let mut member = self.new_member(&taken.host, role, domain, MemberState::Claimed);
            member.replaces.clone_from(&taken.replaces);
            record.members.insert(taken.host.clone(), member);
        }
        for release in &decision.release {
            if let Some(member) = record.members.get_mut(&release.host) {
                let reason = answer::release_reason(release.reason);
                begin_release(member, reason);
                // A release that was only asked for is for good once another one has the place.
                member.release_reason = Some(reason);
            }
        }
        record.reports = reports(&decision.reports);
        record.refusal = decision.refusal.as_ref().map(answer::refusal);
        record.conflicts = self.conflicts(record);
    }

    /// A cluster's place among those that wait.
    pub(super) fn turn(&self, record: &Record, now: SystemTime) -> Turn {
        let (request, members) = self.question(record, now);
        Turn::new(&self.model, &request, &members, record.created.map(seconds))
    }
}

/// Seconds since 1970.
fn seconds(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |seconds| -seconds),
    }
}

/// Reports as a record has them. That a host is gone is a conflict already.
fn reports(found: &[::placement::Report]) -> Vec<api::Report> {
    let mut reports = answer::reports(found);
    let gone = ReportKind::HostMissing.kind();
    reports.retain(|report| report.kind != gone);
    reports
}

/// A member as the decision reads it.
pub(super) fn member(id: &HostId, member: &Member, failed: Option<FailReason>) -> ::placement::Member {
    ::placement::Member {
        host: id.clone(),
        role: member.role.clone(),
        state: member.state,
        domain: member.domain.clone(),
        requested: false,
        failed,
        replaces: member.replaces.clone(),
    }
}

/// The domain of a topology key that a host is in.
fn domain(host: &Host, key: &LabelKey) -> Option<Domain> {
    let value = host.labels.get(key)?;
    Some(Domain {
        key: key.clone(),
        value: value.clone(),
    })
}

/// Takes over what the host's data say now; an address that vanished stays as last known.
fn refresh(member: &mut Member, host: &wire::Host) {
    let addresses = convert::addresses(&host.addresses);
    if member.addresses.is_empty() {
        member.addresses = addresses;
    } else {
        member.addresses.extend(addresses);
    }
    if !host.bmc_address.is_empty() {
        member.bmc_address.clone_from(&host.bmc_address);
    }
}
