//! Changes that the storage refuses: one that is refused concerns its site alone.
//!
//! A refused change was decided and numbered, and others of its site may have been decided on top of it. None of them is
//! made: the site is reset to what is durable, its agent reports again, and each of the numbers is used by an entry of the
//! log that says so. Changes of other sites are stored as they are.

use super::{Change, Commit, Contents, Decision};
use crate::violation::clip;

/// Maximum length of a cause in an entry of the log, in bytes.
const MAX_CAUSE_BYTES: usize = 1024;

/// A change that the storage refuses.
#[derive(Debug)]
pub struct Refusal<'a> {
    /// The site that it is about.
    pub site: &'a str,
    /// Its number.
    pub commit: Commit,
    /// Message of the storage.
    pub cause: &'a str,
    /// What the ledger holds without it.
    pub durable: &'a Contents,
}

/// The change that takes the number of a refused one: an entry of the log.
pub(super) fn substitute(refused: &Change, cause: &str, durable: &Contents) -> Change {
    let (site, entry, commit) = (refused.site(), refused.decision(), refused.commit());
    // A refused change may have raised the history.
    let history = durable.histories.get(site).copied().unwrap_or_default();
    Change::Fence {
        site: site.to_owned(),
        fence: durable.fences.get(site).cloned(),
        decision: Box::new(Decision {
            time: entry.time,
            position: Some(history.at(commit)),
            commit,
            caller: clip(&entry.caller, MAX_CAUSE_BYTES).to_owned(),
            site: site.to_owned(),
            action: "refused".to_owned(),
            reason: format!(
                "{}: {}",
                clip(&entry.action, MAX_CAUSE_BYTES),
                clip(cause, MAX_CAUSE_BYTES)
            ),
            ..Decision::default()
        }),
        commit,
    }
}
