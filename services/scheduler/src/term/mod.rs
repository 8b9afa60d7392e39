//! Terms: the times in which this process may write.
//!
//! A term begins when a [`Backend`] has opened the storage and shown that it can be written; it ends when a write fails,
//! when the right to write is lost, or with the process. With it ends its [`Region`]: what was staged and is not durable
//! is thus forgotten, waiting calls fail with an error that allows a retry, and streams end, so that agents report again to the
//! next one.
//!
//! ```text
//!   Opening ──▶ Serving ──▶ ReadOnly ──▶ Serving …    one process owns the storage (redb)
//!   Standby ──▶ Serving ──▶ Standby  ──▶ Serving …    several processes, one of them elected (etcd)
//! ```

mod args;
mod backend;
mod elected;
mod renewal;
mod supervisor;
mod term_metrics;

use std::sync::Arc;

use runtime::serving::{ConnectionAge, ConnectionRound};
use tokio::sync::watch;
use tokio_stream::{Stream, StreamExt as _, wrappers::WatchStream};

pub use args::LedgerArgs;
pub use backend::{Backend, File, Refused, Tenure, Waiting, proven};
pub use elected::Elected;
pub use supervisor::Supervisor;
pub use term_metrics::{TermCollector, TermMetrics};

use crate::{
    error::Error,
    ledger::{Ledger, etcd::Right},
    region::Region,
};

/// What may be done at present.
#[derive(Clone, Debug)]
pub enum Standing {
    /// The storage is being opened for the first time.
    Opening,
    /// A term: everything is served.
    Serving(Term),
    /// The storage cannot be written, and nobody else can have written it: what was durable can still be read.
    ReadOnly {
        /// The region as it was durable last, without hosts.
        region: Region,
        /// The storage, where it can be read.
        ledger: Option<Arc<dyn Ledger>>,
        /// Why it cannot be written, for people.
        cause: Arc<str>,
    },
    /// Another process may write, or none at present.
    Standby {
        /// Where the one that may is, if it is known.
        leader: Option<Arc<str>>,
        /// Why this one may not, for people.
        cause: Arc<str>,
    },
    /// The process is ending.
    Ending,
}

/// A region that may be written, and its ledger.
#[derive(Clone, Debug)]
pub struct Term {
    /// The sites.
    pub region: Region,
    /// The ledger behind them.
    pub ledger: Arc<dyn Ledger>,
    /// When the right to write lapses; `None` for one that does not.
    right: Option<Arc<Right>>,
}

impl Term {
    /// A term in which `right` may lapse; `None`: it does not.
    #[must_use]
    pub fn new(region: Region, ledger: Arc<dyn Ledger>, right: Option<Arc<Right>>) -> Self {
        Self {
            region,
            ledger,
            right,
        }
    }

    /// Whether the right to write still holds, by the clock. A process that was stopped finds out here that it has lapsed.
    fn holds(&self) -> bool {
        self.right.as_ref().is_none_or(|right| right.holds())
    }
}

/// The present standing, for handlers of calls. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Terms {
    standing: watch::Receiver<Standing>,
    /// How many regions have ended.
    ended: watch::Receiver<u64>,
}

impl Terms {
    /// What may be done while this stands.
    #[must_use]
    pub fn new(standing: watch::Receiver<Standing>) -> Self {
        Self {
            standing,
            ended: watch::channel(0).1,
        }
    }

    /// The present region, for a call that changes something or needs the sites' hosts.
    ///
    /// # Errors
    /// [`Error::Opening`], [`Error::ReadOnly`], [`Error::NotLeader`].
    pub fn region(&self) -> Result<Region, Error> {
        match &*self.standing.borrow() {
            Standing::Serving(term) if term.holds() => Ok(term.region.clone()),
            Standing::ReadOnly {
                cause,
                region: _,
                ledger: _,
            } => Err(read_only(cause)),
            other => Err(other.refusal()),
        }
    }

    /// The present region, for a call that reads what is durable.
    ///
    /// # Errors
    /// [`Error::Opening`], [`Error::NotLeader`].
    pub fn durable(&self) -> Result<Region, Error> {
        match &*self.standing.borrow() {
            Standing::Serving(term) if term.holds() => Ok(term.region.clone()),
            Standing::ReadOnly {
                region,
                ledger: _,
                cause: _,
            } => Ok(region.clone()),
            other => Err(other.refusal()),
        }
    }

    /// The present storage, for a call that reads it.
    ///
    /// # Errors
    /// [`Error::Opening`], [`Error::NotLeader`]; [`Error::ReadOnly`] when it cannot even be read.
    pub fn ledger(&self) -> Result<Arc<dyn Ledger>, Error> {
        match &*self.standing.borrow() {
            Standing::Serving(term) if term.holds() => Ok(Arc::clone(&term.ledger)),
            Standing::ReadOnly {
                ledger,
                cause,
                region: _,
            } => ledger.clone().ok_or_else(|| read_only(cause)),
            other => Err(other.refusal()),
        }
    }

    /// A watch on every change of the standing.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// What connections that begin now are good for. With each region that ends, those before are to end: the stream of a client that does not
    /// read keeps the region's memory as long as its connection.
    #[must_use]
    pub fn connection_round(&self) -> ConnectionRound {
        ConnectionRound {
            age: self.standing.borrow().connection_age(),
            number: *self.ended.borrow(),
        }
    }

    /// The present [`connection_round`](Self::connection_round), and each later one.
    pub fn connection_rounds(&self) -> impl Stream<Item = ConnectionRound> + Send + use<> {
        let terms = self.clone();
        let standings = WatchStream::new(self.standing.clone()).map(|_| ());
        let ended = WatchStream::new(self.ended.clone()).map(|_| ());
        standings.merge(ended).map(move |()| terms.connection_round())
    }
}

fn read_only(cause: &Arc<str>) -> Error {
    Error::ReadOnly {
        cause: cause.to_string(),
    }
}

impl Standing {
    /// Whether every call is answered.
    #[must_use]
    pub fn serves(&self) -> bool {
        matches!(self, Self::Serving(_))
    }

    /// Whether it has a region, which calls may hold.
    fn has_region(&self) -> bool {
        match self {
            Self::Serving(_)
            | Self::ReadOnly {
                region: _,
                ledger: _,
                cause: _,
            } => true,
            Self::Opening | Self::Standby { leader: _, cause: _ } | Self::Ending => false,
        }
    }

    /// How long clients may stay connected: one of a process that waits had better find another that serves.
    #[must_use]
    pub fn connection_age(&self) -> ConnectionAge {
        match self {
            Self::Standby { leader: _, cause: _ } => ConnectionAge::Brief,
            Self::Opening
            | Self::Serving(_)
            | Self::ReadOnly {
                region: _,
                ledger: _,
                cause: _,
            }
            | Self::Ending => ConnectionAge::Long,
        }
    }

    fn refusal(&self) -> Error {
        match self {
            Self::Opening => Error::Opening,
            Self::Serving(_) => Error::NotLeader {
                leader: None,
                cause: "its lease was not renewed in time".to_owned(),
            },
            Self::ReadOnly {
                cause,
                region: _,
                ledger: _,
            } => read_only(cause),
            Self::Standby { leader, cause } => Error::NotLeader {
                leader: leader.as_ref().map(ToString::to_string),
                cause: cause.to_string(),
            },
            Self::Ending => Error::Ending,
        }
    }
}
