//! Reads a part of the log of decisions, in turns with other callers, and stops when its caller is gone. Entries are returned as they are stored.

use proto::placement::v1::Decision;
use tokio_util::sync::CancellationToken;

use crate::{
    error::Error,
    ledger::{Commit, Page, Query},
    term::Terms,
};

/// Maximum number of entries that one call reads, wanted or not.
const MAX_READ_ENTRIES: usize = 4096;

/// Reads entries of commits before `before`, newest first, at most `limit` that are wanted.
///
/// # Errors
/// When the storage cannot be read.
pub(super) async fn read(
    terms: &Terms,
    caller: &str,
    before: Commit,
    limit: usize,
    wanted: impl Fn(&Decision) -> bool + Send + 'static,
) -> Result<Page, Error> {
    let (region, ledger) = (terms.durable()?, terms.ledger()?);
    let gone = CancellationToken::new();
    let _waiting = gone.clone().drop_guard();
    let read = move || {
        ledger.read_log(Query {
            before,
            limit,
            most: MAX_READ_ENTRIES,
            wanted: &wanted,
            gone: &|| gone.is_cancelled(),
        })
    };
    Ok(region.compute(caller, read).await??)
}
