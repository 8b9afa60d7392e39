//! What is decided, into a copy of a record. Pure: nothing is staged here.

use std::time::SystemTime;

use ::placement::{Decision, Domain, HostId, MemberState, ReportKind, Request, Withheld, whatif::Priority};

use super::{conflicts::conflicts, failures, requested_releases::is_request, settle::new_member, view::View};
use crate::record::{Member, Record, Refusal, ReleaseReason, Report};

/// Decides a record: claims what is missing but for what is withheld, releases what is too much, and says why it does not get all.
pub(super) fn decide(view: View<'_>, record: &mut Record, withheld: Withheld, now: SystemTime) {
    let (request, members) = request_and_members(view, record, now);
    // Most declarations change nothing: agents repeat them with every change of a host.
    let site = view.inventory.model();
    let decision = if let Some(reports) = ::placement::reports_without_decision(site, &request, &members) {
        // Every member stays as it is, so none is named.
        Decision {
            reports,
            ..Decision::default()
        }
    } else {
        ::placement::decide_without(site, &request, &members, withheld)
    };
    let cluster = record.cluster.clone();
    for keep in &decision.keep {
        let Some(member) = record.members.get_mut(&keep.host) else {
            continue;
        };
        member.replaces.clone_from(&keep.replaces);
        if is_request(view, &cluster, &keep.host, member) {
            // Another one goes in its place, or the role wants it again.
            member.state = MemberState::Bound;
            member.renumber();
            member.release_reason = None;
        }
    }
    for take in &decision.take {
        let role = request.roles.iter().find(|role| role.name == take.role);
        let key = role.and_then(|role| role.topology_key.clone());
        let domain = key.zip(take.domain.clone());
        let domain = domain.map(|(key, value)| Domain { key, value });
        let role = take.role.clone();
        let mut member = new_member(view, &take.host, role, domain, MemberState::Claimed);
        member.replaces.clone_from(&take.replaces);
        record.members.insert(take.host.clone(), member);
    }
    for release in &decision.release {
        if let Some(member) = record.members.get_mut(&release.host) {
            let reason = ReleaseReason::from(release.reason);
            member.begin_release(reason);
            // A release that was only requested is for good once another one has the place.
            member.release_reason = Some(reason);
        }
    }
    record.reports = reports(&decision.reports);
    if withheld.replacements_above < u32::MAX {
        record.reports.truncate(::placement::MAX_REPORTS - 1);
        record.reports.push(no_room());
    }
    // A decision without growth does not determine what is missing, so the record keeps its former refusal.
    if !withheld.growth {
        record.refusal = decision.refusal.as_ref().map(Refusal::from);
    }
    record.conflicts = conflicts(view, record);
}

fn no_room() -> Report {
    Report {
        kind: "replacement-waits".into(),
        message: "members wait to be replaced: the status of the SIPCluster has no space for more until hosts that are being \
                  released are free"
            .to_owned(),
        ..Report::default()
    }
}

/// What the decision for a record withholds, whatever hosts there are.
pub(super) fn withheld(record: &Record) -> Withheld {
    if record.spec.is_too_large() {
        Withheld::GROWTH
    } else {
        Withheld::NOTHING
    }
}

/// All input of a decision, copied from the site, so that deciding needs no lock.
#[derive(Debug)]
pub struct DecisionInput {
    model: ::placement::Site,
    request: Request,
    members: Vec<::placement::Member>,
    withheld: Withheld,
}

impl DecisionInput {
    /// Decides. Takes longer the more hosts the site has and the cluster wants.
    #[must_use]
    pub fn decide(&self) -> Decision {
        let Self {
            model,
            request,
            members,
            withheld,
        } = self;
        ::placement::decide_without(model, request, members, *withheld)
    }
}

/// What there is to decide for a record, which stays as it is.
pub(super) fn decision_input(view: View<'_>, record: &Record, now: SystemTime) -> DecisionInput {
    let (request, members) = request_and_members(view, record, now);
    DecisionInput {
        model: view.inventory.model().clone(),
        request,
        members,
        withheld: withheld(record),
    }
}

/// Says what people should know of members for which nothing is to be decided; a decision states it of the others.
pub(super) fn report(view: View<'_>, record: &mut Record, now: SystemTime) {
    if record.releasing || record.waits() || view.existence.is_missing(&record.cluster) || !view.synced {
        return;
    }
    let (request, members) = request_and_members(view, record, now);
    if let Some(found) = ::placement::reports_without_decision(view.inventory.model(), &request, &members) {
        record.reports = reports(&found);
    }
}

/// Whether another decision could bring the cluster nearer to what it wants, or its releases to an end.
pub(super) fn is_due(view: View<'_>, record: &Record) -> bool {
    // For a SIPCluster that does not exist nothing more is claimed, and one that wants something else by now says so.
    if view.existence.is_missing(&record.cluster) || view.existence.is_outdated(record) {
        return false;
    }
    let mut members = record.members.iter();
    record.waits()
        || !record.releasing && members.any(|(id, member)| is_request(view, &record.cluster, id, member))
}

/// A cluster's place among those that wait.
pub(super) fn priority(view: View<'_>, record: &Record, now: SystemTime) -> Priority {
    let (request, members) = request_and_members(view, record, now);
    let created = record.created.map(seconds);
    Priority::new(view.inventory.model(), &request, &members, created)
}

/// The request and the members that a decision for the record has as its input.
fn request_and_members(
    view: View<'_>,
    record: &Record,
    now: SystemTime,
) -> (Request, Vec<::placement::Member>) {
    let request = Request {
        cluster: record.cluster.clone(),
        roles: record.spec.roles().to_vec(),
        networks: record.spec.networks().clone(),
    };
    let failed = |id: &HostId, member: &Member| {
        let role = record.spec.roles().iter().find(|role| role.name == member.role);
        member
            .failed_since
            .and_then(|_| failures::failure(view, id, member, role?, now))
    };
    let members = record.members.iter().map(|(id, member)| ::placement::Member {
        requested: is_request(view, &record.cluster, id, member),
        ..failures::as_decided(id, member, failed(id, member))
    });
    (request, members.collect())
}

/// Reports as a record has them. That a host is gone is a conflict already.
fn reports(found: &[::placement::Report]) -> Vec<Report> {
    let mut reports = Report::list(found);
    let gone = ReportKind::HostMissing.kind();
    reports.retain(|report| report.kind != gone);
    reports
}

/// Seconds since 1970.
fn seconds(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |seconds| -seconds),
    }
}
