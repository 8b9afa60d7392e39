//! `sip.ledger.v1.LedgerService`.

use std::{
    pin::Pin,
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
};
use tonic::{Request, Response, Status};

use super::authorizer::Authorizer;
use crate::{
    error::Error,
    ledger::{self, export::Counts},
    term::{Standing, Terms},
};

/// Bytes of entries in one message, but for an entry that is larger by itself.
const CHUNK: usize = 256 << 10;
/// Messages that may wait for a slow reader.
const QUEUE: usize = 4;
/// How long a reader may take nothing.
const STALL: Duration = Duration::from_secs(30);

/// The service on whatever ledger there is.
#[derive(Clone, Debug)]
pub struct LedgerApi {
    authorizer: Authorizer,
}

impl LedgerApi {
    /// The service on whatever ledger there is.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self {
            authorizer: Authorizer::new(terms),
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
    entries: Vec<Entry>,
    bytes: usize,
    counts: Counts,
}

impl Chunks {
    fn take(&mut self, entry: Entry) -> Result<(), ledger::Error> {
        self.counts.add(&entry);
        self.bytes += entry.encoded_len();
        self.entries.push(entry);
        if self.bytes >= CHUNK { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), ledger::Error> {
        self.bytes = 0;
        let entries = std::mem::take(&mut self.entries);
        let (messages, standing) = (&self.messages, &mut self.standing);
        let stopped = |why: &'static str| ledger::Error::storage("hand the export out")(why);
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                // Where nobody can change it any more the term has no end.
                Ok(()) = standing.changed() => Err(stopped("the term is over; start again")),
                place = messages.reserve() => match place {
                    Ok(place) => {
                        place.send(Ok(ExportLedgerResponse { entries }));
                        Ok(())
                    }
                    Err(_) => Err(stopped("nobody reads it any more")),
                },
                () = tokio::time::sleep(STALL) => Err(stopped("nothing was read for 30 s; start again")),
            }
        })
    }
}

#[tonic::async_trait]
impl LedgerService for LedgerApi {
    type ExportLedgerStream = Export;

    async fn export_ledger(&self, request: Request<ExportLedgerRequest>) -> Result<Response<Export>, Status> {
        let (ExportLedgerRequest {}, _, terms) = self.authorizer.authorize(request)?.into_parts();
        // Watched before the ledger is taken: whatever comes after ends the export.
        let mut standing = terms.watch();
        standing.mark_unchanged();
        let ledger = terms.ledger()?;
        let (sender, messages) = mpsc::channel(QUEUE);
        let failures = sender.clone();
        let mut chunks = Chunks {
            messages: sender,
            standing,
            runtime: Handle::current(),
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
            drop(ledger);
            if let Err(error) = read {
                // Whoever has no room for it does not read; a stream without an End says that it was cut off.
                let _ = failures.try_send(Err(Error::Ledger(error).into()));
            }
        });
        Ok(Response::new(Export {
            messages,
            _reading: reading,
        }))
    }
}
