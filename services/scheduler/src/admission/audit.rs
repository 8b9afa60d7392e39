//! One record per call: every call is counted, however it ends, and some are written to the audit log.
//!
//! Audited are denials, every call that has staged a change in the ledger, and every call whose descriptor says so, unless a limit of its caller
//! refused it before anything was done: such calls are counted, and logged now and then. A stream has a line when it opens, too. Lines have the
//! target `audit`, and pass every log filter. [`Kind`] tells changes from calls that changed nothing, whose lines are limited.

use std::sync::{
    Arc, LazyLock, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use axum::{body::Body, response::Response};
use http::HeaderMap;
use runtime::{quiet::Quiet, telemetry::AUDIT, tls::Peer};
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::{
    accounts::{Account, Head},
    call_metrics::{CallMetrics, code_name},
    limit_names::Limit,
    lines::Kind,
    site_share::Shared,
    unread::{self, Guard},
};
use crate::{
    call_rules::{Call, Descriptor, Effect},
    error::Error,
    ledger::CallChanges,
};

/// Maximum length of the description of an object, in characters: callers choose its parts.
const MAX_OBJECT_CHARACTERS: usize = 512;
/// Maximum length of the path of a method that does not exist, in characters, in answers and in the log.
const MAX_PATH_CHARACTERS: usize = 128;

/// What a call is about, filled in by whoever reads its request. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trail(Arc<OnceLock<String>>);

impl Trail {
    /// The call is about this; only the first word counts.
    pub(crate) fn object(&self, object: &str) {
        self.0
            .get_or_init(|| object.chars().take(MAX_OBJECT_CHARACTERS).collect());
    }
}

/// An id for a call that no other call of this or another process has.
fn request_id() -> String {
    static PROCESS: LazyLock<String> = LazyLock::new(|| {
        let uuid = uuid::Uuid::new_v4().simple().to_string();
        uuid.chars().take(12).collect()
    });
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{}-{}", *PROCESS, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Counts a call that a limit refuses, and logs it now and then.
fn shed(call: &'static str, error: &Error, log: &Quiet, metrics: &CallMetrics) {
    let Error::Limited {
        identity,
        limit,
        why,
        again: _,
    } = error
    else {
        return;
    };
    metrics.shed(call, limit.name());
    if let Some(withheld) = log.line() {
        let limit = limit.name();
        tracing::warn!(identity, call, limit, why, withheld, "a call is refused");
    }
}

/// Whether a call was refused by the only limit that a handler checks: the others are counted where they refuse.
fn exceeds_exports(status: &Status) -> bool {
    if status.code() != Code::ResourceExhausted {
        return false;
    }
    let metadata = status.get_details_error_info().map(|info| info.metadata);
    let limit = metadata.as_ref().and_then(|metadata| metadata.get("limit"));
    limit.is_some_and(|limit| limit == Limit::Exports.name())
}

/// Who makes a call: a peer, its account, or what its group has together, if that has no room for it.
type Caller<'a> = (
    Option<&'a Peer>,
    Option<&'a Arc<Account>>,
    Option<&'a Arc<Shared>>,
);

/// Counts the bytes of a head or of trailers against the caller until the transport has written them. Disconnects a caller that leaves more of them
/// unread than it may: any further answer would add to them.
fn hold(
    headers: &mut HeaderMap,
    id: &str,
    (peer, account, crowd): Caller<'_>,
    guard: Option<Guard>,
    metrics: &CallMetrics,
) {
    let head = Head::new(account, crowd, unread::bytes(headers));
    if let (Some((_, true)), Some(peer)) = (&head, peer) {
        disconnect(peer, UNREAD, metrics);
    }
    unread::hold(headers, id, head.map(|(head, _)| head), guard);
}

/// Cause of the disconnection of a caller that leaves too many answers unread.
const UNREAD: &str = "unread";

fn disconnect(peer: &Peer, cause: &'static str, metrics: &CallMetrics) {
    // `disconnect` returns false if an earlier refused call has already ended this connection: each disconnection is counted once.
    if peer.disconnect() {
        metrics.disconnected(cause);
    }
}

/// Acts on a call that a rate limit refuses: pauses reading from the caller's connection, or disconnects a caller that is far ahead of its rate.
fn slow(error: &Error, (peer, account, crowd): Caller<'_>, metrics: &CallMetrics) {
    let (Error::Limited { limit, .. }, Some(peer)) = (error, peer) else {
        return;
    };
    // The other limits are checked after the rate, so such calls have already counted against it.
    if !matches!(limit, Limit::Rate | Limit::Denials | Limit::Identities) {
        return;
    }
    let now = Instant::now();
    let (wait, exceeds_limit) = match (account, crowd) {
        (Some(account), _) => account.refused(now),
        // Callers without an account share one backlog. Which of them is to blame is not known, but none of them is served: if they are far ahead,
        // whoever calls is disconnected. Operators and readers are only slowed: they are different people, and no site's CA makes names for them.
        (None, Some(shared)) => {
            let (wait, exceeds_limit) = shared.crowd.backlog.add(now, 1);
            (wait, exceeds_limit && shared.is_site())
        }
        (None, None) => return,
    };
    if exceeds_limit {
        disconnect(peer, limit.name(), metrics);
    } else if !wait.is_zero() {
        peer.pause(now + wait);
    }
}

/// A call that is refused because its method does not exist.
#[derive(Debug)]
pub(super) struct Refused<'a> {
    metrics: &'a CallMetrics,
    id: String,
    peer: Option<&'a Peer>,
}

