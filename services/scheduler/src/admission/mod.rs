//! What is applied to every call. One layer applies each method's [`Descriptor`] in this order:
//!
//! 1. *identity*: of the connection;
//! 2. *authorization* by headers and path, before a permit is taken or a body is read; whether the caller may ask about the site
//!    that its request names is decided as soon as that is read, by the only way into a handler ([`crate::api`]);
//! 3. *admission*: rate, permits and buffered bytes of this identity, which no other identity can use up;
//! 4. *deadline*: the caller's or the method's own, whichever is sooner; bodies that arrive too slowly end;
//! 5. *audit and metrics*: whatever comes of it, also when a caller goes away; a call counts as a change by what it has staged in the ledger.
//!
//! | what | answer |
//! |---|---|
//! | a method without descriptor | `UNIMPLEMENTED`, audited |
//! | a call that its identity may not make | `PERMISSION_DENIED` (`FORBIDDEN`), audited |
//! | more than a limit of its identity | `RESOURCE_EXHAUSTED` (`OVERLOADED`) at once: which limit, whose, and when to try again |
//! | a message larger than its method takes | `OUT_OF_RANGE` (`MESSAGE_TOO_LARGE`) by its head, and what to do instead |
//! | a message that does not arrive in time | `DEADLINE_EXCEEDED` (`TOO_SLOW`) |
//!
//! Deadlines and panics: [`crate::load`].

mod accounts;
mod audit;
mod backlog;
mod bodies;
mod buffer;
mod call_metrics;
mod elements;
mod framing;
mod identity_limits;
mod limit_names;
mod lines;
mod site_share;
mod unread;

use std::sync::Arc;

use axum::{
    body::Body,
    extract::Request,
    middleware::{self, Next},
    response::Response,
};
use runtime::tls::Peer;
use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Status, service::Routes};

use accounts::{Account, Accounts, Crowded};
pub(crate) use audit::Trail;
use audit::{Record, Refused};
pub use call_metrics::CallMetrics;
pub use identity_limits::{LimitArgs, Limits};
pub use limit_names::Limit;
use unread::Guard;

use crate::{
    call_rules::{Call, Descriptor, Effect, Reach, Streams, reach},
    error::Error,
    load,
    violation::clip,
};

/// Maximum length of a site's name in a refusal, in bytes: that of a name. A caller may send one of megabytes, and each refusal is in the audit log.
const MAX_SITE_BYTES: usize = 253;

/// Puts the layer before every service.
#[must_use]
pub fn guarded(routes: Routes, limits: Limits, metrics: CallMetrics) -> Routes {
    let admission = Admission::new(limits, metrics);
    let layer =
        middleware::from_fn(move |request: Request, next: Next| admission.clone().apply(request, next));
    // Inside the layer, a panic becomes an answer that is counted and audited like any other.
    Routes::from(routes.into_axum_router().layer(load::panics()).layer(layer))
}

/// The layer's state. Cheap to clone.
#[derive(Clone, Debug)]
struct Admission(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    accounts: Arc<Accounts>,
    metrics: CallMetrics,
    /// Writes notices of withheld audit lines as long as the layer exists.
    _notices: Option<AbortOnDropHandle<()>>,
}

/// What an admitted call holds.
struct Admitted {
    call: Call,
    record: Record,
    guard: Guard,
}

impl Admission {
    fn new(limits: Limits, metrics: CallMetrics) -> Self {
        let accounts = Arc::new(Accounts::new(limits));
        Self(Arc::new(Inner {
            _notices: notices(&accounts),
            accounts,
            metrics,
        }))
    }

