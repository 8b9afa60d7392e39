//! Errors of a call, and their gRPC statuses.

use std::{collections::HashMap, time::Duration};

use runtime::error_chain::chain;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, PreconditionViolation, StatusExt as _};

use crate::redfish::Failure;

/// Domain of every `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "sip.airshipit.org";
/// Pause after which a caller should retry what depends on another program.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Why a call is not answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller must mend the request.
    #[error("{field}: {value:?}: {rule}")]
    Invalid {
        /// Path of the field.
        field: &'static str,
        /// Its value, cut off.
        value: String,
        /// The rule.
        rule: String,
    },
    /// The token proves nothing.
    #[error("the ServiceAccount token is refused: {0}")]
    TokenRefused(String),
    /// The token is not that of a jump host.
    #[error("ServiceAccount {account} is not that of a jump host: {why}")]
    NotAJumpHost {
        /// Namespace and name.
        account: String,
        /// The cause.
        why: String,
    },
    /// Another replica serves.
    #[error("this replica is on standby: another address of the Service serves")]
    Standby,
    /// The process is ending.
    #[error("this replica is shutting down")]
    Ending,
    /// The task of the action has failed after its request may have been sent.
    #[error(
        "the agent failed while it executed the action; read the power state of the host before you retry"
    )]
    Abandoned,
    /// There is no such host in the cluster.
    #[error("{cluster} holds no host {host:?}: `host list` names those that it holds")]
    NotAMember {
        /// Namespace and name of the cluster.
        cluster: String,
        /// The value in the request.
        host: String,
    },
    /// The cluster releases the host.
    #[error("{cluster} is releasing host {host}, so this cluster can no longer change its power state")]
    Releasing {
        /// Namespace and name of the cluster.
        cluster: String,
        /// Namespace and name of the host.
        host: String,
    },
    /// Something else is changing the host.
    #[error("host {host} is busy: {why}")]
    Busy {
        /// Namespace and name.
        host: String,
        /// With what.
        why: String,
    },
    /// Its BMC cannot be used according to its objects.
    #[error("the BMC of host {host} cannot be used: {why}")]
    BmcUnusable {
        /// Namespace and name.
        host: String,
        /// What its objects state.
        why: String,
    },
    /// The BMC gave no usable answer; nothing was changed.
    #[error("host {host}: {}; nothing was changed", chain(.failure))]
    BmcFailed {
        /// Namespace and name.
        host: String,
        /// The error of the BMC.
        failure: Failure,
    },
    /// A host that is off cannot be restarted.
    #[error("host {host} is off, so it cannot be rebooted: `host on` turns it on")]
    HostIsOff {
        /// Namespace and name.
        host: String,
    },
    /// The BMC offers nothing that does it.
    #[error("the BMC of host {host} offers none of {}: it offers {}", .wanted.join(", "), listed(.offered))]
    NotOffered {
        /// Namespace and name.
        host: String,
        /// Reset types that would do it.
        wanted: &'static [&'static str],
        /// Those that it offers.
        offered: Vec<String>,
    },
    /// An action is unfinished.
    #[error(
        "host {host} has an unfinished action: retry after it has ended; once its request was sent to the BMC, a forced action supersedes it"
    )]
    UnderWay {
        /// Namespace and name.
        host: String,
    },
    /// Another process has begun to serve.
    #[error(
        "term {requested:?} is over: another replica serves, and does not know the result of an earlier call with this idempotency key; `host status` shows the host"
    )]
    TermOver {
        /// The value in the request.
        requested: String,
    },
    /// The BMC may have executed it.
    #[error(
        "host {host}: {}; the BMC may have executed the action, which was sent once: `host status` shows the host",
        chain(.failure)
    )]
    OutcomeUnknown {
        /// Namespace and name.
        host: String,
        /// Why it is not known.
        failure: Failure,
    },
    /// The cluster released the host while the effect was waited for.
    #[error(
        "{reset_type} was sent to host {host}, but the cluster stopped holding the host before the effect was observed"
    )]
    NoLongerHeld {
        /// Namespace and name.
        host: String,
        /// What was sent.
        reset_type: &'static str,
    },
    /// A forced action of the same cluster has ended the wait for the effect.
    #[error(
        "{reset_type} was sent to host {host}, and its effect was not observed before a forced action superseded it"
    )]
    Superseded {
        /// Namespace and name.
        host: String,
        /// What was sent.
        reset_type: &'static str,
    },
    /// The last checks before an action took too long to be still true.
    #[error("the checks right before the action took more than {0:?}; nothing was changed")]
    ChecksTooOld(Duration),
    /// The BMC has not reported the change.
    #[error(
        "the BMC of host {host} accepted {reset_type} and did not show its effect within {within:?}{}",
        suffix(.last.as_deref())
    )]
    NotObserved {
        /// Namespace and name.
        host: String,
        /// What was sent.
        reset_type: &'static str,
        /// How long it had.
        within: Duration,
        /// Why it could not be read last.
        last: Option<String>,
    },
    /// Too many actions.
    #[error("{what}; nothing was done, retry in {retry_after:?}")]
    TooManyActions {
        /// What there are too many of.
        what: String,
        /// When an action may be accepted.
        retry_after: Duration,
    },
    /// Too many calls.
    #[error("{what} (limit `{limit}`); nothing was done, retry in {retry_after:?}")]
    Overloaded {
        /// What there are too many of.
        what: String,
        /// Name of the limit.
        limit: &'static str,
        /// When a call may be accepted.
        retry_after: Duration,
    },
    /// The caller's deadline, or the method's.
    #[error("the call was not answered within {0:?}; nothing was changed")]
    TooLate(Duration),
    /// Which cluster holds the host is not known.
    #[error("the scheduler does not answer which hosts the cluster holds: {}", .0.message())]
    Scheduler(Box<Status>),
    /// The API server fails.
    #[error("cannot {what}: {}", chain(&**.source))]
    ApiServer {
        /// What it does not do.
        what: &'static str,
        /// The cause.
        source: Box<kube::Error>,
    },
}

