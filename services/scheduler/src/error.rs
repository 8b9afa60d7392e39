//! What can go wrong, grouped by who must act, and the one place where it becomes a gRPC status.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, PreconditionViolation, StatusExt as _};

use crate::{
    admission::Limit,
    ledger::{self, TooLarge},
    violation::{Violation, clip, listed, sentence},
};

/// Domain of every `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "sip.airshipit.org";

/// Maximum length of a message, in bytes: it may quote names that the caller sent, and a request may be long. An answer has it twice, in headers of
/// at most 16 KiB, and the audit log has it once.
const MAX_MESSAGE_BYTES: usize = 3 << 10;
/// Maximum length of the name of what does not allow a call, in bytes: namespace and name of a cluster have less.
const MAX_SUBJECT_BYTES: usize = 512;
/// Retry delay that a caller is sent when a site is at a limit.
const FULL_SITE_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Why a call is not answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller must mend the request.
    #[error("{}", sentence(.0))]
    Invalid(Vec<Violation>),
    /// The caller has no certificate that this server understands.
    #[error("the connection carries no identity")]
    Unauthenticated,
    /// The caller may not do that.
    #[error("{caller} may not call {call}{}", for_site(site.as_deref()))]
    Forbidden {
        /// Who called.
        caller: String,
        /// Name of the method.
        call: &'static str,
        /// Site, or `every site`; `None`: the caller may not call it for any.
        site: Option<String>,
    },
    /// There is no such method.
    #[error("there is no method at {path:?}")]
    UnknownMethod {
        /// What was called.
        path: String,
    },
    /// There is no such thing.
    #[error("{what} is not known")]
    NotFound {
        /// What was requested.
        what: String,
    },
    /// The site must report first.
    #[error(
        "site {site}: {why}; nothing is placed in it until its cluster agent has reported a complete snapshot"
    )]
    NotSynced {
        /// Name of the site.
        site: String,
        /// What is missing.
        why: &'static str,
    },
    /// The caller acts on an older state than the ledger's.
    #[error("{cluster}: generation {asked} is older than generation {applied}, which is applied")]
    StaleGeneration {
        /// Name of the cluster.
        cluster: String,
        /// Generation in the request.
        asked: i64,
        /// Generation in the ledger.
        applied: i64,
    },
    /// The cluster is being released.
    #[error(
        "{cluster}: the SIPCluster is being deleted and releases its hosts, so its spec can no longer change"
    )]
    Releasing {
        /// Name of the cluster.
        cluster: String,
    },
    /// The `SIPCluster` is gone.
    #[error(
        "{cluster} with uid {uid}: the site has reported that this SIPCluster is deleted, so the scheduler places nothing for it"
    )]
    ClusterGone {
        /// Name of the cluster.
        cluster: String,
        /// Its uid.
        uid: String,
    },
    /// The host is not one that an operator may release.
    #[error("{host} is not orphaned: {why}")]
    NotOrphaned {
        /// Name of the host.
        host: String,
        /// Who has it, or what it is.
        why: String,
    },
    /// A newer incarnation of the caller or its object has taken over.
    #[error("{what} has been superseded by {by}")]
    Superseded {
        /// What the caller is or speaks for.
        what: String,
        /// What replaced it.
        by: String,
    },
    /// The message breaks the stream's protocol.
    #[error("{0}")]
    Protocol(&'static str),
    /// The cluster is larger than the ledger takes.
    #[error("{0}; nothing was done")]
    TooLarge(#[from] TooLarge),
    /// The storage works, and does not take what the caller requested.
    #[error("the ledger's storage refuses this change: {cause}; nothing was done")]
    Refused {
        /// Message of the storage.
        cause: String,
    },
    /// What was decided or read rests on a change of the same site that the storage has refused.
    #[error(
        "another change of the same site was refused by the ledger's storage: {cause}; nothing was done, so retry"
    )]
    SiteReset {
        /// Message of the storage.
        cause: String,
    },
    /// A message was not read.
    #[error(
        "a message of this call may have at most {} KiB, and this one has {found} bytes: a shorter spec, fewer hosts in a message or a smaller page would help",
        .most >> 10
    )]
    Unread {
        /// Bytes that a message of the call may have.
        most: usize,
        /// Bytes of this one, as its head states.
        found: usize,
    },
    /// A report was not decoded.
    #[error("a message may have at most {most} {what}: divide it into several messages")]
    TooMany {
        /// What it has too many of.
        what: &'static str,
        /// How many it may have.
        most: usize,
    },
    /// The caller is at a limit of its own.
    #[error("{identity}: {why} (limit `{}`); nothing was done, retry in {again:?}", limit.name())]
    Limited {
        /// Who called.
        identity: String,
        /// Which limit.
        limit: Limit,
        /// What there is too much of.
        why: String,
        /// When a call may succeed.
        again: Duration,
    },
    /// The caller has left too many answers unread for one more.
    #[error("{identity}: {why} (limit `{}`); {}, retry in {again:?}", limit.name(), withheld(*.done))]
    Withheld {
        /// Who called.
        identity: String,
        /// Which limit.
        limit: Limit,
        /// What there is too much of.
        why: String,
        /// When a call may succeed.
        again: Duration,
        /// The call has changed what it was to change.
        done: bool,
    },
    /// The site has as much as one site may have.
    #[error("site {site}: {why} (limit `{limit}`)")]
    SiteFull {
        /// Name of the site.
        site: String,
        /// Which limit.
        limit: &'static str,
        /// What there is too much of, and what would help.
        why: String,
    },
    /// A message did not arrive in time.
    #[error("the request did not arrive within {within:?}; nothing was done")]
    TooSlow {
        /// How long it was waited for.
        within: Duration,
    },
    /// The ledger was never open since the process began.
    #[error("the ledger is being opened")]
    Opening,
    /// The process is ending.
    #[error("the scheduler is shutting down")]
    Ending,
    /// The ledger cannot be written, so nothing can be promised.
    #[error("the ledger cannot be written, so nothing is placed until it can: {cause}")]
    ReadOnly {
        /// Message of the storage.
        cause: String,
    },
    /// Another scheduler may write, or none at present.
    #[error("this scheduler is not the leader of its region{}: {cause}", at(leader.as_deref()))]
    NotLeader {
        /// Address of the one that does, if it is known.
        leader: Option<String>,
        /// Why this one does not.
        cause: String,
    },
    /// The caller's deadline has passed, or will before an answer would arrive.
    #[error("{}", too_late(*.maybe))]
    TooLate {
        /// It may have been decided: the ledger or the answer was not done when the time was over.
        maybe: bool,
    },
    /// The ledger has stopped; the term is over.
    #[error(transparent)]
    Stopped(#[from] ledger::commit::Stopped),
    /// The ledger failed while reading.
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
}

