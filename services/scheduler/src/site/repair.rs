//! An operator has a site's position repaired: what the site shows is accepted.

use ::placement::HostName;

use super::{
    marks::{HostFault, MAX_FAULTS, NotIssued},
    positions::Raise,
    staging::Author,
    state::Site,
};
use crate::{
    error::Error,
    ledger::{
        Commit, SitePosition,
        commit::Permit,
        position::{Cause, MAX_REPORTED},
    },
    observed::Cluster,
};

/// What a repair did.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// The position before.
    pub before: SitePosition,
    /// The position after.
    pub after: SitePosition,
    /// Hosts with a mark that no ledger can have issued.
    pub faults: Vec<HostFault>,
    /// What must be durable before the caller gets it.
    pub commit: Commit,
}

impl Site {
    /// Continues the history above everything that the site shows and that a ledger can have issued: an operator says that it
    /// is to be accepted. No claim changes, and nothing counts as released by it.
    ///
    /// # Errors
    /// [`Error::NotSynced`], [`Error::TooLarge`].
    pub fn repair(&mut self, dry_run: bool, author: &Author<'_>, permit: Permit) -> Result<Repaired, Error> {
        self.require_synced()?;
        let mut commit = permit.reached();
        let before = self.history().at(commit);
        let shown = self.highest_position();
        let cause = Cause::Repair;
        let after = if !self.positions.is_beyond(shown) {
            before
        } else if dry_run {
            let next = commit.next();
            self.history().raise(shown, cause, next).at(next)
        } else {
            let who = "an operator repairs the position: the site states";
            let raise = Raise { shown, cause, who };
            commit = self
                .positions
                .raise(&self.name, raise, &self.lines.raised, author, permit)?;
            self.history().at(commit)
        };
        let faulty: Vec<HostName> = self.marks.faulty().cloned().collect();
        let mut faults = Vec::new();
        for name in &faulty {
            let Some(host) = self.inventory.hosts().get(name) else {
                continue;
            };
            let mark = host.release_mark();
            if mark > after.revision().max(MAX_REPORTED) && faults.len() < MAX_FAULTS {
                let issued = after.revision();
                faults.push(HostFault {
                    host: host.id().clone(),
                    message: NotIssued { mark, issued }.to_string(),
                });
            }
            if !dry_run {
                self.refused.change();
                let problem = self
                    .marks
                    .judge(&self.name, host, &self.positions, &mut self.notes);
                self.inventory.set_problem(name, problem);
            }
        }
        Ok(Repaired {
            before,
            after,
            faults,
            commit,
        })
    }

    /// The highest numbers of all that the site shows, as far as a ledger can have issued them.
    pub(super) fn highest_position(&self) -> SitePosition {
        let hosts = self.inventory.hosts().values();
        let marks = hosts.map(|host| SitePosition::new(0, host.release_mark()));
        let clusters = self.existence.observed().values();
        let statuses = clusters.filter_map(Cluster::position);
        marks
            .chain(statuses)
            .filter(|shown| self.positions.is_possible(*shown))
            .fold(SitePosition::default(), SitePosition::joined)
    }
}
