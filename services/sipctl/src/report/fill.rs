//! Decisions, as the contract says them.

use std::collections::BTreeMap;

use placement::{ClusterName, Decision, FailReason, HostName, LabelValue, Member, RoleName};

use super::{
    Change, Cluster, Funnel, Host, Outcome, Refusal, Release, ReleaseReason, Remark, Role, Tight, TightDomain,
};

/// What was decided for a cluster. `wanted` are the roles of its spec; `remarks` are known from its input.
pub(crate) fn cluster(
    name: &ClusterName,
    wanted: &[placement::Role],
    decision: &Decision,
    remarks: Vec<Remark>,
) -> Cluster {
    let Decision {
        keep,
        take,
        release,
        reports,
        funnels: _,
        refusal,
    } = decision;
    let mut roles: BTreeMap<String, Role> = BTreeMap::new();
    for role in wanted {
        roles.entry(role.name.to_string()).or_default().want = role.want;
    }
    for given in release {
        roles.entry(given.role.to_string()).or_default();
    }
    let kept = keep.iter().map(|kept| {
        (
            &kept.role,
            host(&kept.host.name, kept.domain.as_ref(), Change::Keep),
        )
    });
    let taken = take.iter().map(|taken| {
        (
            &taken.role,
            host(&taken.host.name, taken.domain.as_ref(), Change::Take),
        )
    });
    for (role, host) in kept.chain(taken) {
        roles.entry(role.to_string()).or_default().hosts.push(host);
    }
    for role in roles.values_mut() {
        role.hosts.sort();
    }
    let mut release: Vec<Release> = release
        .iter()
        .map(|given| Release {
            host: given.host.name.to_string(),
            role: given.role.to_string(),
            reason: release_reason(given.reason),
        })
        .collect();
    release.sort();
    let mut reports: Vec<Remark> = reports.iter().map(report).chain(remarks).collect();
    reports.sort_by(|a, b| a.order().cmp(&b.order()));
    Cluster {
        cluster: name.to_string(),
        outcome: match decision.outcome() {
            placement::Outcome::Placed => Outcome::Placed,
            placement::Outcome::Partial => Outcome::Partial,
            placement::Outcome::Refused => Outcome::Refused,
        },
        roles,
        release,
        reports,
        refusal: refusal.as_ref().map(self::refusal),
    }
}

/// A cluster that breaks a rule.
pub(crate) fn invalid(name: &ClusterName, message: &str, mut reports: Vec<Remark>) -> Cluster {
    reports.sort_by(|a, b| a.order().cmp(&b.order()));
    Cluster {
        cluster: name.to_string(),
        outcome: Outcome::Invalid,
        roles: BTreeMap::new(),
        release: Vec::new(),
        reports,
        refusal: Some(Refusal {
            kind: "invalid".to_owned(),
            roles: BTreeMap::new(),
            tight: Tight::default(),
            helps: Vec::new(),
            message: message.to_owned(),
        }),
    }
}

/// A cluster that is being deleted: all that it has is released. `roles` are those of its spec.
pub(crate) fn released_whole<'a>(
    name: &ClusterName,
    roles: impl IntoIterator<Item = &'a RoleName>,
    members: &'a [Member],
    mut reports: Vec<Remark>,
) -> Cluster {
    let of_members = members.iter().map(|member| &member.role);
    let mut release: Vec<Release> = members
        .iter()
        .map(|member| Release {
            host: member.host.name.to_string(),
            role: member.role.to_string(),
            reason: ReleaseReason::Deleted,
        })
        .collect();
    release.sort();
    reports.sort_by(|a, b| a.order().cmp(&b.order()));
    Cluster {
        cluster: name.to_string(),
        outcome: Outcome::Placed,
        roles: roles
            .into_iter()
            .chain(of_members)
            .map(|role| (role.to_string(), Role::default()))
            .collect(),
        release,
        reports,
        refusal: None,
    }
}

/// A remark; its message names the host, as the scheduler's do.
pub(crate) fn remark(kind: &str, host: Option<&HostName>, role: Option<&RoleName>, sentence: &str) -> Remark {
    Remark {
        kind: kind.to_owned(),
        host: host.map(ToString::to_string),
        role: role.map(ToString::to_string),
        message: match host {
            Some(host) => format!("{host}: {sentence}"),
            None => sentence.to_owned(),
        },
    }
}

fn report(report: &placement::Report) -> Remark {
    let placement::Report { role, host, kind } = report;
    remark(kind.kind(), host.as_ref(), role.as_ref(), &kind.to_string())
}

fn host(name: &HostName, domain: Option<&LabelValue>, change: Change) -> Host {
    Host {
        host: name.to_string(),
        domain: domain.map(ToString::to_string),
        change,
    }
}

fn release_reason(reason: placement::ReleaseReason) -> ReleaseReason {
    match reason {
        placement::ReleaseReason::Surplus => ReleaseReason::Surplus,
        placement::ReleaseReason::Failed(FailReason::Gone) => ReleaseReason::Gone,
        placement::ReleaseReason::Failed(
            FailReason::MarkedFailed
            | FailReason::InError
            | FailReason::UsedBeforeLabelled
            | FailReason::WriteRefused
            | FailReason::MoveRequested,
        )
        | placement::ReleaseReason::Moved => ReleaseReason::Failed,
    }
}

fn refusal(refusal: &placement::Refusal) -> Refusal {
    let placement::Refusal {
        kind,
        roles,
        tight,
        helps,
    } = refusal;
    Refusal {
        kind: kind.kind().to_owned(),
        roles: roles
            .iter()
            .map(|(role, funnel)| (role.to_string(), self::funnel(funnel)))
            .collect(),
        tight: self::tight(tight),
        helps: helps.iter().map(|help| refusal.help_message(help)).collect(),
        message: refusal.message(),
    }
}

fn funnel(funnel: &placement::Funnel) -> Funnel {
    let placement::Funnel {
        key: _,
        selector: _,
        want: _,
        have: _,
        placeable: _,
        matched,
        with_topology,
        networks: _,
        without_address: _,
        eligible,
        free,
        domains,
        short,
    } = funnel;
    Funnel {
        matched: *matched,
        with_topology: *with_topology,
        eligible: *eligible,
        free: *free,
        domains: *domains,
        short: *short,
    }
}

fn tight(tight: &placement::Tight) -> Tight {
    let placement::Tight {
        roles,
        compete: _,
        demand,
        deficit,
        domains,
        hosts,
        waiting,
    } = tight;
    let mut hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    hosts.sort();
    Tight {
        roles: roles.iter().map(ToString::to_string).collect(),
        demand: *demand,
        deficit: *deficit,
        domains: domains
            .iter()
            .map(|(role, domain)| TightDomain {
                role: role.to_string(),
                domain: domain.to_string(),
            })
            .collect(),
        hosts,
        waiting: *waiting,
    }
}
