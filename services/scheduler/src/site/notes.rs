//! What people do by hand, to hosts and to a site's policy: for the log of decisions.

use std::time::SystemTime;

use ::placement::{ClusterName, HostId, Policy};
use proto::{inventory::v1 as wire, placement::v1 as api};

use super::{Author, Site, staging::placed};
use crate::{
    ledger::{Change, Commit, SiteFence, clip, commit::Permit, weight::TooLarge},
    policy,
};

/// Most notes that wait to be written; more are only counted.
const MOST: usize = 256;

/// Most bytes of an entry's reason: two policies may differ in more.
const REASON: usize = 4096;

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
            self.note(id, &format_args!("{not} {what}{more}"));
        }
    }

    /// Notes something about a host.
    pub(super) fn note(&mut self, id: &HostId, what: &dyn std::fmt::Display) {
        if self.notes.waiting.len() == MOST {
            self.notes.lost += 1;
            return;
        }
        self.notes.waiting.push(Note {
            host: id.clone(),
            what: format!("{}: {what}", id.name),
        });
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
        self.log_entry(cluster, &what, author, permit);
    }

    /// Writes an entry that nobody has asked for; one that the ledger does not take is only reported.
    fn log_entry(
        &mut self,
        cluster: Option<wire::ClusterRef>,
        what: &str,
        author: &Author<'_>,
        permit: Permit,
    ) {
        if let Err(error) = self.stage_entry(self.session.fence(), cluster, what, author, permit) {
            tracing::error!(site = self.name, action = author.action, %error, "not written to the log of decisions");
        }
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
        self.log_entry(None, &what, author, permit);
        self.records.keys().cloned().collect()
    }

    /// Stages an entry of the log that is about the site; its fence is written with it. Returns the commit.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub(super) fn stage_entry(
        &mut self,
        fence: Option<SiteFence>,
        cluster: Option<wire::ClusterRef>,
        why: &str,
        author: &Author<'_>,
        permit: Permit,
    ) -> Result<Commit, TooLarge> {
        let entry = self.entry(cluster, why, author);
        permit.stage(|commit| Change::Fence {
            site: self.name.clone(),
            fence,
            decision: Box::new(placed(entry, self.history.at(commit), commit)),
            commit,
        })
    }

    /// An entry of the log that is about the site.
    pub(super) fn entry(
        &self,
        cluster: Option<wire::ClusterRef>,
        why: &str,
        author: &Author<'_>,
    ) -> api::Decision {
        api::Decision {
            time: Some(SystemTime::into(author.now)),
            caller: author.caller.to_owned(),
            site: self.name.clone(),
            cluster,
            action: author.action.to_owned(),
            reason: clip(why, REASON).to_owned(),
            ..api::Decision::default()
        }
    }
}
