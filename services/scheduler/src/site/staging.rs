//! Entries of the log of decisions, for what is staged with them.

use std::time::SystemTime;

use ::placement::{HostId, MemberState};

use crate::{
    ledger::{Change, Commit, Decision, History, SiteFence, TooLarge, commit::Permit},
    record::{ClusterId, Record, Report},
    violation::clip,
};

/// Maximum length of an entry's reason, in bytes: two policies may differ in more.
const MAX_REASON_BYTES: usize = 4096;

/// Who acts, for the log of decisions.
#[derive(Clone, Debug)]
pub struct Author<'a> {
    /// SPIFFE path of the caller, or `scheduler`.
    pub caller: &'a str,
    /// What is done.
    pub action: &'static str,
    /// Time of the step.
    pub now: SystemTime,
}

/// An entry that is about a site; its place is set when it is staged.
pub(super) fn site_entry(
    site: &str,
    cluster: Option<ClusterId>,
    reason: &str,
    author: &Author<'_>,
) -> Decision {
    Decision {
        time: Some(author.now),
        caller: author.caller.to_owned(),
        site: site.to_owned(),
        cluster,
        action: author.action.to_owned(),
        reason: clip(reason, MAX_REASON_BYTES).to_owned(),
        ..Decision::default()
    }
}

/// Stages an entry that is about a site; its fence is written with it.
///
/// # Errors
/// [`TooLarge`].
pub(super) fn stage_site_entry(
    entry: Decision,
    fence: Option<SiteFence>,
    history: &History,
    permit: Permit,
) -> Result<Commit, TooLarge> {
    permit.stage(|commit| Change::Fence {
        site: entry.site.clone(),
        fence,
        decision: Box::new(entry.placed(history.at(commit), commit)),
        commit,
    })
}

/// The entry for the step of a cluster from `before` to `after`; its place is set when it is staged.
pub(super) fn step_entry(
    site: &str,
    before: Option<&Record>,
    after: &Record,
    author: &Author<'_>,
) -> Decision {
    let earlier = |id: &HostId| {
        let member = before.and_then(|before| before.members.get(id));
        member.map(|member| member.state)
    };
    let entered = |state: MemberState| {
        let members = after.members.iter();
        let new = members.filter(|(id, member)| member.state == state && earlier(id) != Some(state));
        new.map(|(id, _)| id.clone()).collect()
    };
    let reports = |record: &Record| [&*record.conflicts, &*record.reports].concat();
    let (old, new) = (before.map(reports).unwrap_or_default(), reports(after));
    let only_in = |these: &[Report], others: &[Report]| -> Vec<Report> {
        let only = these.iter().filter(|report| !others.contains(report));
        only.cloned().collect()
    };
    let held = before.into_iter().flat_map(|before| before.members.keys());
    let refusal = after.refusal.as_ref();
    Decision {
        time: Some(author.now),
        position: None,
        commit: Commit::NONE,
        caller: author.caller.to_owned(),
        site: site.to_owned(),
        cluster: Some(after.id()),
        action: author.action.to_owned(),
        taken: entered(MemberState::Claimed),
        releasing: entered(MemberState::Releasing),
        bound: entered(MemberState::Bound),
        freed: held
            .filter(|id| !after.members.contains_key(*id))
            .cloned()
            .collect(),
        reason: refusal.map(|refusal| refusal.message.clone()).unwrap_or_default(),
        found: only_in(&new, &old),
        resolved: only_in(&old, &new),
    }
}
