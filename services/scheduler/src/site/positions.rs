//! Where the site's history stands, and what the site shows of it: release marks on hosts, positions in statuses.
//!
//! Until the first snapshot of a term is complete the ledger may be one that was lost or restored, so what the site shows
//! beyond it is believed: the history goes on above it. From then on nobody but this process has issued numbers to the site:
//! a mark beyond them is a fault of the host that shows it.

use std::fmt;

use ::placement::HostId;
use proto::inventory::v1 as wire;

use super::{Author, Site, freed::Mark, staging::placed};
use crate::{
    convert,
    error::Error,
    ledger::{
        Change, Commit, History, SitePosition,
        commit::Permit,
        position::{Cause, LIMIT},
        weight::TooLarge,
    },
};

/// Annotation of the release mark.
const MARK: &str = "sip.airshipit.org/placement-revision";
/// Most faults in one answer.
const FAULTS: usize = 100;

/// What a repair did.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// The position before.
    pub before: SitePosition,
    /// The position after.
    pub after: SitePosition,
    /// Hosts with a mark that no ledger can have issued.
    pub faults: Vec<wire::HostFault>,
    /// What must be durable before this is told.
    pub commit: Commit,
}

/// What a ledger knew of a site's position when it was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    /// The highest revision that it was known to have issued.
    known: u64,
    /// The commit that had raised the position last.
    raised: Commit,
}

impl Opened {
    pub(super) fn new(history: &History, known: u64) -> Self {
        Self {
            known,
            raised: history.raised(),
        }
    }
}

/// A mark that was not issued, for people.
struct NotIssued {
    mark: u64,
    issued: u64,
}

impl fmt::Display for NotIssued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mark, issued } = self;
        write!(
            f,
            "metadata.annotations[{MARK}] is {mark}, and the last revision that was issued to the site is {issued}: "
        )?;
        if *mark <= LIMIT {
            write!(
                f,
                "remove the annotation, or run `sipctl site repair` if it is from a ledger that was lost or from another site"
            )
        } else {
            write!(f, "remove the annotation, since no ledger can have issued it")
        }
    }
}

impl Site {
    /// How the site's revisions are numbered.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The highest revision that this ledger has issued to the site.
    #[must_use]
    pub fn issued(&self) -> u64 {
        self.issued
    }

    /// Whether all that was issued to the site is known: a snapshot was complete since the ledger was opened.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// The highest revision that a ledger is known to have issued to the site before anything of it was reported, or that
    /// this one has issued since.
    fn known(&self) -> u64 {
        if self.is_whole() {
            self.issued
        } else if self.is_raised() {
            self.history.at(self.history.raised()).revision()
        } else {
            self.opened.known
        }
    }

    /// Whether the position was raised since the ledger was opened.
    fn is_raised(&self) -> bool {
        self.history.raised() > self.opened.raised
    }

    /// Whether what the site shows can be the position of any ledger.
    pub(super) fn is_possible(&self, shown: SitePosition) -> bool {
        self.history.is_possible(shown, self.issued)
    }

    fn is_beyond(&self, shown: SitePosition) -> bool {
        shown.epoch() > self.history.epoch() || shown.revision() > self.known()
    }

    /// The mark of a host.
    pub(super) fn mark_of(&self, host: &wire::Host) -> Mark {
        Mark {
            number: host.release_mark,
            issued: host.release_mark <= self.issued,
            lost: self.history.is_lost(host.release_mark),
        }
    }

    /// Takes in what a reporter has seen. Returns what must be durable before it is let in.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn seen(
        &mut self,
        seen: SitePosition,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<Commit, TooLarge> {
        if !self.is_beyond(seen) {
            return Ok(Commit::NONE);
        }
        if self.is_whole() || !self.is_possible(seen) {
            tracing::warn!(site = self.name, %seen, issued = self.issued, "the reporter says that it has seen a position that was not issued: it is ignored");
            return Ok(Commit::NONE);
        }
        self.raise(seen, self.loss(), "its reporter has seen", author, permit)
    }

