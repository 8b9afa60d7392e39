//! What people do by hand, to hosts and to a site's policy: for the log of decisions.

use std::time::SystemTime;

use ::placement::{ClusterName, HostId, Policy};
use proto::{inventory::v1 as wire, placement::v1 as api};

use super::{Author, Site};
use crate::{
    ledger::{Change, SiteFence, commit::Permit},
    policy,
};

/// Most notes that wait to be written; more are only counted.
const MOST: usize = 256;

/// Something that somebody did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Which host.
    host: HostId,
    /// What is so now.
    what: String,
}

/// Notes that are not in the log yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    waiting: Vec<Note>,
    lost: usize,
}

/// An operator's marks on a host, with what they say.
fn marks(host: &wire::Host) -> [(bool, &'static str); 3] {
    [
        (host.cordoned, "cordoned"),
        (host.marked_failed, "marked as failed"),
        (host.replace_requested, "to be moved off"),
    ]
}

impl Site {
    /// Compares a host with what was known of it.
    pub(super) fn note_marks(&mut self, id: &HostId, now: &wire::Host) {
        let Some(before) = self.hosts.get(&id.name).map(marks) else {
            return;
        };
        for ((was, _), (is, what)) in before.into_iter().zip(marks(now)) {
            if was == is {
                continue;
            }
            let more = if is { "" } else { " any more" };
            let not = if is { "is" } else { "is not" };
            if self.notes.waiting.len() == MOST {
                self.notes.lost += 1;
                continue;
            }
            self.notes.waiting.push(Note {
                host: id.clone(),
                what: format!("{}: {not} {what}{more}", id.name),
            });
        }
    }

    /// What is to be written to the log since the last time.
    pub fn take_notes(&mut self) -> Vec<Note> {
        let Notes { waiting, lost } = std::mem::take(&mut self.notes);
        if lost > 0 {
            tracing::warn!(
                site = self.name,
                lost,
                "marks on hosts are not in the log of decisions: too many at once"
            );
        }
        waiting
    }

    /// Writes a note to the log.
    pub fn log(&mut self, note: Note, author: &Author<'_>, permit: Permit) {
        let Note { host, what } = note;
        let cluster = self
            .holder(&host)
            .and_then(|holder| holder.cluster)
            .filter(|_| self.reported(&host).is_some());
        self.stage_entry(self.session.fence(), cluster, what, author, permit);
    }

    /// Decides by another policy from now on. Returns the clusters whose records must be settled; none when it is the same
    /// policy.
    pub fn set_policy(&mut self, next: Policy, author: &Author<'_>, permit: Permit) -> Vec<ClusterName> {
        if *self.model.policy() == next {
            return Vec::new();
        }
        let what = policy::difference(self.model.policy(), &next);
        tracing::info!(site = self.name, what, "the site has another policy");
        self.model.set_policy(next);
        self.stage_entry(self.session.fence(), None, what, author, permit);
        self.records.keys().cloned().collect()
    }

    /// Stages an entry of the log that is about the site; its fence is written with it. Returns the revision.
    pub(super) fn stage_entry(
        &mut self,
        fence: Option<SiteFence>,
        cluster: Option<wire::ClusterRef>,
        why: String,
        author: &Author<'_>,
        permit: Permit,
    ) -> u64 {
        let entry = api::Decision {
            time: Some(SystemTime::into(author.now)),
            caller: author.caller.to_owned(),
            site: self.name.clone(),
            cluster,
            action: author.action.to_owned(),
            reason: why,
            ..api::Decision::default()
        };
        let revision = permit.stage(|position| Change::Fence {
            site: self.name.clone(),
            fence,
            decision: Box::new(api::Decision {
                revision: Some(position.into()),
                ..entry
            }),
            revision: position.revision,
        });
        self.latest = self.latest.max(revision);
        revision
    }
}
