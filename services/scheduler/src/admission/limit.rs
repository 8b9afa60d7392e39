//! Limits, as refusals and metrics name them.

use crate::call::Places;

/// A limit, as refusals and metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Calls of one kind under way.
    Places(Places),
    /// Calls a second.
    Rate,
    /// Calls a second that its identity may not make.
    Denials,
    /// Bytes of requests and answers.
    Buffer,
    /// Exports under way.
    Exports,
    /// Identities of one site, or of one kind.
    Identities,
}

impl Limit {
    /// Its name in refusals and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Places(Places::Writes) => "writes",
            Self::Places(Places::Reads) => "reads",
            Self::Places(Places::Scans) => "scans",
            Self::Places(Places::Watches) => "watches",
            Self::Places(Places::Reports) => "reports",
            Self::Places(Places::Probes) => "probes",
            Self::Rate => "rate",
            Self::Denials => "denials",
            Self::Buffer => "buffer",
            Self::Exports => "exports",
            Self::Identities => "identities",
        }
    }
}