fn at(leader: Option<&str>) -> String {
    leader
        .map(|leader| format!("; the leader is {leader}"))
        .unwrap_or_default()
}

fn for_site(site: Option<&str>) -> String {
    site.map(|site| format!(" for {site}")).unwrap_or_default()
}

fn too_late(maybe: bool) -> &'static str {
    if maybe {
        "the deadline passed before the call was answered: the change may have been made or not; send the same call again to find out"
    } else {
        "the deadline passed; nothing was done"
    }
}

fn withheld(done: bool) -> &'static str {
    if done {
        "the call succeeded, and its answer is not sent"
    } else {
        "the answer is not sent"
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let message = clip(&error.to_string(), MAX_MESSAGE_BYTES).to_owned();
        let mut details = ErrorDetails::new();
        let mut metadata = HashMap::new();
        let (code, reason) = match error {
            Error::Invalid(violations) => {
                details.set_bad_request(field_violations(&violations));
                (Code::InvalidArgument, "INVALID")
            }
            Error::Unauthenticated => (Code::Unauthenticated, "NO_IDENTITY"),
            Error::Forbidden {
                caller: _,
                call: _,
                site: _,
            } => (Code::PermissionDenied, "FORBIDDEN"),
            Error::UnknownMethod { path: _ } => (Code::Unimplemented, "UNKNOWN_METHOD"),
            Error::NotFound { what: _ } => (Code::NotFound, "NOT_FOUND"),
            Error::NotSynced { site, why } => {
                precondition(&mut details, "SITE", site, why);
                details.set_retry_info(Some(Duration::from_secs(1)));
                (Code::Unavailable, "SITE_NOT_SYNCED")
            }
            Error::StaleGeneration {
                cluster,
                asked: _,
                applied: _,
            } => {
                precondition(&mut details, "GENERATION", cluster, &*message);
                (Code::FailedPrecondition, "STALE_GENERATION")
            }
            Error::Releasing { cluster } => {
                precondition(&mut details, "RELEASING", cluster, &*message);
                (Code::FailedPrecondition, "RELEASING")
            }
            Error::ClusterGone { cluster, uid: _ } => {
                precondition(&mut details, "EXISTS", cluster, &*message);
                (Code::FailedPrecondition, "CLUSTER_GONE")
            }
            Error::NotOrphaned { host, why } => {
                precondition(&mut details, "ORPHANED", host, why);
                (Code::FailedPrecondition, "NOT_ORPHANED")
            }
            Error::Superseded { what: _, by: _ } => (Code::Aborted, "SUPERSEDED"),
            Error::TooLarge(_) => {
                details.set_bad_request(vec![FieldViolation::new("spec", &*message)]);
                (Code::InvalidArgument, "TOO_LARGE")
            }
            Error::Refused { cause: _ } => (Code::InvalidArgument, "LEDGER_REFUSED"),
            Error::SiteReset { cause: _ } => again(&mut details, 1, "SITE_RESET"),
            Error::Protocol(_) => (Code::InvalidArgument, "PROTOCOL"),
            Error::Unread { most: _, found: _ } | Error::TooMany { what: _, most: _ } => {
                (Code::OutOfRange, "MESSAGE_TOO_LARGE")
            }
            Error::Limited {
                identity,
                limit,
                why: _,
                again,
            }
            | Error::Withheld {
                identity,
                limit,
                why: _,
                again,
                done: _,
            } => {
                details.set_retry_info(Some(again));
                let limit = limit.name().to_owned();
                metadata.extend([("identity".to_owned(), identity), ("limit".to_owned(), limit)]);
                (Code::ResourceExhausted, "OVERLOADED")
            }
            Error::SiteFull { site, limit, why: _ } => {
                details.set_retry_info(Some(FULL_SITE_RETRY_DELAY));
                metadata.extend([("site".to_owned(), site), ("limit".to_owned(), limit.to_owned())]);
                (Code::ResourceExhausted, "SITE_FULL")
            }
            Error::TooSlow { within: _ } => (Code::DeadlineExceeded, "TOO_SLOW"),
            Error::Opening => again(&mut details, 1, "LEDGER_OPENING"),
            Error::Ending => again(&mut details, 1, "SHUTTING_DOWN"),
            Error::ReadOnly { cause: _ } => again(&mut details, 5, "LEDGER_READ_ONLY"),
            Error::NotLeader { leader, cause: _ } => {
                details.set_retry_info(Some(Duration::from_secs(1)));
                metadata.extend(leader.map(|leader| ("leader".to_owned(), leader)));
                (Code::Unavailable, "NOT_LEADER")
            }
            Error::TooLate { maybe } => {
                let reason = if maybe { "MAYBE_DECIDED" } else { "NOT_DECIDED" };
                (Code::DeadlineExceeded, reason)
            }
            Error::Stopped(_) => again(&mut details, 1, "LEDGER_STOPPED"),
            Error::Ledger(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the ledger cannot be read"
                );
                again(&mut details, 1, "LEDGER_UNREADABLE")
            }
        };
        details.set_error_info(reason, DOMAIN, metadata);
        Status::with_error_details(code, message, details)
    }
}

