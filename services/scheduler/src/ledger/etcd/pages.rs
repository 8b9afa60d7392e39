//! Keys that are read in pages. A value may have a megabyte, and an answer has to arrive before its request is given up: a page has fewer keys
//! where values are large.

use etcd_client::{GetOptions, GetResponse, KeyValue};

use super::{
    keys::{self, Keys},
    place::Place,
};
use crate::ledger::Error;

/// Keys of the first page.
const FIRST: usize = 16;
/// Keys of a page at most.
const MOST: usize = 256;
/// Bytes that a page should have: they arrive in time on slow networks, too.
const WANTED: usize = 4 << 20;

/// How many keys the next page has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageSize(usize);

impl Default for PageSize {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl PageSize {
    /// So many keys, whatever their values are like.
    pub(super) fn new(keys: usize) -> Self {
        Self(keys.max(1))
    }

    /// So many keys.
    pub(super) fn keys(self) -> usize {
        self.0
    }

    /// After a page: as many as would have the wanted bytes, and not many more than that page may have had.
    pub(super) fn came(&mut self, entries: &[KeyValue]) {
        let bytes = entries
            .iter()
            .map(|entry| entry.key().len() + entry.value().len());
        self.had(entries.len(), bytes.sum());
    }

    fn had(&mut self, keys: usize, bytes: usize) {
        if keys > 0 {
            let fitting = WANTED * keys / bytes.max(1);
            self.0 = fitting.clamp(1, MOST).min(self.0 * 2);
        }
    }

    /// After a page that did not come in time. Returns whether a smaller one may.
    pub(super) fn failed(&mut self) -> bool {
        let was = self.0;
        self.0 = (was / 8).max(1);
        was > 1
    }
}

/// Keys from one on, up to an end, page by page.
pub(super) struct Pages<'a> {
    place: &'a Place,
    next: Option<String>,
    end: String,
    /// As they were at this revision of etcd; 0: as they are.
    revision: i64,
    size: PageSize,
}

impl<'a> Pages<'a> {
    pub(super) fn new(place: &'a Place, from: String, end: String, revision: i64) -> Self {
        Self {
            place,
            next: Some(from),
            end,
            revision,
            size: PageSize::default(),
        }
    }

    /// The next page; `None` after the last one.
    ///
    /// # Errors
    /// When etcd does not answer, even for a single key.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<KeyValue>>, Error> {
        let Some(from) = self.next.take() else {
            return Ok(None);
        };
        let mut page = first(self.place, &from, &self.end, self.revision, &mut self.size).await?;
        let more = page.more();
        let entries = page.take_kvs();
        self.size.came(&entries);
        if let Some(last) = entries.last().filter(|_| more) {
            // The next key after a key is that key and a zero.
            self.next = Some(format!("{}\0", Keys::rest(last.key(), "")?));
        }
        Ok(Some(entries))
    }
}

/// All keys that begin with a prefix, as they were at one revision of etcd; 0: as they are.
///
/// # Errors
/// When etcd does not answer, even for a single key.
pub(super) async fn all(place: &Place, prefix: &str, revision: i64) -> Result<Vec<KeyValue>, Error> {
    let mut pages = Pages::new(place, prefix.to_owned(), keys::after(prefix), revision);
    let mut found = Vec::new();
    while let Some(page) = pages.next().await? {
        found.extend(page);
    }
    Ok(found)
}

/// The first page of the keys from one on up to an end, which has fewer keys if it does not come in time.
///
/// # Errors
/// When etcd does not answer, even for a single key.
pub(super) async fn first(
    place: &Place,
    from: &str,
    end: &str,
    revision: i64,
    size: &mut PageSize,
) -> Result<GetResponse, Error> {
    loop {
        let options = GetOptions::new()
            .with_range(end)
            .with_limit(i64::try_from(size.keys()).unwrap_or(1))
            .with_revision(revision);
        match place.get(from.to_owned(), options).await {
            Err(_) if size.failed() => {}
            answered => return answered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_fewer_keys_where_values_are_large() {
        let mut size = PageSize::default();
        for expected in [32, 64, 128, 256, 256] {
            size.had(size.keys(), size.keys() * 100);
            assert_eq!(size.keys(), expected);
        }
        size.had(256, 256 * (64 << 10));
        assert_eq!(size.keys(), 64);
        size.had(64, 64 << 20);
        assert_eq!(size.keys(), 4);
        size.had(1, 16 << 20);
        assert_eq!(size.keys(), 1);
        size.had(0, 0);
        assert_eq!(size.keys(), 1);

        let mut size = PageSize(256);
        let mut tried = vec![size.keys()];
        while size.failed() {
            tried.push(size.keys());
        }
        assert_eq!(tried, [256, 32, 4, 1]);
    }
}
