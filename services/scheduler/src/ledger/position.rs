//! Where histories stand: the region's order of commits, and each site's own position.
//!
//! The ledger numbers its changes one after the other: a [`Commit`]. Nothing that is reported moves that number. What a
//! site sees are its own revisions: the number of the commit plus the site's offset, in the site's epoch ([`History`]).
//! A site that shows a number which this ledger has not issued to it moves its own offset and epoch, and nobody else's.
//!
//! No number can reach its end. A commit adds one. An offset is raised only to get above a number that was shown, and a
//! number above [`MAX_REPORTED`] that the site has not reached is not accepted: so an offset is `MAX_REPORTED + 1` at most.

use std::fmt;

use proto::ledger::v1 as disk;

/// The highest number to which a report moves a site. What the ledger itself has issued may be higher, and is never refused.
pub const MAX_REPORTED: u64 = 1 << 62;
/// Exclusive upper bound of the numbers of commits and epochs: at a million commits a second a ledger takes 290,000 years to get there.
const NUMBER_BOUND: u64 = 1 << 63;

/// Number of a change in the order in which the region's ledger stores them. No site sees it but in the log of decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Commit(u64);

impl Commit {
    /// Before the first change.
    pub const NONE: Self = Self(0);
    /// After every change that can be.
    pub const MAX: Self = Self(u64::MAX);

    /// The commit of that number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The commit of that number, which comes out of storage or an export.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub(crate) fn parse(number: u64) -> Result<Self, String> {
        if number < NUMBER_BOUND {
            Ok(Self(number))
        } else {
            Err(format!(
                "commit {number} is above any that a ledger can have reached"
            ))
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The one after it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A position in the history of one site. It has no order of its own: only a [`History`] of the same site can tell whether
/// it has been reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SitePosition {
    epoch: u64,
    revision: u64,
}

impl SitePosition {
    /// The position of that epoch and revision.
    #[must_use]
    pub const fn new(epoch: u64, revision: u64) -> Self {
        Self { epoch, revision }
    }

    /// Its epoch.
    #[must_use]
    pub const fn epoch(self) -> u64 {
        self.epoch
    }

    /// Its revision.
    #[must_use]
    pub const fn revision(self) -> u64 {
        self.revision
    }

    /// The higher epoch and the higher revision of two numbers that the same site shows.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        Self {
            epoch: self.epoch.max(other.epoch),
            revision: self.revision.max(other.revision),
        }
    }
}

impl fmt::Display for SitePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.revision)
    }
}

/// Revisions that a lost ledger issued: those above `after`, up to and including `before`. `before` is the number of the raise itself, which no
/// claim or release ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lost {
    after: u64,
    before: u64,
}

/// How a site numbers what the ledger commits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct History {
    epoch: u64,
    offset: u64,
    raised: Commit,
    lost: Option<Lost>,
}

impl Default for History {
    /// That of a site of which the ledger has none.
    fn default() -> Self {
        Self {
            epoch: 1,
            offset: 0,
            raised: Commit::NONE,
            lost: None,
        }
    }
}

/// Why a site's position is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The ledger was lost or restored: it has issued revisions above this one that it does not know.
    Lost {
        /// The highest revision that it knows.
        known: u64,
    },
    /// More was shown after [`Cause::Lost`], before anything was decided.
    More,
    /// An operator has ordered that the position that the site shows is accepted.
    Repair,
}

impl History {
    /// That of a site in a ledger that had one position for all: its epoch, and revisions that are numbers of commits.
    #[must_use]
    pub fn of_region(epoch: u64) -> Self {
        Self {
            epoch: epoch.max(1),
            ..Self::default()
        }
    }

    /// Its epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The commit that has raised the epoch.
    #[must_use]
    pub fn raised(&self) -> Commit {
        self.raised
    }

    /// The position of a commit, or where the site is at least when all up to it is durable.
    #[must_use]
    pub fn at(&self, commit: Commit) -> SitePosition {
        let Self {
            epoch,
            offset,
            raised,
            lost: _,
        } = *self;
        SitePosition {
            epoch,
            // Before it was raised the offset was lower, and never below nothing.
            revision: if commit < raised {
                commit.0
            } else {
                commit.0 + offset
            },
        }
    }

    /// What must be durable before a revision is told that was issued to the site.
    #[must_use]
    pub fn commit(&self, revision: u64) -> Commit {
        if revision > self.at(self.raised).revision {
            Commit(revision.saturating_sub(self.offset))
        } else {
            self.raised
        }
    }

    /// Whether what the site shows can be the position of any ledger, when this one has issued it revisions up to `issued`.
    #[must_use]
    pub fn is_possible(&self, shown: SitePosition, issued: u64) -> bool {
        shown.epoch <= self.epoch.max(MAX_REPORTED) && shown.revision <= issued.max(MAX_REPORTED)
    }

    /// Whether a ledger that is lost has issued this revision, and this one has not.
    #[must_use]
    pub fn is_lost(&self, revision: u64) -> bool {
        self.lost
            .is_some_and(|lost| lost.after < revision && revision <= lost.before)
    }

    /// Whether a ledger that is lost may know more of a claim or release of this revision than this one.
    #[must_use]
    pub fn is_before_loss(&self, revision: u64) -> bool {
        self.lost.is_some_and(|lost| revision <= lost.before)
    }

