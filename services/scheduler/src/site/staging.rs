//! A step that changed a record is numbered, staged for the ledger with its entry in the audit log, and told.

use std::sync::Arc;

use ::placement::{HostId, MemberState};
use proto::placement::v1 as api;

use super::{Author, Outcome, Site, claims::UNNUMBERED};
use crate::{
    convert,
    error::Error,
    ledger::{Change, Commit, SitePosition, commit::Permit, weight},
    record::Record,
};

impl Site {
    /// [`Site::store`] for a step that nobody has asked for: one that is too large is not made, and the log says so.
    pub(super) fn store_alone(
        &mut self,
        record: Record,
        author: &Author<'_>,
        permit: Permit,
    ) -> Option<Outcome> {
        let stored = self.store(record, author, permit);
        stored
            .inspect_err(
                |error| tracing::error!(site = self.name, action = author.action, %error, "not done"),
            )
            .ok()
    }

    /// Stages the record if it differs from the one before, and returns what may be told when.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub(super) fn store(
        &mut self,
        mut record: Record,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<Outcome, Error> {
        let known = self.records.get(&record.cluster);
        if let Some(known) = known
            && **known == record
        {
            return Ok(Outcome {
                commit: self.history.commit(known.revision),
                record: Some(Arc::clone(known)),
            });
        }
        let before = known.map(|known| &**known);
        weight::require(&self.name, before, &record, permit.largest())?;
        let name = record.cluster.clone();
        let gone = record.releasing && record.members.is_empty();
        let key = self.key(&name);
        let entry = entry(&self.name, before, &record, author);
        let reference = record.reference();
        let earlier = before.map(|before| before.revision);
        let mut staged = None;
        let history = self.history;
        let commit = permit.stage(|commit| {
            let at = history.at(commit);
            number(&mut record, at.revision());
            staged = Some(record).filter(|_| !gone).map(Arc::new);
            Change::Record {
                key,
                record: staged.clone(),
                decision: Box::new(placed(entry, at, commit)),
                commit,
            }
        })?;
        let revision = history.at(commit).revision();
        self.issued = self.issued.max(revision);
        self.install(&name, staged.clone());
        match (&staged, earlier) {
            (Some(_), earlier) => self.changes.put(earlier, revision, name),
            (None, earlier) => self
                .changes
                .remove(earlier.unwrap_or(revision), revision, reference),
        }
        Ok(Outcome {
            record: staged,
            commit,
        })
    }
}

/// An entry of the log at its place.
pub(super) fn placed(entry: api::Decision, at: SitePosition, commit: Commit) -> api::Decision {
    api::Decision {
        revision: Some(at.into()),
        commit: commit.number(),
        ..entry
    }
}

/// Gives the step's number to the record and to every claim and release that it began.
fn number(record: &mut Record, revision: u64) {
    record.revision = revision;
    for member in record.members.values_mut() {
        if member.revision == UNNUMBERED {
            member.revision = revision;
        }
    }
}

/// The audit entry for the step from `before` to `after`; its place is set when it is staged.
fn entry(site: &str, before: Option<&Record>, after: &Record, author: &Author<'_>) -> api::Decision {
    let old = |id: &HostId| {
        before
            .and_then(|before| before.members.get(id))
            .map(|member| member.state)
    };
    let entered = |state: MemberState| {
        let new = after
            .members
            .iter()
            .filter(move |(id, member)| member.state == state && old(id) != Some(state));
        new.map(|(id, _)| convert::host_ref(id)).collect::<Vec<_>>()
    };
    let said = |record: &Record| [&*record.conflicts, &*record.reports].concat();
    let (earlier, now) = (before.map(said).unwrap_or_default(), said(after));
    let only_in = |these: &[api::Report], others: &[api::Report]| -> Vec<api::Report> {
        let new = these.iter().filter(|report| !others.contains(report));
        new.cloned().collect()
    };
    let freed = before.into_iter().flat_map(|before| before.members.keys());
    api::Decision {
        time: Some(author.now.into()),
        revision: None,
        commit: 0,
        caller: author.caller.to_owned(),
        site: site.to_owned(),
        cluster: Some(after.reference()),
        action: author.action.to_owned(),
        taken: entered(MemberState::Claimed),
        releasing: entered(MemberState::Releasing),
        bound: entered(MemberState::Bound),
        freed: freed
            .filter(|id| !after.members.contains_key(id))
            .map(convert::host_ref)
            .collect(),
        reason: after
            .refusal
            .as_ref()
            .map(|refusal| refusal.message.clone())
            .unwrap_or_default(),
        found: only_in(&now, &earlier),
        resolved: only_in(&earlier, &now),
    }
}
