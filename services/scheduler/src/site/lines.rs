//! Log lines about a site.

use runtime::quiet::Quiet;

/// How often each kind of line is logged: they come as often as the site's agents and tenants like.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// A cluster does not grow.
    pub(super) growth: Quiet,
    /// What was claimed for no `SIPCluster` is released.
    pub(super) forgotten: Quiet,
    /// A step that no caller requested is not made.
    pub(super) undone: Quiet,
    /// `SIPCluster`s are left out.
    pub(super) left_out: Quiet,
    /// A host is held for a cluster whose status names it.
    pub(super) promised: Quiet,
    /// Another reporter takes over, or the fence is reset.
    pub(super) fences: Quiet,
    /// A reporter says that it has seen a position that was not issued.
    pub(super) not_issued: Quiet,
    /// The position of the site is raised.
    pub(super) raised: Quiet,
    /// What a snapshot has not listed yet is removed.
    pub(super) unnamed: Quiet,
    /// Notes are not in the log of decisions.
    pub(super) notes: Quiet,
}