/// Label value of every method that does not exist: callers could invent any number of names.
const UNKNOWN_METHOD: &str = "unknown";

impl<'a> Refused<'a> {
    pub(super) fn new(metrics: &'a CallMetrics, peer: Option<&'a Peer>) -> Self {
        Self {
            metrics,
            id: request_id(),
            peer,
        }
    }

    /// Answers that the method does not exist, and audits the call.
    pub(super) fn denied(&self, path: &str, account: Option<&Arc<Account>>) -> Response {
        let peer = self.peer;
        self.metrics.denied(UNKNOWN_METHOD);
        let path: String = path.chars().take(MAX_PATH_CHARACTERS).collect();
        let status = Status::from(Error::UnknownMethod { path: path.clone() });
        tracing::info!(
            target: AUDIT,
            identity = peer.map_or_else(|| "none".to_owned(), Peer::to_string),
            address = peer.map(|peer| peer.address().to_string()).unwrap_or_default(),
            call = UNKNOWN_METHOD,
            object = path,
            outcome = code_name(status.code()),
            why = status.message(),
            changes = 0_u64,
            request_id = self.id,
            millis = 0_u64,
            "denied",
        );
        self.answer(status, account, None)
    }

    /// Answers that the caller is at one of its limits.
    pub(super) fn limited(&self, error: Error, account: &Arc<Account>) -> Response {
        self.metrics.denied(UNKNOWN_METHOD);
        account.lines.withhold_denied();
        slow(&error, (self.peer, Some(account), None), self.metrics);
        shed(UNKNOWN_METHOD, &error, account.log(), self.metrics);
        self.answer(Status::from(error), Some(account), None)
    }

    /// Answers that the caller's group has too many identities.
    pub(super) fn crowded(&self, error: Error, crowd: &Arc<Shared>) -> Response {
        self.metrics.denied(UNKNOWN_METHOD);
        crowd.crowd.lines.withhold_denied();
        slow(&error, (self.peer, None, Some(crowd)), self.metrics);
        shed(UNKNOWN_METHOD, &error, &crowd.log, self.metrics);
        self.answer(Status::from(error), None, Some(crowd))
    }

    fn answer(
        &self,
        status: Status,
        account: Option<&Arc<Account>>,
        crowd: Option<&Arc<Shared>>,
    ) -> Response {
        let mut answer = status.into_http::<Body>();
        let caller = (self.peer, account, crowd);
        hold(answer.headers_mut(), &self.id, caller, None, self.metrics);
        answer
    }
}

/// How a call ends, for metrics and the audit log. A record that is dropped before it has an answer means that the caller has disconnected.
#[derive(Debug)]
pub(super) struct Record {
    call: Call,
    peer: Option<Peer>,
    account: Option<Arc<Account>>,
    /// What its caller's group has together, if that has no room for its caller.
    crowd: Option<Arc<Shared>>,
    metrics: CallMetrics,
    id: String,
    trail: Trail,
    changes: CallChanges,
    begun: Instant,
    /// The answer is a stream, and has begun.
    opened: bool,
    /// A limit refused the call: it is counted, and logged only now and then.
    shed: bool,
    ended: bool,
}

impl Record {
    pub(super) fn new(call: Call, peer: Option<Peer>, metrics: CallMetrics) -> Self {
        metrics.begun(call);
        Self {
            call,
            peer,
            account: None,
            crowd: None,
            metrics,
            id: request_id(),
            trail: Trail::default(),
            changes: CallChanges::default(),
            begun: Instant::now(),
            opened: false,
            shed: false,
            ended: false,
        }
    }

    /// The account of its caller.
    pub(super) fn set_account(&mut self, account: &Arc<Account>) {
        self.account = Some(Arc::clone(account));
    }

    /// Its caller has no account: there are too many of its group.
    pub(super) fn set_crowd(&mut self, crowd: Arc<Shared>) {
        self.crowd = Some(crowd);
    }

    pub(super) fn trail(&self) -> Trail {
        self.trail.clone()
    }

    /// What the call stages counts here.
    pub(super) fn changes(&self) -> &CallChanges {
        &self.changes
    }

