//! When the host of a member is free again.

use ::placement::MemberState;

use crate::{observed::Labels, record::Member};

/// The release mark that a host shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// The number; 0 for none.
    pub(super) number: u64,
    /// This ledger has come as far in the site's history.
    pub(super) issued: bool,
    /// A ledger that is lost has issued it, and may have released the host with it.
    pub(super) lost: bool,
}

/// Whether a member's host is free: `observed` is its mark and labels; `presumed_confirmed`: the release was confirmed to a ledger
/// that is lost, since another cluster has claimed the host, or the cluster is missing and the ledger was lost after the release. Revisions
/// of a site ascend through epochs, so the number of a release mark alone orders them.
///
/// That a report does not have a host is not enough: it may be older than the host. The agent confirms that a host is gone
/// when it has asked the API server itself, after the release.
///
/// The agent's confirmation counts whatever higher number the host shows: no agent labels a host whose mark is not below its
/// claim. Without the confirmation a mark counts only as far as a ledger has issued it.
pub(super) fn is_freed(
    member: &Member,
    observed: Option<(Mark, Labels<'_>)>,
    presumed_confirmed: bool,
    synced: bool,
) -> bool {
    let Some((mark, labels)) = observed else {
        return synced && member.state == MemberState::Releasing && member.confirmed;
    };
    if !member.is_numbered() {
        return false;
    }
    let Mark { number, issued, lost } = mark;
    match (member.state, labels) {
        (MemberState::Releasing, Labels::None) => {
            number >= member.revision && (member.confirmed || presumed_confirmed && issued)
        }
        // The release was written, and the host given away since: by a ledger that is lost.
        (MemberState::Releasing, Labels::Others(_)) => number >= member.revision && issued,
        // It was released after this claim: by a ledger that is lost. This one knows its own releases.
        (MemberState::Claimed | MemberState::Bound, Labels::None | Labels::Others(_)) => {
            synced && lost && number > member.revision
        }
        (_, Labels::Partial | Labels::Ours(_)) => false,
    }
}
