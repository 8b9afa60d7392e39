//! Decisions that claim nothing, as callers see them.

use placement::{Decision, HostId, LabelValue, RoleName};
use proto::placement::v1 as api;

use super::{
    names::host_ref,
    placement::{refusal, report},
};
use crate::{
    record::{Refusal, Report},
    region::SiteState,
};

/// A decision that claims nothing, and the state of the site that it was made in.
#[must_use]
pub fn plan(decision: &Decision, state: SiteState) -> api::PlanClusterResponse {
    let keep = decision.keep.iter();
    let keep = keep.map(|keep| planned(&keep.host, &keep.role, keep.domain.as_ref(), "keep"));
    let take = decision.take.iter();
    let take = take.map(|take| planned(&take.host, &take.role, take.domain.as_ref(), "take"));
    let release = decision.release.iter();
    let release = release.map(|release| planned(&release.host, &release.role, None, "release"));
    let mut members: Vec<_> = keep.chain(take).chain(release).collect();
    members.sort_by(|a, b| host_name(a).cmp(&host_name(b)));
    api::PlanClusterResponse {
        members,
        refusal: decision
            .refusal
            .as_ref()
            .map(|found| refusal(&Refusal::from(found))),
        reports: Report::list(&decision.reports).iter().map(report).collect(),
        site_state: Some(state.into()),
    }
}

fn planned(host: &HostId, role: &RoleName, domain: Option<&LabelValue>, change: &str) -> api::PlannedMember {
    api::PlannedMember {
        host: Some(host_ref(host)),
        role: role.as_str().to_owned(),
        domain: domain
            .map(|domain| domain.as_str().to_owned())
            .unwrap_or_default(),
        change: change.to_owned(),
    }
}

/// By what planned members are sorted.
fn host_name(member: &api::PlannedMember) -> Option<(&str, &str)> {
    let host = member.host.as_ref();
    host.map(|host| (&*host.namespace, &*host.name))
}
