//! Records as callers see them and as the ledger stores them, and entries of the log of decisions.

use placement::{HostId, HostName, MemberState, Replaces, RoleName, Uid};
use proto::{inventory::v1 as inventory, placement::v1 as api};

use super::{
    host::addresses_by_network,
    names::{cluster_ref, host_ref},
};
use crate::{
    ledger::{Decision, SitePosition},
    record::{Funnel, Member, Record, Refusal, Report, Subject},
};

/// Maximum number of reports in an answer.
const MAX_REPORTS: usize = 64;

/// A claim's state as callers see it.
#[must_use]
pub fn state(state: MemberState) -> inventory::MemberState {
    match state {
        MemberState::Claimed => inventory::MemberState::Claimed,
        MemberState::Bound => inventory::MemberState::Bound,
        MemberState::Releasing => inventory::MemberState::Releasing,
    }
}

/// The state of a stored claim.
#[must_use]
pub fn parse_member_state(wire: inventory::MemberState) -> Option<MemberState> {
    match wire {
        inventory::MemberState::Claimed => Some(MemberState::Claimed),
        inventory::MemberState::Bound => Some(MemberState::Bound),
        inventory::MemberState::Releasing => Some(MemberState::Releasing),
        inventory::MemberState::Unspecified => None,
    }
}

/// A record as callers see it.
#[must_use]
pub fn placement(site: &str, epoch: u64, record: &Record) -> api::Placement {
    let members = record.members.iter();
    let reports = record.conflicts.iter().chain(&record.reports);
    api::Placement {
        site: site.to_owned(),
        cluster: Some(cluster_ref(&record.id())),
        generation: record.generation,
        revision: Some(SitePosition::new(epoch, record.revision).into()),
        members: members.map(|(id, member)| self::member(id, member)).collect(),
        refusal: record.refusal.as_ref().map(refusal),
        reports: reports.take(MAX_REPORTS).map(report).collect(),
        releasing: record.releasing,
    }
}

fn member(id: &HostId, member: &Member) -> api::Member {
    let Member {
        role,
        ordinal,
        domain,
        state,
        revision,
        addresses,
        bmc_address,
        failed_since,
        move_requested,
        unwell_since,
        suspended,
        replaces,
        release_reason,
        confirmed: _,
    } = member;
    api::Member {
        host: Some(host_ref(id)),
        role: role.as_str().to_owned(),
        ordinal: *ordinal,
        domain: domain
            .as_ref()
            .map(|domain| domain.value.to_string())
            .unwrap_or_default(),
        domain_key: domain
            .as_ref()
            .map(|domain| domain.key.to_string())
            .unwrap_or_default(),
        state: self::state(*state).into(),
        revision: *revision,
        addresses: addresses_by_network(addresses),
        bmc_address: bmc_address.clone(),
        failed_since: failed_since.map(Into::into),
        move_requested: *move_requested,
        unwell_since: unwell_since.map(Into::into),
        suspended: *suspended,
        replaces: replaces.as_ref().map(|old| host_ref(old.host())),
        replaces_alone: match replaces {
            Some(Replaces::Alone(_)) => true,
            Some(Replaces::Beside(_)) | None => false,
        },
        release_reason: release_reason
            .map(|reason| reason.as_str().to_owned())
            .unwrap_or_default(),
    }
}

/// A refusal as callers see it.
pub(super) fn refusal(refusal: &Refusal) -> api::Refusal {
    let Refusal {
        kind,
        roles,
        tight_roles,
        tight_domains,
        helps,
        message,
    } = refusal;
    api::Refusal {
        kind: kind.clone().into_owned(),
        roles: roles.iter().map(funnel).collect(),
        tight_roles: tight_roles.clone(),
        tight_domains: tight_domains.clone(),
        helps: helps.clone(),
        message: message.clone(),
    }
}

fn funnel(funnel: &Funnel) -> api::Funnel {
    let Funnel {
        role,
        wanted,
        matched,
        with_topology,
        eligible,
        free,
        domains,
        short,
        without_address,
    } = funnel;
    api::Funnel {
        role: role.clone(),
        wanted: *wanted,
        matched: *matched,
        with_topology: *with_topology,
        eligible: *eligible,
        free: *free,
        domains: *domains,
        short: *short,
        without_address: *without_address,
    }
}

/// A stored refusal: text for people, so nothing of it is refused.
#[must_use]
pub fn parse_refusal(wire: api::Refusal) -> Refusal {
    let api::Refusal {
        kind,
        roles,
        tight_roles,
        tight_domains,
        helps,
        message,
    } = wire;
    let funnel = |wire: api::Funnel| {
        let api::Funnel {
            role,
            wanted,
            matched,
            with_topology,
            eligible,
            free,
            domains,
            short,
            without_address,
        } = wire;
        Funnel {
            role,
            wanted,
            matched,
            with_topology,
            without_address,
            eligible,
            free,
            domains,
            short,
        }
    };
    Refusal {
        kind: kind.into(),
        roles: roles.into_iter().map(funnel).collect(),
        tight_roles,
        tight_domains,
        helps,
        message,
    }
}

/// A report as callers see it.
#[must_use]
pub fn report(report: &Report) -> api::Report {
    let Report {
        kind,
        host,
        role,
        message,
    } = report;
    api::Report {
        kind: kind.clone().into_owned(),
        host: host.as_ref().map(|Subject { name, uid }| inventory::HostRef {
            namespace: name.namespace().as_str().to_owned(),
            name: name.name().to_owned(),
            uid: uid
                .as_ref()
                .map(|uid| uid.as_str().to_owned())
                .unwrap_or_default(),
        }),
        role: role.as_ref().map(ToString::to_string).unwrap_or_default(),
        message: message.clone(),
    }
}

/// A stored report: for people, so what of it is not valid is left out.
#[must_use]
pub fn parse_report(wire: api::Report) -> Report {
    let api::Report {
        kind,
        host,
        role,
        message,
    } = wire;
    Report {
        kind: kind.into(),
        host: host.and_then(|host| {
            Some(Subject {
                name: HostName::new(host.namespace, host.name).ok()?,
                uid: Uid::new(host.uid).ok(),
            })
        }),
        role: RoleName::new(role).ok(),
        message,
    }
}

/// An entry of the log of decisions as it is stored, and as callers see it.
#[must_use]
pub fn decision(entry: &Decision) -> api::Decision {
    let Decision {
        time,
        position,
        commit,
        caller,
        site,
        cluster,
        action,
        taken,
        releasing,
        bound,
        freed,
        reason,
        found,
        resolved,
    } = entry;
    let hosts = |ids: &[HostId]| ids.iter().map(host_ref).collect();
    let reports = |reports: &[Report]| reports.iter().map(report).collect();
    api::Decision {
        time: time.map(Into::into),
        revision: position.map(Into::into),
        commit: commit.number(),
        caller: caller.clone(),
        site: site.clone(),
        cluster: cluster.as_ref().map(cluster_ref),
        action: action.clone(),
        taken: hosts(taken),
        releasing: hosts(releasing),
        bound: hosts(bound),
        freed: hosts(freed),
        reason: reason.clone(),
        found: reports(found),
        resolved: reports(resolved),
    }
}