    /// Raises the position above all that a complete snapshot shows, if the ledger may have been lost. From then on what the
    /// site has been issued is known.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub(super) fn take_position(&mut self, author: &Author<'_>, permit: Permit) -> Result<(), TooLarge> {
        if !self.is_whole() {
            let shown = self.shown();
            if self.is_beyond(shown) {
                self.raise(
                    shown,
                    self.loss(),
                    "its hosts and SIPClusters show",
                    author,
                    permit,
                )?;
            }
            self.whole = Some(self.history.raised());
        }
        Ok(())
    }

    fn loss(&self) -> Cause {
        if self.is_raised() {
            Cause::More
        } else {
            Cause::Lost { known: self.known() }
        }
    }

    /// The highest numbers of all that the site shows, as far as a ledger can have issued them.
    fn shown(&self) -> SitePosition {
        let marks = self
            .hosts
            .values()
            .map(|host| SitePosition::new(0, host.release_mark));
        let statuses = self.clusters.values().filter_map(|cluster| cluster.revision);
        marks
            .chain(statuses.map(SitePosition::from))
            .filter(|shown| self.is_possible(*shown))
            .fold(SitePosition::default(), SitePosition::joined)
    }

    fn raise(
        &mut self,
        shown: SitePosition,
        cause: Cause,
        who: &str,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<Commit, TooLarge> {
        let why = format!(
            "{who} {shown}, and the ledger has issued epoch {} and revisions up to {}: the history goes on above both",
            self.history.epoch(),
            self.known()
        );
        tracing::warn!(site = self.name, caller = author.caller, "{why}");
        let entry = self.entry(None, &why, author);
        let before = self.history;
        let mut history = before;
        let commit = permit.stage(|commit| {
            history = before.raise(shown, cause, commit);
            Change::Raise {
                site: self.name.clone(),
                history,
                decision: Box::new(placed(entry, history.at(commit), commit)),
                commit,
            }
        })?;
        self.history = history;
        self.issued = self.issued.max(history.at(commit).revision());
        Ok(commit)
    }

    /// What is wrong with a host's mark, if so; said once for each mark.
    pub(super) fn judge_mark(&mut self, id: &HostId, host: &wire::Host) -> Option<String> {
        let mark = host.release_mark;
        let limit = if self.is_whole() {
            self.issued
        } else {
            self.issued.max(LIMIT)
        };
        if mark <= limit {
            self.faulty.remove(&id.name);
            return None;
        }
        let issued = self.issued;
        let fault = NotIssued { mark, issued }.to_string();
        if self.faulty.insert(id.name.clone(), mark) != Some(mark) {
            tracing::warn!(site = self.name, host = %id.name, "{fault}");
            self.note(id, &fault);
            if self.faults.len() < FAULTS {
                self.faults.push(wire::HostFault {
                    host: host.r#ref.clone(),
                    message: fault.clone(),
                });
            }
        }
        Some(fault)
    }

    /// Faults of hosts in the last report that were not taken yet.
    pub fn take_faults(&mut self) -> Vec<wire::HostFault> {
        std::mem::take(&mut self.faults)
    }

    /// Continues the history above everything that the site shows and that a ledger can have issued: an operator says that it
    /// is to be believed. No claim changes, and nothing counts as released by it.
    ///
    /// # Errors
    /// [`Error::NotSynced`], [`Error::TooLarge`].
    pub fn repair(&mut self, dry_run: bool, author: &Author<'_>, permit: Permit) -> Result<Repaired, Error> {
        self.require_synced()?;
        let reached = permit.reached();
        let before = self.history.at(reached);
        let shown = self.shown();
        let mut commit = reached;
        let beyond = self.is_beyond(shown);
        let after = if beyond && dry_run {
            let next = reached.next();
            self.history.raise(shown, Cause::Repair, next).at(next)
        } else if beyond {
            commit = self.raise(
                shown,
                Cause::Repair,
                "an operator has its position repaired: it shows",
                author,
                permit,
            )?;
            self.history.at(commit)
        } else {
            before
        };
        let faulty: Vec<(HostId, wire::Host)> = self
            .faulty
            .keys()
            .filter_map(|name| {
                let host = self.hosts.get(name)?.clone();
                Some((convert::host_id(host.r#ref.as_ref()?).ok()?, host))
            })
            .collect();
        let mut faults = Vec::new();
        for (id, host) in faulty {
            let mark = host.release_mark;
            if !dry_run {
                self.judge_again(&id, &host);
            }
            if mark > after.revision().max(LIMIT) && faults.len() < FAULTS {
                let issued = after.revision();
                faults.push(wire::HostFault {
                    host: host.r#ref,
                    message: NotIssued { mark, issued }.to_string(),
                });
            }
        }
        Ok(Repaired {
            before,
            after,
            faults,
            commit,
        })
    }

    fn judge_again(&mut self, id: &HostId, host: &wire::Host) {
        let problem = self.judge_mark(id, host);
        if let Ok(mut decided) = convert::host(host) {
            decided.problem = problem;
            self.model.upsert(decided);
        }
    }
}
