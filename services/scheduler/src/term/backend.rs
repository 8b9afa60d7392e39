//! How a process obtains the right to write.

use std::{path::PathBuf, sync::Arc};

use tokio_util::sync::CancellationToken;

use crate::ledger::{self, Ledger, etcd::Right, redb::Redb};

/// The right to write, with the opened storage.
#[derive(Debug)]
pub struct Tenure {
    /// The opened storage.
    pub ledger: Arc<dyn Ledger>,
    /// Cancelled when the right is lost. Never cancelled if the right lasts as long as the term.
    pub lost: CancellationToken,
    /// When the right lapses; `None` for one that does not.
    pub right: Option<Arc<Right>>,
}

/// Why a term cannot begin.
#[derive(Debug)]
pub struct Refused {
    /// What failed.
    pub error: ledger::Error,
    /// The storage, if it can be read nevertheless.
    pub readable: Option<Arc<dyn Ledger>>,
}

impl From<ledger::Error> for Refused {
    fn from(error: ledger::Error) -> Self {
        Self {
            error,
            readable: None,
        }
    }
}

/// Called while another process may write: with the address of that process, if it is known, and why this one may not write.
pub type Waiting<'w> = dyn for<'a> Fn(Option<&'a str>, &'a str) + Send + Sync + 'w;

/// Opens a storage, again and again.
#[tonic::async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Waits until this process may write, and opens the storage, having shown by a real write that it can be written.
    /// Everything of the term before is dropped by then. While another process may write, `waiting` is told where that
    /// one is, if that is known, and why this one waits.
    ///
    /// # Errors
    /// When the storage cannot be opened, read or written. The first time this ends the process.
    async fn begin(&self, waiting: &Waiting<'_>) -> Result<Tenure, Refused>;

    /// Gives the right up when its term is over, so that another process need not wait for its end.
    async fn end(&self);

    /// Whether no other process can write while this one lives: then what was durable last may still be returned when this
    /// one cannot write any more.
    fn sole_owner(&self) -> bool;
}

/// A redb file: whoever has it open is the only one that may write.
#[derive(Clone, Debug)]
pub struct File {
    path: PathBuf,
}

impl File {
    /// The file, which is made when it is missing.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }
}

#[tonic::async_trait]
impl Backend for File {
    async fn begin(&self, _: &Waiting<'_>) -> Result<Tenure, Refused> {
        let path = self.path.clone();
        let opened = tokio::task::spawn_blocking(move || proven(|| Redb::open(&path))).await;
        opened.map_err(|error| ledger::Error::panicked("open the file", error))?
    }

    async fn end(&self) {}

    fn sole_owner(&self) -> bool {
        true
    }
}

/// The ledger that `open` opens, once it has been written. When it cannot be written it is opened again for reading: redb
/// reads nothing any more through what has failed.
///
/// # Errors
/// When it cannot be opened or written.
pub fn proven(open: impl Fn() -> Result<Redb, ledger::Error>) -> Result<Tenure, Refused> {
    let opened = open()?;
    match opened.prove() {
        Ok(()) => Ok(Tenure {
            ledger: Arc::new(opened),
            lost: CancellationToken::new(),
            right: None,
        }),
        Err(error) => {
            drop(opened);
            Err(Refused {
                error,
                readable: open().ok().map(|ledger| Arc::new(ledger) as Arc<dyn Ledger>),
            })
        }
    }
}
