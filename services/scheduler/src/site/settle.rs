//! What is observed and what is decided, into a copy of a record. Pure: nothing is staged here.

use std::{collections::BTreeMap, time::SystemTime};

use ::placement::{ClusterName, FailReason, HostId, MemberState, Request, Role, SipLabels};
use proto::inventory::v1 as wire;

use super::{
    Site,
    claims::{UNNUMBERED, begin_release},
};
use crate::{
    answer, convert,
    record::{Member, Record},
};

impl Site {
    /// Brings the record in line with what is observed. Level-triggered: the order of observations does not matter.
    pub(super) fn settle_record(&self, record: &mut Record, now: SystemTime) {
        self.adopt(record);
        let synced = self.session.synced();
        let cluster = record.cluster.clone();
        let spec = record.spec.clone();
        record.members.retain(|id, member| {
            let reported = self.reported(id);
            if let Some(host) = reported {
                refresh(member, host);
            }
            let host = self.model.get(&id.name).filter(|host| host.id == *id);
            let gone = synced && host.is_none();
            match member.state {
                MemberState::Releasing => {
                    let shown = reported.is_some_and(|host| shows_release(host, member.revision));
                    !(gone || member.confirmed && shown)
                }
                MemberState::Claimed | MemberState::Bound => {
                    if let Some(host) = &host
                        && holds_labels(&host.sip_labels, &cluster, member)
                    {
                        member.state = MemberState::Bound;
                    }
                    let role = spec.roles().iter().find(|role| role.name == member.role);
                    let failed =
                        synced && role.is_some_and(|role| self.failure(id, member, role, now).is_some());
                    member.failed_since = failed.then(|| member.failed_since.unwrap_or(now));
                    true
                }
            }
        });
    }

    /// Hosts that carry the cluster's labels and that nobody holds become members: SIP placed them, or a ledger
    /// that is lost.
    fn adopt(&self, record: &mut Record) {
        for id in self.labelled.get(&record.cluster).into_iter().flatten() {
            if record.members.contains_key(id) || self.model.holder(id).is_some() {
                continue;
            }
            let Some(host) = self.model.get(&id.name) else {
                continue;
            };
            let SipLabels::Complete { cluster: _, role } = &host.sip_labels else {
                continue;
            };
            let key = record
                .spec
                .roles()
                .iter()
                .find(|wanted| wanted.name == *role)
                .and_then(|role| role.topology_key.as_ref());
            let mut member = Member {
                role: role.clone(),
                domain: key.and_then(|key| host.labels.get(key)).cloned(),
                state: MemberState::Bound,
                revision: UNNUMBERED,
                addresses: BTreeMap::new(),
                bmc_address: String::new(),
                failed_since: None,
                replaces: None,
                release_reason: None,
                confirmed: false,
            };
            if let Some(reported) = self.reported(id) {
                refresh(&mut member, reported);
            }
            record.members.insert(id.clone(), member);
        }
    }

    pub(super) fn decision(&self, record: &Record, now: SystemTime) -> ::placement::Decision {
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
        let members: Vec<_> = record
            .members
            .iter()
            .map(|(id, member)| self::member(id, member, failed(id, member)))
            .collect();
        ::placement::decide(&self.model, &request, &members)
    }

    fn failure(&self, id: &HostId, member: &Member, role: &Role, now: SystemTime) -> Option<FailReason> {
        let since = self.reported(id).and_then(|host| convert::time(host.error_since));
        let in_error_for = since.and_then(|since| now.duration_since(since).ok());
        ::placement::failure(&self.model, role, &self::member(id, member, None), in_error_for)
    }

    pub(super) fn decide_record(&self, record: &mut Record, now: SystemTime) {
        let decision = self.decision(record, now);
        for taken in &decision.take {
            let mut member = Member {
                role: taken.role.clone(),
                domain: taken.domain.clone(),
                state: MemberState::Claimed,
                revision: UNNUMBERED,
                addresses: BTreeMap::new(),
                bmc_address: String::new(),
                failed_since: None,
                replaces: taken.replaces.clone(),
                release_reason: None,
                confirmed: false,
            };
            if let Some(reported) = self.reported(&taken.host) {
                refresh(&mut member, reported);
            }
            record.members.insert(taken.host.clone(), member);
        }
        for release in &decision.release {
            if let Some(member) = record.members.get_mut(&release.host) {
                begin_release(member, answer::release_reason(release.reason));
            }
        }
        record.reports = answer::reports(&decision.reports);
        record.refusal = decision.refusal.as_ref().map(answer::refusal);
    }
}

/// A member as the decision reads it.
fn member(id: &HostId, member: &Member, failed: Option<FailReason>) -> ::placement::Member {
    ::placement::Member {
        host: id.clone(),
        role: member.role.clone(),
        state: member.state,
        domain: member.domain.clone(),
        failed,
        replaces: member.replaces.clone(),
    }
}

/// Takes over what the host's data say now; an address that vanished stays as last known.
fn refresh(member: &mut Member, host: &wire::Host) {
    member.addresses.extend(convert::addresses(&host.addresses));
    if !host.bmc_address.is_empty() {
        member.bmc_address.clone_from(&host.bmc_address);
    }
}

fn holds_labels(labels: &SipLabels, cluster: &ClusterName, member: &Member) -> bool {
    match labels {
        SipLabels::Complete { cluster: named, role } => named == cluster && *role == member.role,
        SipLabels::None | SipLabels::Partial => false,
    }
}

/// Whether the host carries no SIP label and the mark of this release or a later one. Revisions ascend through epochs,
/// so the number alone orders them.
fn shows_release(host: &wire::Host, revision: u64) -> bool {
    let unlabelled = [
        convert::sip_label::NAMESPACE,
        convert::sip_label::NAME,
        convert::sip_label::ROLE,
    ]
    .iter()
    .all(|key| !host.labels.contains_key(*key));
    unlabelled && host.release_mark >= revision
}
