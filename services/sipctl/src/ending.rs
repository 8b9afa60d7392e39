//! How a command ends, and with which exit code.

use std::process::ExitCode;

/// Exit code: a cluster is refused, partial or invalid; a role would lose its majority; a site has conflicts; a ledger has a fault; a
/// certificate has expired or will soon; the scheduler refuses.
const EXIT_NOT_PLACED: u8 = 2;

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

impl Ending {
    /// The exit code of the program.
    #[must_use]
    pub fn exit_code(self) -> ExitCode {
        match self {
            Self::Done => ExitCode::SUCCESS,
            Self::Ran(code) => ExitCode::from(code),
            Self::NotPlaced
            | Self::InConflict
            | Self::MajorityLost
            | Self::Damaged
            | Self::CertificatesDue
            | Self::Refused => ExitCode::from(EXIT_NOT_PLACED),
        }
    }
}