/// The names that a BMC offers, for messages: it decides how many there are, and how long they are.
fn listed(offered: &[String]) -> String {
    const MAX_NAMES: usize = 10;
    const MAX_CHARACTERS: usize = 32;
    if offered.is_empty() {
        return "none".to_owned();
    }
    let names = offered.iter().take(MAX_NAMES);
    let mut names: Vec<String> = names
        .map(|name| name.chars().take(MAX_CHARACTERS).collect())
        .collect();
    if offered.len() > MAX_NAMES {
        names.push(format!("{} more", offered.len() - MAX_NAMES));
    }
    names.join(", ")
}

/// A message as long as a status may have it. Statuses are sent as headers, with each byte of a character beyond ASCII as three and once
/// more in the details; a client refuses headers of more than 16 KiB, and then receives neither the code nor the reason.
fn bounded(mut message: String) -> String {
    const MAX_BYTES: usize = 1 << 10;
    const ELLIPSIS: &str = "…";
    if message.len() > MAX_BYTES {
        message.truncate(message.floor_char_boundary(MAX_BYTES - ELLIPSIS.len()));
        message.push_str(ELLIPSIS);
    }
    message
}

fn suffix(last: Option<&str>) -> String {
    last.map(|last| format!(": {last}")).unwrap_or_default()
}

