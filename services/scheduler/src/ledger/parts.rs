//! The entries of an export as backends store them, those of earlier versions too.

use std::collections::BTreeSet;

use prost::Message as _;
use proto::{ledger::v1 as disk, placement::v1 as api};

use super::{Commit, Error, History, codec};

/// An entry as backends store it.
pub(crate) enum Part {
    Header(Commit),
    History {
        site: String,
        value: Vec<u8>,
    },
    Record {
        site: String,
        namespace: String,
        name: String,
        value: Vec<u8>,
    },
    Removal {
        site: String,
        commit: Commit,
    },
    Fence {
        site: String,
        value: Vec<u8>,
    },
    Decision {
        commit: Commit,
        value: Vec<u8>,
    },
}

impl Part {
    /// `None` for what is not stored.
    fn parse(entry: disk::Entry, legacy: &mut Option<Legacy>) -> Result<Option<Self>, Error> {
        use disk::entry::Entry;
        let Some(entry) = entry.entry else { return Ok(None) };
        if let (Some(legacy), Some(site)) = (legacy.as_mut(), site(&entry)) {
            legacy.sites.insert(site.to_owned());
        }
        Ok(Some(match entry {
            Entry::Header(header) => {
                let (last, before) = last(&header)?;
                *legacy = before;
                Self::Header(last)
            }
            Entry::History(disk::HistoryEntry { site, history }) => Self::History {
                site,
                value: history.unwrap_or_default().encode_to_vec(),
            },
            Entry::Record(disk::RecordEntry {
                site,
                namespace,
                name,
                record,
            }) => Self::Record {
                site,
                namespace,
                name,
                value: record.unwrap_or_default().encode_to_vec(),
            },
            Entry::Removal(disk::RemovalEntry { site, commit }) => Self::Removal {
                site,
                commit: Commit::new(commit),
            },
            Entry::Fence(disk::FenceEntry { site, fence }) => Self::Fence {
                site,
                value: fence.unwrap_or_default().encode_to_vec(),
            },
            Entry::Decision(decision) => Self::Decision {
                commit: place(&decision),
                value: decision.encode_to_vec(),
            },
            Entry::End(_) => return Ok(None),
        }))
    }
}

/// What an export states of the time before sites had histories.
#[derive(Debug)]
pub(crate) struct Legacy {
    pub(crate) history: History,
    sites: BTreeSet<String>,
}

/// The last commit, and what sites had in common if the export is from before they had histories.
///
/// # Errors
/// When no ledger can have come as far.
pub(crate) fn last(header: &disk::Header) -> Result<(Commit, Option<Legacy>), Error> {
    let disk::Header {
        epoch,
        revision,
        commit,
    } = *header;
    let legacy = (epoch > 0).then(|| Legacy {
        history: History::of_region(epoch),
        sites: BTreeSet::new(),
    });
    let number = if legacy.is_some() { revision } else { commit };
    let last = Commit::parse(number).map_err(|rule| Error::Corrupt {
        what: "header".to_owned(),
        rule,
    })?;
    Ok((last, legacy))
}

/// The commit of an entry of the log: in earlier versions that was the revision.
pub(crate) fn place(decision: &api::Decision) -> Commit {
    Commit::new(match decision.commit {
        0 => decision.revision.unwrap_or_default().revision,
        commit => commit,
    })
}

/// The site that a part is about.
fn site(entry: &disk::entry::Entry) -> Option<&str> {
    use disk::entry::Entry;
    match entry {
        Entry::Record(disk::RecordEntry { site, .. })
        | Entry::Removal(disk::RemovalEntry { site, .. })
        | Entry::Fence(disk::FenceEntry { site, .. })
        | Entry::History(disk::HistoryEntry { site, .. }) => Some(site),
        Entry::Header(_) | Entry::Decision(_) | Entry::End(_) => None,
    }
}

/// The parts of an export; of one from before sites had histories those are added at the end.
pub(crate) fn parts<'a>(
    entries: &'a mut (dyn Iterator<Item = Result<disk::Entry, Error>> + '_),
) -> impl Iterator<Item = Result<Option<Part>, Error>> + 'a {
    let mut legacy: Option<Legacy> = None;
    let mut ended = false;
    std::iter::from_fn(move || {
        if !ended {
            match entries.next() {
                Some(entry) => return Some(entry.and_then(|entry| Part::parse(entry, &mut legacy))),
                None => ended = true,
            }
        }
        let legacy = legacy.as_mut()?;
        let site = legacy.sites.pop_first()?;
        let value = codec::encode_history(&legacy.history);
        Some(Ok(Some(Part::History { site, value })))
    })
}
