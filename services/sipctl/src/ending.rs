//! How a command ends.

/// How a command ended, when it could do its work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// All that was requested is there.
    Done,
    /// A cluster is refused, partial or invalid.
    NotPlaced,
    /// Something would change when a site is switched over.
    InConflict,
    /// A role would lose its majority.
    MajorityLost,
    /// Something is wrong with a ledger.
    Damaged,
    /// A certificate has expired, or will soon.
    CertificatesDue,
    /// The scheduler refuses.
    Refused,
    /// Another program was run, and ended with this code.
    Ran(u8),
}