fn field_violations(violations: &[Violation]) -> Vec<FieldViolation> {
    let listed = listed(violations).into_iter();
    listed.map(|v| FieldViolation::new(v.field, v.rule)).collect()
}

/// Nothing can be said at present: calling again after so many seconds helps.
fn again(details: &mut ErrorDetails, seconds: u64, reason: &'static str) -> (Code, &'static str) {
    details.set_retry_info(Some(Duration::from_secs(seconds)));
    (Code::Unavailable, reason)
}

/// What must be so first, and is not.
fn precondition(details: &mut ErrorDetails, kind: &str, subject: impl Into<String>, why: impl Into<String>) {
    let subject = subject.into();
    let subject = clip(&subject, MAX_SUBJECT_BYTES);
    details.set_precondition_failure(vec![PreconditionViolation::new(kind, subject, why)]);
}

#[cfg(test)]
mod tests {
    use proto::inventory::v1::{LabelSelector, LabelSelectorRequirement};

    use super::*;
    use crate::convert;

    /// Percent-encoding makes three bytes of one at most, and base64 four of three.
    fn header(status: &Status) -> usize {
        3 * status.message().len() + 4 * status.details().len().div_ceil(3)
    }

    #[test]
    fn a_very_long_value_is_cut_off_in_the_answer() {
        let selector = LabelSelector {
            match_labels: [("k".repeat(1 << 20), "v".to_owned())].into(),
            match_expressions: vec![
                LabelSelectorRequirement {
                    key: "rack".to_owned(),
                    operator: "o".repeat(1 << 20),
                    values: Vec::new(),
                };
                20
            ],
        };
        let mut violations = Vec::new();
        convert::parse_selector(&selector, "label_selector", &mut violations);
        let status = Status::from(Error::Invalid(violations));
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(header(&status) < 16 << 10, "{} bytes", header(&status));
    }

    #[test]
    fn a_very_long_name_is_cut_off_in_the_answer() {
        let long = "\u{1}".repeat(1 << 20);
        for error in [
            Error::NotFound {
                what: format!("site {long:?}"),
            },
            Error::NotSynced {
                site: long,
                why: "no cluster agent has reported it yet",
            },
        ] {
            let header = header(&Status::from(error));
            assert!(header < 16 << 10, "{header} bytes");
        }
    }

    #[test]
    fn many_violations_fit_the_error_header() {
        let selector = LabelSelector {
            match_expressions: vec![LabelSelectorRequirement {
                key: "rack".to_owned(),
                operator: "In".to_owned(),
                values: vec![" ".to_owned(); 100_000],
            }],
            ..LabelSelector::default()
        };
        let mut violations = Vec::new();
        assert_eq!(
            convert::parse_selector(&selector, "label_selector", &mut violations),
            None
        );
        assert!(violations.len() < 100, "{} violations", violations.len());
        let status = Status::from(Error::Invalid(violations));
        let header = header(&status);
        assert!(status.message().ends_with("more"), "{}", status.message());
        assert!(header < 16 << 10, "{header} bytes");
    }
}
