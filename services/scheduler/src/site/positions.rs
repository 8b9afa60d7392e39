//! The position of the site's history, and which positions that the site shows are accepted.
//!
//! Until the first snapshot of a term is complete the ledger may be one that was lost or restored, so what the site shows
//! beyond it is accepted: the history continues above it. From then on nobody but this process has issued numbers to the site:
//! a mark beyond them is a fault of the host that shows it.

use runtime::quiet::Quiet;

use super::{
    completed_releases::Mark,
    staging::{Author, site_entry},
};
use crate::ledger::{
    Change, Commit, History, SitePosition, TooLarge,
    commit::Permit,
    position::{Cause, MAX_REPORTED},
};

/// How a site's revisions are numbered now, and the earlier numberings as long as the raise that replaced them may not be durable.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    now: History,
    /// The former histories, oldest first. The raise from each to the next one may not be durable yet.
    earlier: Vec<History>,
}

impl Clone for Histories {
    fn clone(&self) -> Self {
        Self {
            now: self.now,
            earlier: self.earlier.clone(),
        }
    }

    /// Reuses the allocation: this runs after each change of a site.
    fn clone_from(&mut self, source: &Self) {
        self.now = source.now;
        self.earlier.clone_from(&source.earlier);
    }
}

impl Histories {
    /// The history that applies from the last staged change on.
    pub(crate) fn now(&self) -> &History {
        &self.now
    }

    /// The position of the site when all up to `durable` is durable. A raise that is staged after that is not part of it.
    pub(crate) fn durable(&self, durable: Commit) -> SitePosition {
        let earlier = self.earlier.iter();
        let mut histories = earlier.chain([&self.now]).rev();
        let known = histories.find(|history| history.raised() <= durable);
        known.unwrap_or(&self.now).at(durable)
    }

    /// Puts a history in the place of the one before, which counts until the raise is durable.
    fn replace(&mut self, history: History, durable: Commit) {
        self.earlier.push(std::mem::replace(&mut self.now, history));
        let superseded = self.earlier.iter().skip(1);
        let superseded = superseded.take_while(|later| later.raised() <= durable).count();
        self.earlier.drain(..superseded);
    }
}

/// How a site's revisions are numbered, which of them are issued, and which ledger knew of them.
#[derive(Clone, Debug)]
pub(super) struct Positions {
    histories: Histories,
    /// Highest revision that this ledger has issued to the site.
    issued: u64,
    /// What the ledger knew of its position when it was opened.
    opened: Opened,
    /// The commit that had raised its position last when a snapshot was complete for the first time since then.
    first_complete_since: Option<Commit>,
    /// Epoch of the history when the last snapshot was complete.
    synced_epoch: u64,
}

/// What a ledger knew of a site's position when it was opened.
#[derive(Clone, Copy, Debug)]
struct Opened {
    /// The highest revision that it was known to have issued.
    known: u64,
    /// The commit that had raised the position last.
    raised: Commit,
}

/// What raises a position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raise<'a> {
    /// The position that was shown.
    pub(super) shown: SitePosition,
    /// Why the position is accepted.
    pub(super) cause: Cause,
    /// Who shows the position, for the log of decisions.
    pub(super) who: &'a str,
}

impl Positions {
    /// The positions of a site whose ledger has issued revisions up to `issued`.
    pub(super) fn new(history: History, issued: u64) -> Self {
        Self {
            histories: Histories {
                now: history,
                earlier: Vec::new(),
            },
            issued,
            opened: Opened {
                known: issued,
                raised: history.raised(),
            },
            first_complete_since: None,
            synced_epoch: 0,
        }
    }

    /// Those of a site that is reset to what is durable: that changes nothing about what the ledger knew when it was opened.
    pub(super) fn reset(&self, history: History, issued: u64) -> Self {
        Self {
            opened: self.opened,
            first_complete_since: self
                .first_complete_since
                .filter(|raised| *raised <= history.raised()),
            ..Self::new(history, issued)
        }
    }

    /// How the site's revisions are numbered from the last staged change on.
    pub(super) fn history(&self) -> &History {
        self.histories.now()
    }

    /// The same, and how they were numbered before.
    pub(super) fn histories(&self) -> &Histories {
        &self.histories
    }

    /// The highest revision that this ledger has issued to the site.
    pub(super) fn issued(&self) -> u64 {
        self.issued
    }

    /// Records that a revision is issued.
    pub(super) fn issue(&mut self, revision: u64) {
        self.issued = self.issued.max(revision);
    }

    /// The highest number that a mark may have.
    pub(super) fn highest_mark(&self) -> u64 {
        if self.is_complete() {
            self.issued
        } else {
            self.issued.max(MAX_REPORTED)
        }
    }

    /// Epoch of the history when the last snapshot was complete.
    pub(super) fn synced_epoch(&self) -> u64 {
        self.synced_epoch
    }

