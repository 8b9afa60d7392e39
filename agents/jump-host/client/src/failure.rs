//! Errors, and the exit codes of the process.

use std::{path::PathBuf, process::ExitCode};

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Why a command has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A file cannot be read.
    #[error("cannot read {what} from {}: {source}", path.display())]
    File {
        /// What it holds.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file lacks its expected content.
    #[error("{} does not hold {what}", path.display())]
    Content {
        /// What it should contain.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// The address is not valid.
    #[error("--address {address:?} must be HOST:PORT")]
    Address {
        /// As given.
        address: String,
    },
    /// No replica serves.
    #[error("no replica of PowerService at {address} serves: {last}")]
    NotServed {
        /// As given.
        address: String,
        /// The answer of the last address that was tried.
        last: String,
    },
    /// The service has refused the call, or has failed.
    #[error("{}", .0.message())]
    Status(Box<Status>),
    /// The service reports that the action has failed.
    #[error("{}", .0.message())]
    Ended(Box<Status>),
    /// A failure after the service may have accepted the action.
    #[error("{0}; the action may have been executed: `host status` shows the host")]
    Lost(Box<Failure>),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] std::io::Error),
    /// The output cannot be encoded as JSON.
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

/// The service's own reason in a status; empty for a status that came from elsewhere, such as the transport.
pub(crate) fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .map(|info| info.reason)
        .unwrap_or_default()
}

impl Failure {
    /// The exit code, as `--help` lists them.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::File { .. } | Self::Content { .. } | Self::Output(_) | Self::Json(_) => 1,
            Self::Address { .. } => 2,
            Self::NotServed { .. } => 4,
            Self::Lost(_) => 6,
            Self::Status(status) | Self::Ended(status) => code(status),
        })
    }
}

fn code(status: &Status) -> u8 {
    match &*reason(status) {
        "BMC_FAILED" => return 5,
        "OUTCOME_UNKNOWN" | "NOT_OBSERVED" | "TERM_OVER" => return 6,
        _ => {}
    }
    match status.code() {
        Code::InvalidArgument
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Aborted => 3,
        Code::Unavailable | Code::ResourceExhausted | Code::DeadlineExceeded => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn what_was_not_done_has_another_code_than_what_may_have_been() {
        let status = |code, reason: &str| {
            let details = ErrorDetails::with_error_info(reason, "sip.airshipit.org", HashMap::new());
            Status::with_error_details(code, "x", details)
        };
        for (status, expected) in [
            (status(Code::NotFound, "NOT_A_MEMBER"), 3),
            (status(Code::FailedPrecondition, "HOST_BUSY"), 3),
            (status(Code::Aborted, "ACTION_UNDER_WAY"), 3),
            (status(Code::Unavailable, "SCHEDULER_FAILED"), 4),
            (status(Code::ResourceExhausted, "OVERLOADED"), 4),
            (status(Code::Unavailable, "BMC_FAILED"), 5),
            (status(Code::Aborted, "OUTCOME_UNKNOWN"), 6),
            (status(Code::Aborted, "TERM_OVER"), 6),
            (status(Code::DeadlineExceeded, "NOT_OBSERVED"), 6),
            (Status::internal("x"), 1),
        ] {
            assert_eq!(code(&status), expected, "{status:?}");
        }
    }
}
