//! `sip.ledger.v1.LedgerService`.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures::Stream;
use prost::Message as _;
use proto::ledger::v1::{
    Entry, ExportLedgerRequest, ExportLedgerResponse, ledger_service_server::LedgerService,
};
use tokio::{sync::mpsc, task::JoinHandle};
use tonic::{Request, Response, Status};

use super::authorize::{Call, authorize};
use crate::{
    error::Error,
    ledger::{self, commit::Stopped, export::Counts},
    term::Terms,
};

/// Bytes of entries in one message, but for an entry that is larger by itself.
const CHUNK: usize = 256 << 10;
/// Messages that may wait for a slow reader.
const QUEUE: usize = 4;

/// The service on whatever ledger there is.
#[derive(Clone, Debug)]
pub struct LedgerApi {
    terms: Terms,
}

impl LedgerApi {
    /// The service on whatever ledger there is.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self { terms }
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

/// Collects entries into messages.
struct Chunks<'a> {
    messages: &'a mpsc::Sender<Result<ExportLedgerResponse, Status>>,
    entries: Vec<Entry>,
    bytes: usize,
    counts: Counts,
}

impl Chunks<'_> {
    fn take(&mut self, entry: Entry) -> Result<(), ledger::Error> {
        self.counts.add(&entry);
        self.bytes += entry.encoded_len();
        self.entries.push(entry);
        if self.bytes >= CHUNK { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), ledger::Error> {
        self.bytes = 0;
        let entries = std::mem::take(&mut self.entries);
        // Nobody reads any more.
        self.messages
            .blocking_send(Ok(ExportLedgerResponse { entries }))
            .map_err(|_| ledger::Error::storage("hand the export out")(Stopped))
    }
}

#[tonic::async_trait]
impl LedgerService for LedgerApi {
    type ExportLedgerStream = Export;

    async fn export_ledger(&self, request: Request<ExportLedgerRequest>) -> Result<Response<Export>, Status> {
        authorize(request.extensions(), Call::ExportLedger, None)?;
        let ledger = self.terms.ledger()?;
        let (sender, messages) = mpsc::channel(QUEUE);
        let reading = tokio::task::spawn_blocking(move || {
            let mut chunks = Chunks {
                messages: &sender,
                entries: Vec::new(),
                bytes: 0,
                counts: Counts::default(),
            };
            let read = ledger
                .export(&mut |entry| chunks.take(entry))
                .and_then(|()| {
                    let end = chunks.counts.end();
                    chunks.take(end)
                })
                .and_then(|()| chunks.send());
            if let Err(error) = read {
                // Whoever does not read any more need not be told.
                let _ = sender.blocking_send(Err(Error::Ledger(error).into()));
            }
        });
        Ok(Response::new(Export {
            messages,
            _reading: reading,
        }))
    }
}