impl Error {
    /// An error of the API server, with what failed.
    pub(crate) fn api_server(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::ApiServer {
            what,
            source: Box::new(source),
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let message = bounded(error.to_string());
        let mut details = ErrorDetails::new();
        let mut metadata = HashMap::new();
        let mut precondition = |kind: &str, host: &str| {
            details.set_precondition_failure(vec![PreconditionViolation::new(kind, host, &*message)]);
        };
        let (code, reason, retry_after) = match error {
            Error::Invalid {
                field,
                value: _,
                rule: _,
            } => {
                details.set_bad_request(vec![FieldViolation::new(field, &*message)]);
                (Code::InvalidArgument, "INVALID", None)
            }
            Error::TokenRefused(_) => (Code::Unauthenticated, "TOKEN_REFUSED", None),
            Error::NotAJumpHost { account: _, why: _ } => (Code::PermissionDenied, "NOT_A_JUMP_HOST", None),
            Error::Standby => (Code::Unavailable, "STANDBY", Some(RETRY_DELAY)),
            Error::Ending => (Code::Unavailable, "SHUTTING_DOWN", Some(RETRY_DELAY)),
            Error::Abandoned
            | Error::NoLongerHeld {
                host: _,
                reset_type: _,
            }
            | Error::Superseded {
                host: _,
                reset_type: _,
            } => (Code::Aborted, "OUTCOME_UNKNOWN", None),
            Error::NotAMember { cluster: _, host: _ } => (Code::NotFound, "NOT_A_MEMBER", None),
            Error::Releasing { cluster: _, host } => {
                precondition("RELEASING", &host);
                (Code::FailedPrecondition, "HOST_RELEASING", None)
            }
            Error::Busy { host, why: _ } => {
                precondition("PROVISIONING", &host);
                (Code::FailedPrecondition, "HOST_BUSY", None)
            }
            Error::BmcUnusable { host, why: _ } => {
                precondition("BMC", &host);
                (Code::FailedPrecondition, "BMC_UNUSABLE", None)
            }
            Error::BmcFailed { host: _, failure } => {
                metadata.insert("failure".to_owned(), failure.kind().to_owned());
                (Code::Unavailable, "BMC_FAILED", None)
            }
            Error::HostIsOff { host } => {
                precondition("POWER_STATE", &host);
                (Code::FailedPrecondition, "HOST_IS_OFF", None)
            }
            Error::NotOffered {
                host,
                wanted: _,
                offered: _,
            } => {
                precondition("OFFERED", &host);
                (Code::FailedPrecondition, "NOT_OFFERED", None)
            }
            Error::UnderWay { host: _ } => (Code::Aborted, "ACTION_UNDER_WAY", Some(RETRY_DELAY)),
            Error::TermOver { requested: _ } => (Code::Aborted, "TERM_OVER", None),
            Error::OutcomeUnknown { host: _, failure } => {
                metadata.insert("failure".to_owned(), failure.kind().to_owned());
                (Code::Aborted, "OUTCOME_UNKNOWN", None)
            }
            Error::ChecksTooOld(_) => (Code::Unavailable, "TOO_LATE", Some(RETRY_DELAY)),
            Error::NotObserved {
                host: _,
                reset_type: _,
                within: _,
                last: _,
            } => (Code::DeadlineExceeded, "NOT_OBSERVED", None),
            Error::TooManyActions { what: _, retry_after } => {
                (Code::ResourceExhausted, "TOO_MANY_ACTIONS", Some(retry_after))
            }
            Error::Overloaded {
                what: _,
                limit,
                retry_after,
            } => {
                metadata.insert("limit".to_owned(), limit.to_owned());
                (Code::ResourceExhausted, "OVERLOADED", Some(retry_after))
            }
            Error::TooLate(_) => (Code::DeadlineExceeded, "TOO_LATE", None),
            Error::Scheduler(_) => (Code::Unavailable, "SCHEDULER_FAILED", Some(RETRY_DELAY)),
            Error::ApiServer { what: _, source: _ } => {
                (Code::Unavailable, "API_SERVER_FAILED", Some(RETRY_DELAY))
            }
        };
        if retry_after.is_some() {
            details.set_retry_info(retry_after);
        }
        details.set_error_info(reason, DOMAIN, metadata);
        Status::with_error_details(code, message, details)
    }
}

/// The reason in a status, as [`Error`] gives it; the code's name for others.
pub(crate) fn reason(status: &Status) -> String {
    let info = status.get_details_error_info();
    info.map_or_else(|| format!("{:?}", status.code()), |info| info.reason)
}

/// A value for messages: a caller chooses its length.
pub(crate) fn clipped(value: &str) -> String {
    const MAX_CHARACTERS: usize = 128;
    value.chars().take(MAX_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_fits_into_the_headers_of_an_answer() {
        let why = "é".repeat(1 << 20);
        let host = || "metal/own".to_owned();
        for error in [
            Error::BmcUnusable {
                host: host(),
                why: why.clone(),
            },
            Error::Busy {
                host: host(),
                why: why.clone(),
            },
            Error::TokenRefused(why.clone()),
            Error::NotOffered {
                host: host(),
                wanted: &["On"],
                offered: vec![why.clone(); 1000],
            },
            Error::Scheduler(Box::new(Status::internal(why.clone()))),
        ] {
            let status = Status::from(error);
            let mut headers = tonic::codegen::http::HeaderMap::new();
            status.add_header(&mut headers).unwrap();
            let size: usize = headers
                .iter()
                .map(|(name, value)| name.as_str().len() + value.len() + 32)
                .sum();
            assert!(size < 14 << 10, "{size}: {status:?}");
            assert!(status.message().len() <= 1 << 10);
        }
    }

    #[test]
    fn a_message_is_cut_between_characters() {
        assert_eq!(bounded("short".to_owned()), "short");
        let cut = bounded("é".repeat(600));
        assert!(cut.len() <= 1 << 10 && cut.ends_with("é…"), "{cut}");
    }

    #[test]
    fn few_reset_types_of_a_bmc_are_listed() {
        assert_eq!(listed(&[]), "none");
        assert_eq!(listed(&["On".to_owned(), "Nmi".to_owned()]), "On, Nmi");
        let many = listed(&vec!["x".repeat(128); 32]);
        assert!(many.ends_with(", 22 more") && many.len() < 400, "{many}");
    }
}
