//! Keys that are read in pages. A value may have a megabyte, and an answer has to arrive before its request is given up: a page has fewer keys
//! where values are large.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use etcd_client::{GetOptions, GetResponse, KeyValue};

use super::{
    keys::{self, Keys},
    location::Location,
    retries::{REQUEST_TIMEOUT, is_too_large, send_with_retries},
};
use crate::ledger::Error;

/// Number of keys of the first page.
const FIRST_PAGE_KEYS: usize = 16;
/// Maximum number of keys of a page: etcd puts all of an answer together, also one that the client refuses.
const MAX_PAGE_KEYS: usize = 64;
/// Bytes that a page should have: they arrive in time on slow networks, too.
const TARGET_PAGE_BYTES: usize = 4 << 20;

/// How many keys the next page has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageSize {
    keys: usize,
    most: usize,
}

impl Default for PageSize {
    fn default() -> Self {
        Self::of_at_most(MAX_PAGE_KEYS)
    }
}

impl PageSize {
    /// Never more keys than these.
    pub(super) fn of_at_most(most: usize) -> Self {
        let most = most.max(1);
        let keys = FIRST_PAGE_KEYS.min(most);
        Self { keys, most }
    }

    /// For one page with no more keys than these.
    pub(super) fn up_to(self, keys: usize) -> Self {
        Self {
            keys: self.keys.min(keys.max(1)),
            ..self
        }
    }

    /// So many keys.
    pub(super) fn keys(self) -> usize {
        self.keys
    }

    /// After a page: as many as would have the wanted bytes, and not many more than that page may have had.
    pub(super) fn adapt(&mut self, entries: &[KeyValue]) {
        let bytes = entries
            .iter()
            .map(|entry| entry.key().len() + entry.value().len());
        self.adapt_to(entries.len(), bytes.sum());
    }

    fn adapt_to(&mut self, keys: usize, bytes: usize) {
        if keys > 0 {
            let fitting = TARGET_PAGE_BYTES * keys / bytes.max(1);
            self.keys = fitting.clamp(1, self.most).min(self.keys * 2);
        }
    }

    /// After a page that was too large, or did not come in time. Returns whether a smaller one may.
    pub(super) fn shrink(&mut self) -> bool {
        let was = self.keys;
        self.keys = (was / 4).max(1);
        was > 1
    }
}

/// Keys from one on, up to an end, page by page.
pub(super) struct Pages<'a> {
    location: &'a Location,
    next: Option<String>,
    end: String,
    /// As they were at this revision of etcd; 0: as they are.
    revision: i64,
    size: PageSize,
}

impl<'a> Pages<'a> {
    pub(super) fn new(location: &'a Location, from: String, end: String, revision: i64) -> Self {
        Self {
            location,
            next: Some(from),
            end,
            revision,
            size: PageSize::default(),
        }
    }

    /// All keys that begin with a prefix.
    pub(super) fn below(location: &'a Location, prefix: &str, revision: i64) -> Self {
        Self::new(location, prefix.to_owned(), keys::prefix_end(prefix), revision)
    }

    /// The next page; `None` after the last one.
    ///
    /// # Errors
    /// As [`first`].
    pub(super) async fn next(&mut self) -> Result<Option<Vec<KeyValue>>, Error> {
        let Some(from) = self.next.take() else {
            return Ok(None);
        };
        let page = first(self.location, &from, &self.end, self.revision, &mut self.size).await;
        // Asked again after an error, it continues there.
        let mut page = page.inspect_err(|_| self.next = Some(from))?;
        let more = page.more();
        let entries = page.take_kvs();
        self.size.adapt(&entries);
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
/// As [`first`].
pub(super) async fn all(location: &Location, prefix: &str, revision: i64) -> Result<Vec<KeyValue>, Error> {
    let mut pages = Pages::below(location, prefix, revision);
    let mut found = Vec::new();
    while let Some(page) = pages.next().await? {
        found.extend(page);
    }
    Ok(found)
}

/// The first page of the keys from one on up to an end, which has fewer keys if it is too large or does not come in time.
///
/// # Errors
/// When etcd refuses it, or has not answered in five times the time of a request, whatever the sizes were.
pub(super) async fn first(
    location: &Location,
    from: &str,
    end: &str,
    revision: i64,
    size: &mut PageSize,
) -> Result<GetResponse, Error> {
    let until = Instant::now() + REQUEST_TIMEOUT * 5;
    loop {
        let options = GetOptions::new()
            .with_range(end)
            .with_limit(i64::try_from(size.keys()).unwrap_or(1))
            .with_revision(revision);
        let too_large = AtomicBool::new(false);
        let get = || {
            let (mut kv, from, options) = (location.kv(), from.to_owned(), options.clone());
            let too_large = &too_large;
            async move {
                let answer = kv.get(from, Some(options)).await;
                let refused = answer.as_ref().err().is_some_and(is_too_large);
                too_large.store(refused, Ordering::Relaxed);
                answer
            }
        };
        let begun = Instant::now();
        let error = match send_with_retries(REQUEST_TIMEOUT, "read from etcd", get).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let is_late = begun.elapsed() >= REQUEST_TIMEOUT;
        let may_be_smaller = (is_late || too_large.into_inner()) && size.shrink();
        if Instant::now() >= until || !(may_be_smaller || is_late) {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_fewer_keys_where_values_are_large() {
        let mut size = PageSize::default();
        for expected in [32, 64, 64] {
            size.adapt_to(size.keys(), size.keys() * 100);
            assert_eq!(size.keys(), expected);
        }
        size.adapt_to(64, 64 * (128 << 10));
        assert_eq!(size.keys(), 32);
        size.adapt_to(64, 64 << 20);
        assert_eq!(size.keys(), 4);
        size.adapt_to(1, 16 << 20);
        assert_eq!(size.keys(), 1);
        size.adapt_to(0, 0);
        assert_eq!(size.keys(), 1);

        let mut size = PageSize { keys: 256, most: 256 };
        let mut tried = vec![size.keys()];
        while size.shrink() {
            tried.push(size.keys());
        }
        assert_eq!(tried, [256, 64, 16, 4, 1]);
    }
}