    /// Answers the call with this error. `guard`: what the call holds, if it was admitted.
    pub(super) fn refused(mut self, error: Error, guard: Option<Guard>) -> Response {
        let own = self.account.as_ref().map(|account| account.log());
        let log = own.or(self.crowd.as_ref().map(|crowd| &crowd.log));
        if let Some(log) = log {
            shed(self.call.name(), &error, log, &self.metrics);
        }
        if let (
            Error::Limited {
                limit: Limit::Denials,
                ..
            },
            Some(account),
        ) = (&error, &self.account)
        {
            account.lines.withhold_denied();
        }
        slow(&error, self.caller(), &self.metrics);
        // The call had no effect, and many such calls must not fill the log.
        self.shed = matches!(error, Error::Limited { .. });
        let status = Status::from(error);
        self.end(&status);
        let mut answer = status.into_http::<Body>();
        self.hold(answer.headers_mut(), guard);
        answer
    }

    /// Has a head, or trailers, count and hold the permit of the call until they are written.
    pub(super) fn hold(&self, headers: &mut HeaderMap, guard: Option<Guard>) {
        hold(headers, &self.id, self.caller(), guard, &self.metrics);
    }

    fn caller(&self) -> Caller<'_> {
        (self.peer.as_ref(), self.account.as_ref(), self.crowd.as_ref())
    }

    /// The trailers of a call whose answer is not kept: its caller has left too much unread.
    pub(super) fn withheld(&self, error: Error) -> HeaderMap {
        let error = match error {
            Error::Limited {
                identity,
                limit,
                why,
                again,
            } => {
                self.metrics.shed(self.call.name(), limit.name());
                Error::Withheld {
                    identity,
                    limit,
                    why,
                    again,
                    done: self.call.descriptor().effect == Effect::Write,
                }
            }
            other => other,
        };
        let mut trailers = HeaderMap::new();
        // Without a status the caller learns only that there is none.
        let _ = Status::from(error).add_header(&mut trailers);
        trailers
    }

    /// The call is answered, and that is `answer`.
    pub(super) fn answered(mut self, status: &Status, mut answer: Response, guard: Guard) -> Response {
        // A caller that repeats calls that it may not make gets `RESOURCE_EXHAUSTED` and a time to wait.
        if status.code() == Code::PermissionDenied
            && let Some(Err(error)) = self.account.as_ref().map(|account| account.denied())
        {
            return self.refused(error, Some(guard));
        }
        if exceeds_exports(status) {
            self.metrics.shed(self.call.name(), Limit::Exports.name());
            self.shed = true;
        }
        self.end(status);
        self.hold(answer.headers_mut(), Some(guard));
        answer
    }

    /// The call has ended with this status.
    pub(super) fn end(&mut self, status: &Status) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let code = status.code();
        self.metrics.ended(self.call, code);
        let denied = matches!(code, Code::PermissionDenied | Code::Unauthenticated);
        if denied {
            self.metrics.denied(self.call.name());
        }
        let changes = self.changes.count();
        let expected = self.call.descriptor().audited && !self.shed;
        if denied || changes > 0 || expected {
            let kind = Kind::new(self.call, changes, denied, self.opened);
            self.log(kind, kind.name(), code_name(code), status.message());
        }
    }

    /// The call is answered by a stream, which lasts as long as its caller wants: it is in the log from here on, also if this process
    /// is killed before it ends.
    pub(super) fn opened(&mut self) {
        let Descriptor { audited, longest, .. } = self.call.descriptor();
        self.opened = longest.is_none();
        let changes = self.changes.count();
        if self.opened && (audited || changes > 0) {
            let kind = Kind::new(self.call, changes, false, true);
            self.log(kind, "opened", "OPEN", "");
        }
    }

    /// Writes a line, unless there are too many of this kind about its identity.
    fn log(&self, kind: Kind, what: &'static str, outcome: &'static str, why: &str) {
        let account = self.account.as_ref();
        if account.is_some_and(|account| !account.lines.allows(kind)) {
            return;
        }
        let identity = self
            .peer
            .as_ref()
            .map_or_else(|| "none".to_owned(), Peer::to_string);
        let address = self.peer.as_ref().map(|peer| peer.address().to_string());
        let millis = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Reads are not described before they are made: one that has changed something is known by its site.
        let object = self.trail.0.get().map(String::as_str);
        tracing::info!(
            target: AUDIT,
            identity,
            address = address.unwrap_or_default(),
            call = self.call.name(),
            object = object.or(self.changes.site()).unwrap_or_default(),
            outcome,
            why,
            changes = self.changes.count(),
            request_id = self.id,
            millis,
            "{what}",
        );
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.ended {
            self.end(&Status::cancelled(
                "the caller disconnected before the answer was complete",
            ));
        }
    }
}

#[cfg(test)]
mod tests;