    /// Applies the steps that the module's documentation lists.
    async fn apply(self, mut request: Request, next: Next) -> Response {
        let begun = Instant::now();
        let Admitted {
            call,
            mut record,
            guard,
        } = match self.admit(&request) {
            Ok(admitted) => admitted,
            Err(refusal) => return *refusal,
        };
        let descriptor = call.descriptor();
        let deadline = load::deadline(request.headers(), begun, descriptor.longest);
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return record.refused(Error::TooLate { maybe: false }, Some(guard));
        }
        match guard.request_head(request.uri(), request.headers()) {
            Ok(head) => request.extensions_mut().insert(head),
            Err(error) => return record.refused(error, Some(guard)),
        };
        request.extensions_mut().insert(record.trail());
        let endless = descriptor.streams == Streams::Both;
        let metrics = self.0.metrics.clone();
        let received = |body| bodies::Received::new(body, call, metrics, &guard, endless);
        let request = request.map(|body| Body::new(received(body)));
        let changes = record.changes().clone();
        let answer = load::with_deadline(deadline, changes, next.run(request)).await;
        let Some(mut answer) = answer else {
            let maybe = descriptor.effect == Effect::Write;
            return record.refused(Error::TooLate { maybe }, Some(guard));
        };
        if let Some(status) = Status::from_header_map(answer.headers()) {
            return record.answered(&status, answer, guard);
        }
        record.opened();
        record.hold(answer.headers_mut(), Some(guard.clone()));
        answer.map(|body| Body::new(bodies::Sent::new(body, guard, record)))
    }

    fn admit(&self, request: &Request) -> Result<Admitted, Box<Response>> {
        let Inner {
            accounts,
            metrics,
            _notices: _,
        } = &*self.0;
        let path = request.uri().path();
        let peer = request.extensions().get::<Peer>();
        let Some(call) = Call::at(path) else {
            return Err(Box::new(self.unknown(path, peer)));
        };
        let mut record = Record::new(call, peer.cloned(), metrics.clone());
        let Some(peer) = peer else {
            return Err(Box::new(record.refused(Error::Unauthenticated, None)));
        };
        let account = match accounts.account(peer.identity()) {
            Ok(account) => account,
            Err(crowded) => {
                let Crowded { error, shared } = *crowded;
                record.set_crowd(shared);
                return Err(Box::new(record.refused(error, None)));
            }
        };
        record.set_account(&account);
        if let Err(error) = authorize(peer, call, &account) {
            return Err(Box::new(record.refused(error, None)));
        }
        let Descriptor {
            kind,
            path: _,
            effect: _,
            streams: _,
            who: _,
            longest: _,
            largest: _,
            weight: _,
            audited: _,
        } = call.descriptor();
        match account.enter(kind) {
            Ok(permit) => Ok(Admitted {
                call,
                record,
                guard: Guard::new(permit, kind, &account),
            }),
            Err(error) => Err(Box::new(record.refused(error, None))),
        }
    }
}

impl Admission {
    /// The answer to a call of a method that does not exist: within the rate of its caller, and audited like other calls that it may
    /// not make.
    fn unknown(&self, path: &str, peer: Option<&Peer>) -> Response {
        let Inner {
            accounts,
            metrics,
            _notices: _,
        } = &*self.0;
        let refused = Refused::new(metrics, peer);
        let Some(peer) = peer else {
            return refused.denied(path, None);
        };
        let account = match accounts.account(peer.identity()) {
            Ok(account) => account,
            Err(crowded) => return refused.crowded(crowded.error, &crowded.shared),
        };
        match account.require_rate(1).and_then(|()| account.denied()) {
            Ok(()) => refused.denied(path, Some(&account)),
            Err(error) => refused.limited(error, &account),
        }
    }
}

/// The task that writes notices of withheld audit lines. They must not wait for another call of the identity, which may never come. `None`
/// outside of a runtime, where no call is served.
fn notices(accounts: &Arc<Accounts>) -> Option<AbortOnDropHandle<()>> {
    let runtime = Handle::try_current().ok()?;
    let accounts = Arc::clone(accounts);
    Some(AbortOnDropHandle::new(runtime.spawn(async move {
        loop {
            sleep(accounts.notices()).await;
            accounts.write_notices();
        }
    })))
}

/// Whether this identity makes such calls at all.
fn authorize(peer: &Peer, call: Call, account: &Account) -> Result<(), Error> {
    if reach(peer.identity(), call).is_some() {
        return Ok(());
    }
    account.denied()?;
    Err(Error::Forbidden {
        caller: peer.to_string(),
        call: call.name(),
        site: None,
    })
}

/// Whether this identity may ask about this site; `None`: about all of them.
///
/// # Errors
/// [`Error::Unauthenticated`], [`Error::Forbidden`].
pub(crate) fn authorize_site(peer: Option<&Peer>, call: Call, site: Option<&str>) -> Result<String, Error> {
    let peer = peer.ok_or(Error::Unauthenticated)?;
    let may = match reach(peer.identity(), call) {
        Some(Reach::Region) => true,
        Some(Reach::Site(own)) => site == Some(own),
        None => false,
    };
    if may {
        return Ok(peer.to_string());
    }
    Err(Error::Forbidden {
        caller: peer.to_string(),
        call: call.name(),
        site: Some(site.map_or_else(
            || "every site".to_owned(),
            |site| format!("site {:?}", clip(site, MAX_SITE_BYTES)),
        )),
    })
}
