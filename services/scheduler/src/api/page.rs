//! Pages: sizes and opaque tokens.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use prost::Message;
use sha2::{Digest as _, Sha256};

use crate::{call_rules::Call, error::Error, violation::Violation};

/// Number of entries in a page when the caller names no size.
const DEFAULT_PAGE_SIZE: usize = 100;
/// Maximum number of entries in a page.
const MAX_PAGE_SIZE: usize = 1000;

/// Size of the entries, in bytes, after which a page ends.
const MAX_PAGE_BYTES: usize = 2 << 20;

/// Entries in order, and the key of the last one when more follow.
#[derive(Debug)]
pub(crate) struct Entries<K, M> {
    pub(crate) entries: Vec<M>,
    pub(crate) next: Option<K>,
}

/// A page that is being filled: at most `size` entries, and no more than fit in 2 MiB but for the one that comes over it.
#[derive(Debug)]
pub(crate) struct Filling<K, M> {
    size: usize,
    bytes: usize,
    entries: Vec<M>,
    last: Option<K>,
}

impl<K, M: Message> Filling<K, M> {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size,
            bytes: 0,
            entries: Vec::new(),
            last: None,
        }
    }

    /// Whether it takes no further entry.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.size || self.bytes >= MAX_PAGE_BYTES
    }

    pub(crate) fn push(&mut self, key: K, entry: M) {
        self.bytes += entry.encoded_len();
        self.entries.push(entry);
        self.last = Some(key);
    }

    /// The page. `more`: there are entries after it.
    pub(crate) fn end(self, more: bool) -> Entries<K, M> {
        Entries {
            entries: self.entries,
            next: self.last.filter(|_| more),
        }
    }
}

/// The first page of these.
pub(crate) fn take<K, M: Message>(all: impl IntoIterator<Item = (K, M)>, size: usize) -> Entries<K, M> {
    let mut page = Filling::new(size);
    for (key, entry) in all {
        if page.is_full() {
            return page.end(true);
        }
        page.push(key, entry);
    }
    page.end(false)
}

/// How many entries the caller gets: 0 means 100, more than 1,000 means 1,000.
///
/// # Errors
/// When the size is negative.
pub(crate) fn size(asked: i32) -> Result<usize, Error> {
    match usize::try_from(asked) {
        Ok(0) => Ok(DEFAULT_PAGE_SIZE),
        Ok(size) => Ok(size.min(MAX_PAGE_SIZE)),
        Err(_) => Err(Error::Invalid(vec![Violation::new(
            "page_size",
            format_args!("{asked} must not be negative"),
        )])),
    }
}

/// What a list is of: a method, and the fields of its request that select entries. Its tokens are of no use to another list.
#[derive(Debug)]
pub(crate) struct Listing {
    method: &'static str,
    filter: String,
}

impl Listing {
    /// The list that `filter` asks for: a request without its `page_size`, which may change from page to page, and without its
    /// `page_token`.
    pub(crate) fn new(call: Call, filter: &impl Message) -> Self {
        let digest = Sha256::digest(filter.encode_to_vec());
        let filter = digest.iter().take(16).fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        Self {
            method: call.name(),
            filter,
        }
    }

    /// A token after the entry that `parts` name. Opaque to callers.
    pub(crate) fn token(&self, parts: &[&str]) -> String {
        let Self { method, filter } = self;
        let parts = [&[*method, filter.as_str()], parts].concat();
        URL_SAFE_NO_PAD.encode(parts.join("\n"))
    }

    /// The parts of a token that [`Listing::token`] made of `N` parts; `None` for the first page.
    ///
    /// # Errors
    /// When the token is not one of this list.
    pub(crate) fn parse<const N: usize>(&self, token: &str) -> Result<Option<[String; N]>, Error> {
        if token.is_empty() {
            return Ok(None);
        }
        let decoded = URL_SAFE_NO_PAD.decode(token).ok();
        let text = decoded
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or_else(|| self.foreign())?;
        let mut parts = text.split('\n').map(str::to_owned);
        if parts.next().as_deref() != Some(self.method) {
            return Err(self.foreign());
        }
        if parts.next().as_ref() != Some(&self.filter) {
            return Err(refused(
                "was issued for another filter: repeat the other fields of the first page's request, or begin without a token",
            ));
        }
        let parts = parts.collect::<Vec<_>>().try_into();
        parts.map(Some).map_err(|_| self.foreign())
    }

    /// Refuses a token that this method has not issued.
    pub(crate) fn foreign(&self) -> Error {
        refused(format_args!(
            "was not issued by {}: begin without a token",
            self.method
        ))
    }
}

fn refused(rule: impl std::fmt::Display) -> Error {
    Error::Invalid(vec![Violation::new("page_token", rule)])
}

#[cfg(test)]
mod tests {
    use proto::placement::v1::ListPlacementsRequest;

    use super::*;

    fn listing(site: &str) -> Listing {
        let filter = ListPlacementsRequest {
            site: site.to_owned(),
            ..ListPlacementsRequest::default()
        };
        Listing::new(Call::ListPlacements, &filter)
    }

    #[test]
    fn a_token_gives_back_its_parts() {
        let list = listing("a");

        let token = list.token(&["a", "b c"]);

        assert_eq!(
            list.parse(&token).unwrap(),
            Some(["a".to_owned(), "b c".to_owned()])
        );
        assert_eq!(list.parse::<2>("").unwrap(), None);
    }

    #[test]
    fn a_token_of_another_list_or_length_is_refused() {
        let token = listing("a").token(&["a", "b"]);
        let other_method = Listing::new(Call::ListDecisions, &ListPlacementsRequest::default());

        assert!(listing("a").parse::<3>(&token).is_err());
        assert!(listing("b").parse::<2>(&token).is_err());
        assert!(other_method.parse::<2>(&token).is_err());
        assert!(listing("a").parse::<1>("~").is_err());
    }

    #[test]
    fn pages_end_at_their_size_or_bytes_and_continue() {
        let entry = |bytes: usize| ListPlacementsRequest {
            site: "x".repeat(bytes),
            ..ListPlacementsRequest::default()
        };
        for (size, bytes, pages) in [
            (4, 1, &[4, 4, 2][..]),
            (10, 1, &[10]),
            (1000, 700 << 10, &[3, 3, 3, 1]),
            (1000, 3 << 20, &[1; 10]),
        ] {
            let (mut from, mut found) = (0, Vec::new());
            loop {
                let Entries { entries, next } = take((from..10).map(|key| (key, entry(bytes))), size);
                found.push(entries.len());
                let Some(last) = next else { break };
                from = last + 1;
            }
            assert_eq!(found, pages, "{size} of {bytes} bytes");
        }
    }

    #[test]
    fn sizes_have_a_usual_and_a_largest_value() {
        assert_eq!(
            [size(0).unwrap(), size(7).unwrap(), size(5000).unwrap()],
            [100, 7, 1000]
        );
        assert!(size(-1).is_err());
    }
}
