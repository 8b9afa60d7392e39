//! A part of the log of decisions, read off the async threads for as long as its caller waits. Entries are answered as they are
//! stored.

use std::sync::Arc;

use proto::placement::v1::Decision;
use tokio_util::sync::CancellationToken;

use crate::{
    error::Error,
    ledger::{Commit, Ledger, Page, Query, commit::Stopped},
};

/// Most entries that one call reads, wanted or not.
const READS: usize = 4096;

/// Reads entries of commits before `before`, newest first, at most `limit` that are wanted.
///
/// # Errors
/// When the storage cannot be read.
pub(super) async fn read(
    ledger: Arc<dyn Ledger>,
    before: Commit,
    limit: usize,
    wanted: impl Fn(&Decision) -> bool + Send + 'static,
) -> Result<Page, Error> {
    let gone = CancellationToken::new();
    let _waiting = gone.clone().drop_guard();
    let read = tokio::task::spawn_blocking(move || {
        ledger.read_log(Query {
            before,
            limit,
            most: READS,
            wanted: &wanted,
            gone: &|| gone.is_cancelled(),
        })
    });
    match read.await {
        Ok(page) => Ok(page?),
        Err(_) => Err(Error::Stopped(Stopped)),
    }
}
