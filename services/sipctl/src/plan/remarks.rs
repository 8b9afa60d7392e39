//! What people should know that follows from the input, not from the decision.

use placement::{Decision, HostName, RoleName};

use super::holdings::{Holdings, MismatchKind, StatusMismatch, UnassignableHost, UnassignableKind};
use crate::input::{Declared, Input};
use crate::line::one_line;
use crate::report::{Remark, remark};

/// Maximum number of characters of the faults of a host.
const MAX_FAULT_CHARACTERS: usize = 1024;

pub(super) fn collect(
    input: &Input,
    declared: &Declared,
    holdings: &Holdings,
    decision: &Decision,
) -> Vec<Remark> {
    let mut remarks = Vec::new();
    if !input.has_addresses && !declared.deleting && declared.request.is_ok() {
        let sentence =
            "no Secret that the networkData of a host names is in the input, so addresses are not checked";
        remarks.push(remark("addresses-unchecked", None, None, sentence));
    }
    let unassignable = holdings
        .unassignable
        .iter()
        .filter(|host| host.concerns(&declared.name));
    remarks.extend(unassignable.map(about_unassignable));
    remarks.extend(
        holdings
            .mismatches
            .get(&declared.name)
            .into_iter()
            .flatten()
            .map(about_mismatch),
    );
    let kept = decision.keep.iter().map(|kept| (&kept.host.name, &kept.role));
    let taken = decision.take.iter().map(|taken| (&taken.host.name, &taken.role));
    for (host, role) in kept.chain(taken) {
        remarks.extend(problems(input, host, role));
    }
    remarks
}

pub(super) fn about_unassignable(unassignable: &UnassignableHost) -> Remark {
    let UnassignableHost {
        host,
        names,
        role,
        kind,
        concerned: _,
    } = unassignable;
    let (kind, sentence) = match kind {
        UnassignableKind::Partial => (
            "labels-partial",
            "it has only some of SIP's labels, or not valid ones; it is neither a member nor free".to_owned(),
        ),
        UnassignableKind::Orphaned => (
            "orphaned",
            format!(
                "its labels name SIPCluster {}, which is not in the input; it is not free",
                names.as_ref().map(ToString::to_string).unwrap_or_default()
            ),
        ),
    };
    remark(kind, Some(host), role.as_ref(), &sentence)
}

fn about_mismatch(mismatch: &StatusMismatch) -> Remark {
    let StatusMismatch { host, role, kind } = mismatch;
    let (kind, sentence) = match kind {
        MismatchKind::NotLabelled => (
            "not-labelled",
            "it is claimed in status.placement, and not labelled yet",
        ),
        MismatchKind::Releasing => (
            "releasing",
            "it is being released: it does not count, and is not free yet",
        ),
        MismatchKind::ReleaseRequested => (
            "releasing",
            "its release is requested while an object uses it: the member is kept if the role wants it again",
        ),
        MismatchKind::NotAMember => (
            "not-a-member",
            "status.placement names it, but its labels do not name the cluster; it is not a member",
        ),
    };
    remark(kind, Some(host), Some(role), sentence)
}

fn problems(input: &Input, host: &HostName, role: &RoleName) -> Vec<Remark> {
    let faults = input
        .hosts
        .get(host)
        .map(|observed| observed.faults.as_slice())
        .unwrap_or_default();
    let said = |fault: &String| {
        remark(
            "problem",
            Some(host),
            Some(role),
            &one_line(fault, MAX_FAULT_CHARACTERS),
        )
    };
    faults.iter().map(said).collect()
}