    /// The history that continues above what was shown, from `commit` on.
    #[must_use]
    pub fn raise(&self, shown: SitePosition, cause: Cause, commit: Commit) -> Self {
        let Self {
            epoch,
            offset,
            raised: _,
            lost,
        } = *self;
        let above = (shown.revision + 1).saturating_sub(commit.0);
        let offset = offset.max(above);
        let before = commit.0 + offset;
        let lost = match (cause, lost) {
            // No revision was issued since the last raise: the range that was lost then is still lost.
            (Cause::Lost { known }, Some(lost)) if known <= lost.before => Some(Lost { before, ..lost }),
            (Cause::Lost { known }, _) => Some(Lost { after: known, before }),
            (Cause::More, Some(Lost { after, before: _ })) => Some(Lost { after, before }),
            (Cause::More, None) => None,
            (Cause::Repair, lost) => lost,
        };
        Self {
            epoch: epoch.max(shown.epoch) + 1,
            offset,
            raised: commit,
            lost,
        }
    }

    /// As it is stored.
    pub(crate) fn stored(&self) -> disk::SiteHistory {
        let Self {
            epoch,
            offset,
            raised,
            lost,
        } = *self;
        disk::SiteHistory {
            epoch,
            offset,
            raised: raised.0,
            lost_after: lost.map_or(0, |lost| lost.after),
            lost_before: lost.map_or(0, |lost| lost.before),
        }
    }

    /// What [`History::stored`] made.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub(crate) fn parse(stored: disk::SiteHistory) -> Result<Self, String> {
        let disk::SiteHistory {
            epoch,
            offset,
            raised,
            lost_after: after,
            lost_before: before,
        } = stored;
        if epoch == 0 || epoch >= NUMBER_BOUND {
            return Err(format!("epoch {epoch} is not between 1 and {NUMBER_BOUND}"));
        }
        if offset > MAX_REPORTED + 1 {
            return Err(format!("offset {offset} is above {MAX_REPORTED}"));
        }
        Ok(Self {
            epoch,
            offset,
            raised: Commit::parse(raised)?,
            lost: (before > 0).then_some(Lost { after, before }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers around each border.
    const BORDERS: [u64; 8] = [
        0,
        1,
        2,
        MAX_REPORTED - 1,
        MAX_REPORTED,
        MAX_REPORTED + 1,
        u64::MAX - 1,
        u64::MAX,
    ];

    #[test]
    fn raise_exceeds_every_observed_position() {
        for revision in BORDERS {
            for epoch in BORDERS {
                for now in [0, 7, MAX_REPORTED, MAX_REPORTED + 9] {
                    let (history, now) = (History::default(), Commit(now));
                    let shown = SitePosition { epoch, revision };
                    if !history.is_possible(shown, history.at(now).revision) {
                        assert!(epoch > MAX_REPORTED || revision > MAX_REPORTED, "{shown}");
                        continue;
                    }
                    let raised = history.raise(shown, Cause::Lost { known: 0 }, now.next());
                    let after = raised.at(now.next());
                    assert!(
                        after.epoch > epoch && after.revision > revision,
                        "{shown} {after}"
                    );
                    assert_eq!(History::parse(raised.stored()), Ok(raised), "it is stored");
                }
            }
        }
    }

    #[test]
    fn reports_do_not_exhaust_numbers() {
        // Each time all that is accepted is shown, which is the worst that a reporter can do.
        let (mut history, mut now) = (History::default(), Commit::NONE);
        for _ in 0..1000 {
            let reached = history.at(now);
            let worst = reached.joined(SitePosition::new(MAX_REPORTED, MAX_REPORTED));
            assert!(history.is_possible(worst, reached.revision));
            now = now.next();
            history = history.raise(worst, Cause::Repair, now);
        }
        let end = history.at(now);
        assert!(
            end.revision < MAX_REPORTED + 2000 && end.epoch < MAX_REPORTED + 2000,
            "{end}"
        );
    }

    #[test]
    fn issued_numbers_are_never_refused() {
        let far = Commit(MAX_REPORTED + 100);
        let history = History::default();
        let issued = history.at(far).revision;
        assert!(history.is_possible(history.at(far), issued));
        assert!(!history.is_possible(history.at(far.next()), issued));
    }

    #[test]
    fn revisions_map_back_to_their_commits() {
        let history = History::default().raise(SitePosition::new(4, 900), Cause::Repair, Commit(11));
        assert_eq!(history.at(Commit(11)), SitePosition::new(5, 901));
        assert_eq!(history.commit(history.at(Commit(15)).revision), Commit(15));
        assert_eq!(history.commit(7), Commit(11), "issued before it was raised");
        assert!(
            history.at(Commit(10)).revision <= 10,
            "what was issued before it was raised"
        );
    }

    #[test]
    fn only_lost_revisions_are_lost() {
        let known = History::default();
        let lost = known.raise(SitePosition::new(1, 50), Cause::Lost { known: 20 }, Commit(30));
        let more = lost.raise(SitePosition::new(1, 70), Cause::More, Commit(31));
        let is = |history: History, revisions: [u64; 5]| revisions.map(|at| history.is_lost(at));
        assert_eq!(is(lost, [20, 21, 50, 51, 52]), [false, true, true, true, false]);
        assert_eq!(is(more, [20, 21, 70, 71, 72]), [false, true, true, true, false]);
        let again = |known| lost.raise(SitePosition::new(1, 70), Cause::Lost { known }, Commit(31));
        let since_the_raise = is(again(51), [20, 21, 70, 71, 72]);
        assert_eq!(
            since_the_raise,
            [false, true, true, true, false],
            "nothing was issued since"
        );
        let later = is(again(60), [21, 60, 61, 71, 72]);
        assert_eq!(later, [false, false, true, true, false]);
        let repaired = known.raise(SitePosition::new(1, 50), Cause::Repair, Commit(30));
        assert!(!repaired.is_lost(40));
        let is_before = |history: History| [0, 20, 51, 52].map(|at| history.is_before_loss(at));
        assert_eq!(is_before(lost), [true, true, true, false]);
        assert_eq!([is_before(known), is_before(repaired)], [[false; 4]; 2]);
    }
}
