//! Why the ledger fails, and what it does not take.

/// A step that is larger than what stores it takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: may need {bytes} bytes in {place}: must be at most {limit}")]
pub struct TooLarge {
    /// What is too large.
    pub what: String,
    /// Where it does not fit.
    pub place: &'static str,
    /// Bytes that it may need.
    pub bytes: usize,
    /// The largest that fits.
    pub limit: usize,
}

/// Why the ledger failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The storage failed.
    #[error("ledger: {action}")]
    Storage {
        /// What was tried.
        action: &'static str,
        /// Message of the storage.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file was written by another version.
    #[error("ledger: schema version {found}, this program understands {understood}")]
    Schema {
        /// Version in the file.
        found: u64,
        /// Version of this program.
        understood: u64,
    },
    /// Another process has taken over: nothing of what was requested is written.
    #[error("ledger: {by} leads now, and nothing was written")]
    Fenced {
        /// Who, as far as it is known.
        by: String,
    },
    /// The storage works, and does not take what a change holds.
    #[error("ledger: the storage refuses the change: {cause}")]
    Refused {
        /// Changes of the batch, from its first, that are durable.
        stored: usize,
        /// Message of the storage.
        cause: String,
    },
    /// Something is in the way of an import.
    #[error("ledger: it is not empty: {found}")]
    NotEmpty {
        /// What is there.
        found: String,
    },
    /// A record does not fit.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A stored value does not parse.
    #[error("ledger: {what}: {rule}")]
    Corrupt {
        /// Which value.
        what: String,
        /// What is wrong.
        rule: String,
    },
}

impl Error {
    /// The error with its sources, in one line.
    #[must_use]
    pub fn chain(&self) -> String {
        runtime::error_chain::chain(self)
    }

    pub(crate) fn panicked(action: &'static str, panic: tokio::task::JoinError) -> Self {
        Self::storage(action)(panic)
    }

    pub(crate) fn storage<E>(action: &'static str) -> impl FnOnce(E) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        move |source| Self::Storage {
            action,
            source: source.into(),
        }
    }
}
