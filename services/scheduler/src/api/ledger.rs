//! `sip.ledger.v1.LedgerService`.

use std::{
    collections::BTreeSet,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::Stream;
use prost::Message as _;
use proto::ledger::v1::{
    Entry, ExportLedgerRequest, ExportLedgerResponse, ledger_service_server::LedgerService,
};
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tonic::{Request, Response, Status};

use super::authorizer::Authorizer;
use crate::{
    admission::Limit,
    error::Error,
    ledger::{self, export::Counts},
    term::{Standing, Terms},
};

/// Size of the entries in one message, in bytes, but for an entry that is larger by itself.
const CHUNK_BYTES: usize = 256 << 10;
/// Maximum number of messages that wait for a slow reader.
const MAX_QUEUED_CHUNKS: usize = 4;
/// How long a reader may read nothing.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Retry delay that the caller of a refused export is sent.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// The service on whatever ledger there is.
#[derive(Clone, Debug)]
pub struct LedgerApi {
    authorizer: Authorizer,
    exports: Exports,
}

/// Identities with an export in progress. Each may have one, so that a new export does not begin before the storage has closed the snapshot of the
/// former one.
#[derive(Clone, Debug, Default)]
struct Exports(Arc<Mutex<BTreeSet<String>>>);

/// An export under way, until this is dropped.
#[derive(Debug)]
struct RunningExport {
    exports: Exports,
    caller: String,
}

impl Exports {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, caller: String) -> Result<RunningExport, Error> {
        if !self.lock().insert(caller.clone()) {
            return Err(Error::Limited {
                identity: caller,
                limit: Limit::Exports,
                why: "it already runs an export".to_owned(),
                again: RETRY_DELAY,
            });
        }
        Ok(RunningExport {
            exports: self.clone(),
            caller,
        })
    }
}

impl Drop for RunningExport {
    fn drop(&mut self) {
        self.exports.lock().remove(&self.caller);
    }
}

impl LedgerApi {
    /// The service on whatever ledger there is.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self {
            authorizer: Authorizer::new(terms),
            exports: Exports::default(),
        }
    }
}

/// What is read, as it is read. Dropping it ends the reading at the next message.
#[derive(Debug)]
pub struct Export {
    messages: mpsc::Receiver<Result<ExportLedgerResponse, Status>>,
    _reading: JoinHandle<()>,
}

impl Stream for Export {
    type Item = Result<ExportLedgerResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.messages.poll_recv(cx)
    }
}

/// Collects entries into messages, as long as somebody takes them and the term lasts: whoever holds the storage open then
/// would keep the next term from beginning.
struct Chunks {
    messages: mpsc::Sender<Result<ExportLedgerResponse, Status>>,
    standing: watch::Receiver<Standing>,
    runtime: Handle,
    until: Instant,
    entries: Vec<Entry>,
    bytes: usize,
    counts: Counts,
}

impl Chunks {
    fn take(&mut self, entry: Entry) -> Result<(), ledger::Error> {
        self.counts.add(&entry);
        self.bytes += entry.encoded_len();
        self.entries.push(entry);
        if self.bytes >= CHUNK_BYTES {
            self.send()
        } else {
            Ok(())
        }
    }

    fn send(&mut self) -> Result<(), ledger::Error> {
        self.bytes = 0;
        let entries = std::mem::take(&mut self.entries);
        let (messages, standing) = (&self.messages, &mut self.standing);
        let until = self.until;
        let stopped = |why: &'static str| ledger::Error::storage("send the export")(why);
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                // The sender of the standing is gone, so the term never ends.
                Ok(()) = standing.changed() => Err(stopped("the term is over; start again")),
                () = sleep_until(until) => Err(stopped("the client did not read it within 5 minutes; start again with a faster reader")),
                place = messages.reserve() => match place {
                    Ok(place) => {
                        place.send(Ok(ExportLedgerResponse { entries }));
                        Ok(())
                    }
                    Err(_) => Err(stopped("the client disconnected")),
                },
                () = tokio::time::sleep(STALL_TIMEOUT) => Err(stopped("the client read nothing for 30 s; start again")),
            }
        })
    }
}

#[tonic::async_trait]
impl LedgerService for LedgerApi {
    type ExportLedgerStream = Export;

    async fn export_ledger(&self, request: Request<ExportLedgerRequest>) -> Result<Response<Export>, Status> {
        let (ExportLedgerRequest {}, caller, terms) = self.authorizer.authorize(request)?.into_parts();
        let under_way = self.exports.begin(caller)?;
        // Watched before the ledger is taken: whatever comes after ends the export.
        let mut standing = terms.watch();
        standing.mark_unchanged();
        let ledger = terms.ledger()?;
        let (sender, messages) = mpsc::channel(MAX_QUEUED_CHUNKS);
        let failures = sender.clone();
        let mut chunks = Chunks {
            messages: sender,
            standing,
            runtime: Handle::current(),
            until: Instant::now() + ledger::EXPORT_TIMEOUT,
            entries: Vec::new(),
            bytes: 0,
            counts: Counts::default(),
        };
        let reading = tokio::task::spawn_blocking(move || {
            let read = ledger
                .export(&mut |entry| chunks.take(entry))
                .and_then(|()| {
                    let end = chunks.counts.end();
                    chunks.take(end)
                })
                .and_then(|()| chunks.send());
            drop((ledger, under_way));
            if let Err(error) = read {
                // If the queue is full the client does not read; without an `End` entry it can tell that the stream was cut off.
                let _ = failures.try_send(Err(Error::Ledger(error).into()));
            }
        });
        Ok(Response::new(Export {
            messages,
            _reading: reading,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry::default()
    }

    #[tokio::test]
    async fn a_slow_reader_does_not_keep_an_export_open() {
        let (sender, mut messages) = mpsc::channel(MAX_QUEUED_CHUNKS);
        let (_standing, seen) = watch::channel(Standing::Opening);
        let longest = Duration::from_millis(300);
        let mut chunks = Chunks {
            messages: sender,
            standing: seen,
            runtime: Handle::current(),
            until: Instant::now() + longest,
            entries: Vec::new(),
            bytes: 0,
            counts: Counts::default(),
        };
        let begun = Instant::now();
        let reading = tokio::task::spawn_blocking(move || {
            loop {
                chunks.take(entry())?;
                chunks.send()?;
            }
        });
        // It takes something again and again, and never all.
        let slow = tokio::spawn(async move {
            while messages.recv().await.is_some() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let ended: Result<(), ledger::Error> = reading.await.unwrap();
        let why = ended.unwrap_err().chain();
        assert!(why.contains("faster reader"), "{why}");
        assert!(begun.elapsed() >= longest);
        slow.await.unwrap();
    }

    #[test]
    fn an_identity_has_one_export_at_once() {
        let exports = Exports::default();
        let first = exports.begin("operator/ana".to_owned()).unwrap();
        assert!(exports.begin("operator/ana".to_owned()).is_err());
        drop(exports.begin("operator/bob".to_owned()).unwrap());
        drop(first);
        exports.begin("operator/ana".to_owned()).unwrap();
    }
}