    /// Whether all that was issued to the site is known: a snapshot was complete since the ledger was opened.
    pub(super) fn is_complete(&self) -> bool {
        self.first_complete_since.is_some()
    }

    /// Records that a snapshot is complete.
    pub(super) fn complete(&mut self) {
        self.first_complete_since.get_or_insert(self.history().raised());
        self.synced_epoch = self.history().epoch();
    }

    /// The highest revision that a ledger is known to have issued to the site before anything of it was reported, or that
    /// this one has issued since.
    fn highest_issued(&self) -> u64 {
        if self.is_complete() {
            self.issued
        } else if self.is_raised() {
            self.history().at(self.history().raised()).revision()
        } else {
            self.opened.known
        }
    }

    /// Whether the position was raised since the ledger was opened.
    fn is_raised(&self) -> bool {
        self.history().raised() > self.opened.raised
    }

    /// Whether what the site shows can be the position of any ledger.
    pub(super) fn is_possible(&self, shown: SitePosition) -> bool {
        self.history().is_possible(shown, self.issued)
    }

    /// Whether the site shows more than the ledger knows.
    pub(super) fn is_beyond(&self, shown: SitePosition) -> bool {
        shown.epoch() > self.history().epoch() || shown.revision() > self.highest_issued()
    }

    /// A release mark of that number.
    pub(super) fn mark(&self, number: u64) -> Mark {
        Mark {
            number,
            issued: number <= self.issued,
            lost: self.history().is_lost(number),
        }
    }

    /// Whether a ledger that is lost may know more of a claim or release of this revision than this one.
    pub(super) fn is_before_loss(&self, revision: u64) -> bool {
        self.history().is_before_loss(revision)
    }

    /// Why a ledger has not issued what the site shows, unless an operator has it accepted.
    pub(super) fn loss(&self) -> Cause {
        if self.is_raised() {
            Cause::More
        } else {
            Cause::Lost {
                known: self.highest_issued(),
            }
        }
    }

    /// Stages that the history continues above what was shown. `log` limits the lines about that.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub(super) fn raise(
        &mut self,
        site: &str,
        Raise { shown, cause, who }: Raise<'_>,
        log: &Quiet,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<Commit, TooLarge> {
        let why = format!(
            "{who} position {shown} (epoch.revision), and this ledger has issued only epoch {} and revisions up to {}, as after a loss or \
             a restore: new revisions are above both",
            self.history().epoch(),
            self.highest_issued()
        );
        if let Some(withheld) = log.line() {
            tracing::warn!(site, caller = author.caller, withheld, "{why}");
        }
        let entry = site_entry(site, None, &why, author);
        let before = *self.history();
        let durable = permit.durable();
        let mut history = before;
        let commit = permit.stage(|commit| {
            history = before.raise(shown, cause, commit);
            Change::Raise {
                site: site.to_owned(),
                history,
                decision: Box::new(entry.placed(history.at(commit), commit)),
                commit,
            }
        })?;
        self.histories.replace(history, durable);
        self.issue(history.at(commit).revision());
        Ok(commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raised(history: History, revision: u64, commit: u64) -> History {
        history.raise(SitePosition::new(1, revision), Cause::Repair, Commit::new(commit))
    }

    #[test]
    fn a_raise_counts_when_it_is_durable() {
        let first = History::default();
        let mut positions = Positions::new(first, 3);
        let second = raised(first, 100, 4);
        let third = raised(second, 200, 6);
        positions.histories.replace(second, Commit::new(3));
        positions.histories.replace(third, Commit::new(3));
        assert_eq!(
            positions.histories.durable(Commit::new(3)),
            SitePosition::new(1, 3)
        );
        assert_eq!(
            positions.histories.durable(Commit::new(5)),
            second.at(Commit::new(5))
        );
        assert_eq!(
            positions.histories.durable(Commit::new(6)),
            third.at(Commit::new(6))
        );
    }

    #[test]
    fn histories_before_a_durable_raise_are_forgotten() {
        let mut positions = Positions::new(History::default(), 0);
        for commit in 1..100 {
            let next = raised(*positions.history(), commit * 100, commit);
            positions.histories.replace(next, Commit::new(commit - 1));
            assert!(positions.histories.earlier.len() <= 2, "{positions:?}");
        }
    }

    #[test]
    fn a_mark_above_all_issued_is_impossible_once_complete() {
        let mut positions = Positions::new(History::default(), 7);
        assert_eq!(positions.highest_mark(), MAX_REPORTED);
        positions.complete();
        assert_eq!(positions.highest_mark(), 7);
        assert!(positions.mark(7).issued && !positions.mark(8).issued);
        assert!(positions.is_beyond(SitePosition::new(1, 8)));
    }
}
