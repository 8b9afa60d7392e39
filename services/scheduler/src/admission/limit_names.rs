//! The names of limits in refusals and metrics.

use crate::call_rules::CallKind;

/// A limit, as refusals and metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Calls of one kind under way.
    Calls(CallKind),
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
            Self::Calls(CallKind::Writes) => "writes",
            Self::Calls(CallKind::Reads) => "reads",
            Self::Calls(CallKind::Scans) => "scans",
            Self::Calls(CallKind::Watches) => "watches",
            Self::Calls(CallKind::Reports) => "reports",
            Self::Calls(CallKind::Probes) => "probes",
            Self::Rate => "rate",
            Self::Denials => "denials",
            Self::Buffer => "buffer",
            Self::Exports => "exports",
            Self::Identities => "identities",
        }
    }
}
