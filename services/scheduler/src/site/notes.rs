//! Manual changes of hosts, noted for the log of decisions.

use std::fmt;

use ::placement::{Host, HostId};
use runtime::quiet::Quiet;

/// Maximum number of notes that wait to be written; more are only counted.
const MAX_PENDING_NOTES: usize = 256;

/// A manual change of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub(super) host: HostId,
    pub(super) text: String,
}

/// Notes that are not in the log yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    waiting: Vec<Note>,
    lost: usize,
}

/// An operator's marks on a host, with their meaning.
fn marks(host: &Host) -> [(bool, &'static str); 3] {
    [
        (host.cordoned, "cordoned"),
        (host.marked_failed, "marked as failed"),
        (host.replace_requested, "to be moved off"),
    ]
}

impl Notes {
    /// Notes which marks of a host are new or gone.
    pub(super) fn compare(&mut self, before: &Host, now: &Host) {
        for ((was, _), (is, what)) in marks(before).into_iter().zip(marks(now)) {
            if was == is {
                continue;
            }
            let state = if is { "is" } else { "is no longer" };
            self.add(&now.id, &format_args!("{state} {what}"));
        }
    }

    /// Notes something about a host.
    pub(super) fn add(&mut self, id: &HostId, what: &dyn fmt::Display) {
        if self.waiting.len() == MAX_PENDING_NOTES {
            self.lost += 1;
            return;
        }
        self.waiting.push(Note {
            host: id.clone(),
            text: format!("{}: {what}", id.name),
        });
    }

    /// The notes since the last time. `log` limits the lines about those that were only counted.
    pub(super) fn take(&mut self, site: &str, log: &Quiet) -> Vec<Note> {
        let Self { waiting, lost } = std::mem::take(self);
        if lost > 0
            && let Some(withheld) = log.line()
        {
            tracing::warn!(
                site,
                lost,
                withheld,
                "marks on hosts are not in the log of decisions: too many at once"
            );
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use ::placement::{HostName, Uid};

    use super::*;

    fn host() -> Host {
        Host::available(HostId {
            name: HostName::new("metal", "h1").unwrap(),
            uid: Uid::new("u").unwrap(),
        })
    }

    #[test]
    fn only_changed_marks_are_noted() {
        let mut notes = Notes::default();
        let marked = Host {
            cordoned: true,
            ..host()
        };
        notes.compare(&host(), &marked);
        notes.compare(&marked, &marked);
        notes.compare(&marked, &host());
        let log = Quiet::default();
        let taken = notes.take("a", &log).into_iter();
        let texts: Vec<_> = taken.map(|note| note.text).collect();
        assert_eq!(
            texts,
            ["metal/h1: is cordoned", "metal/h1: is no longer cordoned"]
        );
        assert!(notes.take("a", &log).is_empty());
    }

    #[test]
    fn notes_beyond_the_limit_are_counted() {
        let mut notes = Notes::default();
        for _ in 0..=MAX_PENDING_NOTES {
            notes.add(&host().id, &"was touched");
        }
        assert_eq!((notes.waiting.len(), notes.lost), (MAX_PENDING_NOTES, 1));
    }
}
