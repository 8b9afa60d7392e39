//! Reading the log of decisions, a bounded part at a time.

use proto::placement::v1 as api;

use super::{Commit, Error};

/// Size of the wanted entries, in bytes, after which a page ends.
const MAX_PAGE_BYTES: usize = 2 << 20;
/// Size of the entries, in bytes, that are read for a page, wanted or not.
const MAX_READ_BYTES: usize = 16 << 20;

/// Which entries to read, and how many.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    /// Only entries of commits before this one.
    pub before: Commit,
    /// Entries that are wanted at most.
    pub limit: usize,
    /// Entries that are read at most, wanted or not.
    pub most: usize,
    /// Which are wanted.
    pub wanted: &'a dyn Fn(&api::Decision) -> bool,
    /// Whether no caller waits: then reading stops where it is.
    pub gone: &'a dyn Fn() -> bool,
}

/// Entries, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Those that are wanted.
    pub decisions: Vec<api::Decision>,
    /// Read on before this commit; `None` at the log's end.
    pub next: Option<Commit>,
}

/// Collects a page.
pub(super) struct Reading<'a> {
    query: Query<'a>,
    left: usize,
    /// Of the entries that are wanted.
    bytes: usize,
    /// Of all that were read.
    read: usize,
    page: Page,
}

impl<'a> Reading<'a> {
    pub(super) fn new(query: Query<'a>) -> Self {
        Self {
            query,
            left: query.most.max(1),
            bytes: 0,
            read: 0,
            page: Page::default(),
        }
    }

    /// Whether the page is whole; the entry below this commit would be the next.
    pub(super) fn is_whole(&mut self, below: Commit) -> bool {
        let whole = self.left == 0
            || self.bytes >= MAX_PAGE_BYTES
            || self.read >= MAX_READ_BYTES
            || self.page.decisions.len() >= self.query.limit
            || (self.query.gone)();
        if whole {
            self.page.next = Some(below);
        }
        whole
    }

    /// Adds the next entry, if it is wanted.
    pub(super) fn add(&mut self, commit: Commit, value: &[u8]) -> Result<(), Error> {
        let mut decision: api::Decision = prost::Message::decode(value).map_err(|error| Error::Corrupt {
            what: format!("decision {commit}"),
            rule: format!("{error}"),
        })?;
        // Entries of earlier versions do not say it themselves.
        decision.commit = commit.number();
        self.left -= 1;
        self.read += value.len();
        if (self.query.wanted)(&decision) {
            self.bytes += value.len();
            self.page.decisions.push(decision);
        }
        Ok(())
    }

    pub(super) fn page(self) -> Page {
        self.page
    }

    /// The page as far as it is read: the entry below this commit would be the next.
    pub(super) fn page_up_to(mut self, below: Commit) -> Page {
        self.page.next = Some(below);
        self.page
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn a_page_ends_at_bytes_that_nobody_wanted() {
        let decision = api::Decision {
            action: "x".repeat(1 << 20),
            ..api::Decision::default()
        };
        let mut reading = Reading::new(Query {
            before: Commit::MAX,
            limit: 1000,
            most: 4096,
            wanted: &|_| false,
            gone: &|| false,
        });
        let mut read = 0;
        for number in (1..=40).rev() {
            let commit = Commit::new(number);
            if reading.is_whole(commit.next()) {
                break;
            }
            reading.add(commit, &decision.encode_to_vec()).unwrap();
            read += 1;
        }
        let Page { decisions, next } = reading.page();
        assert_eq!((read, decisions.len(), next), (16, 0, Some(Commit::new(25))));
    }

    #[test]
    fn a_page_ends_at_its_bytes_and_continues() {
        const ENTRIES: u64 = 10;
        let decision = |commit: u64| api::Decision {
            site: "a".to_owned(),
            action: "x".repeat(600 << 10),
            commit,
            ..api::Decision::default()
        };
        let (mut before, mut found, mut pages) = (Commit::MAX, Vec::new(), 0);
        loop {
            let mut reading = Reading::new(Query {
                before,
                limit: 1000,
                most: 4096,
                wanted: &|_| true,
                gone: &|| false,
            });
            for number in (1..=ENTRIES).rev().filter(|number| *number < before.number()) {
                let commit = Commit::new(number);
                if reading.is_whole(commit.next()) {
                    break;
                }
                reading.add(commit, &decision(number).encode_to_vec()).unwrap();
            }
            let page = reading.page();
            assert_eq!(page.decisions.len(), if page.next.is_some() { 4 } else { 2 });
            found.extend(page.decisions.iter().map(|decision| decision.commit));
            pages += 1;
            let Some(next) = page.next else { break };
            before = next;
        }
        assert_eq!(pages, 3);
        assert_eq!(found, (1..=ENTRIES).rev().collect::<Vec<_>>());
    }
}
