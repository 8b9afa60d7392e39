//! What the transport keeps for calls: heads of requests, and answers that it has not written yet. Whatever there is of an answer counts, and
//! holds the permit of its call, until it is written or dropped: by the lifetime of its bytes. A peer that does not read leaves it in the transport
//! after the call has ended.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use prost::bytes::Bytes;

use super::accounts::{Account, CallPermit, Charge, Head};
use crate::{call_rules::CallKind, error::Error};

/// Usual maximum size of the head of a request, in bytes. Each call that a caller may have at once has one such head, so they do not count.
const USUAL_HEAD_BYTES: usize = 4096;

/// Where an answer carries the id by which the audit log names the call.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What a call holds while it is under way. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Guard(Arc<Held>);

#[derive(Debug)]
struct Held {
    _permit: CallPermit,
    kind: CallKind,
    account: Arc<Account>,
    request: Arc<Charge>,
}

impl Guard {
    pub(super) fn new(permit: CallPermit, kind: CallKind, account: &Arc<Account>) -> Self {
        Self(Arc::new(Held {
            _permit: permit,
            kind,
            request: Arc::new(account.charge(kind)),
            account: Arc::clone(account),
        }))
    }

    /// What its request keeps.
    pub(super) fn request(&self) -> &Arc<Charge> {
        &self.0.request
    }

    /// The head of its request: what it takes beyond a usual one counts until this is dropped.
    ///
    /// # Errors
    /// [`Error::Limited`] when its caller has too much under way.
    pub(super) fn request_head(&self, uri: &Uri, headers: &HeaderMap) -> Result<RequestHead, Error> {
        let Held { kind, account, .. } = &*self.0;
        let charge = account.charge(*kind);
        let beyond = (bytes(headers) + target(uri)).saturating_sub(USUAL_HEAD_BYTES);
        if beyond > 0 {
            charge.add(beyond)?;
        }
        Ok(RequestHead {
            _charge: Arc::new(charge),
        })
    }

    /// A part of its answer, which counts until it is written.
    ///
    /// # Errors
    /// [`Error::Limited`] when its caller has too much unread.
    pub(super) fn part(&self, data: Bytes) -> Result<Bytes, Error> {
        let Held { kind, account, .. } = &*self.0;
        let charge = account.charge(*kind);
        charge.add(data.len())?;
        Ok(Bytes::from_owner(Part {
            data,
            _charge: charge,
            _guard: self.clone(),
        }))
    }
}

/// The head of a request; in the request's extensions, which end with its headers. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct RequestHead {
    _charge: Arc<Charge>,
}

/// A part of an answer.
struct Part {
    data: Bytes,
    _charge: Charge,
    _guard: Guard,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// A head, or trailers, by one of their values.
struct Unwritten {
    id: String,
    _head: Option<Head>,
    _guard: Option<Guard>,
}

impl AsRef<[u8]> for Unwritten {
    fn as_ref(&self) -> &[u8] {
        self.id.as_bytes()
    }
}

/// About what the transport keeps of a head: an entry for each header, and the stream.
pub(super) fn bytes(headers: &HeaderMap) -> usize {
    const STREAM: usize = 1024;
    const ENTRY: usize = 128;
    let entries = headers
        .iter()
        .map(|(name, value)| ENTRY + name.as_str().len() + value.len());
    entries.sum::<usize>() + STREAM
}

/// What the transport keeps of the target of a request: `:authority` and `:path`, which may have a query of any length.
fn target(uri: &Uri) -> usize {
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    authority + path
}

/// Puts the id of a call into a head, or trailers, which hold these until they are written.
pub(super) fn hold(headers: &mut HeaderMap, id: &str, head: Option<Head>, guard: Option<Guard>) {
    let owner = Unwritten {
        id: id.to_owned(),
        _head: head,
        _guard: guard,
    };
    if let Ok(mut value) = HeaderValue::from_maybe_shared(Bytes::from_owner(owner)) {
        // Any other would live on in the table by which HTTP/2 compresses headers.
        value.set_sensitive(true);
        headers.insert(REQUEST_ID, value);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_head_holds_what_it_is_given_until_it_is_dropped() {
        struct OnDrop(Arc<AtomicBool>);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        impl AsRef<[u8]> for OnDrop {
            fn as_ref(&self) -> &[u8] {
                b"id"
            }
        }
        let dropped = Arc::new(AtomicBool::new(false));
        let owner = Bytes::from_owner(OnDrop(Arc::clone(&dropped)));
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST_ID, HeaderValue::from_maybe_shared(owner).unwrap());
        let sent = headers.clone();
        drop(headers);
        assert!(!dropped.load(Ordering::Relaxed));
        drop(sent);
        assert!(dropped.load(Ordering::Relaxed));
    }

    #[test]
    fn the_id_of_a_call_stays_out_of_the_table_of_headers() {
        let mut headers = HeaderMap::new();
        hold(&mut headers, "a-1", None, None);
        let id = &headers[REQUEST_ID];
        assert!(id.is_sensitive() && id == "a-1");
        assert!(bytes(&headers) > 1024 + 128);
    }
}
