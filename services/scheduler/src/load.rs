//! What stands before every call: so many at once and no more, its deadline, and no panic for a client.
//!
//! | what | answer |
//! |---|---|
//! | more calls than [`IN_FLIGHT`] | `RESOURCE_EXHAUSTED` (`OVERLOADED`) at once, with when to try again |
//! | its deadline has passed before it was decided | `DEADLINE_EXCEEDED` (`NOT_DECIDED`), nothing was done |
//! | its deadline passes while the ledger writes | `DEADLINE_EXCEEDED` (`MAYBE_DECIDED`): calling again finds out |
//! | a message larger than [`MESSAGE`] | `OUT_OF_RANGE` (`MESSAGE_TOO_LARGE`), with what to do instead |
//! | a panic | `INTERNAL` without its text, which is in the log |
//!
//! Health, reflection and reports are never shed: without reports a site would fall out of sync when it is needed most.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    extract::Request,
    middleware::{self, Next},
    response::Response,
};
use futures::{Stream, StreamExt as _};
use http::HeaderMap;
use tokio::{sync::Semaphore, time::Instant};
use tonic::{Code, Status, body::Body, service::Routes};
use tower_http::catch_panic::CatchPanicLayer;

use crate::error::Error;

/// Calls under way at once. A decision takes well under a millisecond, so this is a queue of less than a second; it is
/// more than the ledger's queue holds, so those that wait for the ledger leave room for those that only ask.
pub const IN_FLIGHT: usize = 2048;

/// Largest message that a client may send, in bytes: a snapshot comes in chunks of 1,000 hosts.
pub const MESSAGE: usize = 16 << 20;

/// Methods that change the ledger: whether they did is not known when their deadline passes.
const WRITES: [&str; 5] = [
    "/sip.placement.v1.PlacementService/ApplyCluster",
    "/sip.placement.v1.PlacementService/ReleaseCluster",
    "/sip.placement.v1.PlacementService/ConfirmHosts",
    "/sip.placement.v1.PlacementService/ReleaseOrphan",
    "/sip.inventory.v1.InventoryService/ResetSiteFence",
];
/// What is never shed: the name of a service, or a method.
const ALWAYS: [&str; 3] = [
    "/grpc.health.",
    "/grpc.reflection.",
    "/sip.inventory.v1.InventoryService/ReportHosts",
];

/// So much before its deadline a call is answered, so that the answer arrives: a tenth of the time it had, at most this.
const HEADROOM: Duration = Duration::from_millis(200);

tokio::task_local! {
    /// When the answer to the call that this task serves must be given.
    static DEADLINE: Option<Instant>;
}

/// Puts the limits before every service. At most `in_flight` calls are under way.
#[must_use]
pub fn guarded(routes: Routes, in_flight: usize) -> Routes {
    let places = Arc::new(Semaphore::new(in_flight));
    let guard = middleware::from_fn(move |request: Request, next: Next| {
        let places = Arc::clone(&places);
        async move { guard(&places, request, next).await }
    });
    let panics = CatchPanicLayer::custom(|panic: Box<dyn Any + Send>| panicked(&*panic).into_http::<Body>());
    Routes::from(routes.into_axum_router().layer(guard).layer(panics))
}

/// Refuses to decide for a caller who does not wait any more.
///
/// # Errors
/// [`Error::TooLate`].
pub(crate) fn require_time() -> Result<(), Error> {
    let deadline = DEADLINE.try_with(|deadline| *deadline).ok().flatten();
    match deadline {
        Some(deadline) if deadline <= Instant::now() => Err(Error::TooLate { maybe: false }),
        Some(_) | None => Ok(()),
    }
}

/// A stream whose panic is its last item, as a status.
pub(crate) fn contained<T>(
    stream: impl Stream<Item = Result<T, Status>>,
) -> impl Stream<Item = Result<T, Status>> {
    let items = AssertUnwindSafe(stream).catch_unwind();
    items.map(|item| item.unwrap_or_else(|panic| Err(panicked(&*panic))))
}

/// The status of a call that panicked.
fn panicked(panic: &(dyn Any + Send)) -> Status {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text.unwrap_or("without text"), "a call has panicked");
    Status::internal("the scheduler failed at this call; its log says why")
}

async fn guard(places: &Semaphore, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let sheddable = !ALWAYS.iter().any(|prefix| path.starts_with(prefix));
    let writes = WRITES.contains(&path);
    let _place = if sheddable {
        match places.try_acquire() {
            Ok(place) => Some(place),
            Err(_) => return refusal(Error::Overloaded),
        }
    } else {
        None
    };
    let deadline = timeout(request.headers()).and_then(|timeout| {
        let headroom = (timeout / 10).min(HEADROOM);
        Instant::now().checked_add(timeout.saturating_sub(headroom))
    });
    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
        return refusal(Error::TooLate { maybe: false });
    }
    let answer = DEADLINE.scope(deadline, next.run(request));
    let answer = match deadline {
        Some(deadline) => match tokio::time::timeout_at(deadline, answer).await {
            Ok(answer) => answer,
            Err(_) => return refusal(Error::TooLate { maybe: writes }),
        },
        None => answer.await,
    };
    match Status::from_header_map(answer.headers()) {
        Some(status) if status.code() == Code::OutOfRange => {
            too_large(&status).into_http::<axum::body::Body>()
        }
        Some(_) | None => answer,
    }
}

/// The status of a message that was not read: what tonic says of it does not say what to do. Nothing else here is out of
/// range.
pub(crate) fn too_large(unread: &Status) -> Status {
    Error::Unread {
        found: unread.message().to_owned(),
    }
    .into()
}

fn refusal(error: Error) -> Response {
    Status::from(error).into_http::<axum::body::Body>()
}

/// `grpc-timeout`: at most eight digits and a unit.
/// <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_decided_for_a_caller_who_does_not_wait_any_more() {
        let ask = async { require_time() };
        let now = Instant::now();
        let late = DEADLINE.scope(Some(now), ask).await;
        assert!(matches!(late, Err(Error::TooLate { maybe: false })));
        for deadline in [None, Some(now + Duration::from_mins(1))] {
            DEADLINE.scope(deadline, async { require_time() }).await.unwrap();
        }
        require_time().unwrap();
    }

    #[tokio::test]
    async fn a_panic_of_a_stream_is_its_last_item_and_does_not_show_its_text() {
        let items = futures::stream::iter(0..3).map(|item| {
            assert!(item < 1, "secret");
            Ok(item)
        });
        let mut items = std::pin::pin!(contained(items));
        assert_eq!(items.next().await.unwrap().unwrap(), 0);
        let status = items.next().await.unwrap().unwrap_err();
        assert_eq!(status.code(), tonic::Code::Internal);
        assert!(!status.message().contains("secret"));
        assert!(items.next().await.is_none());
    }

    #[test]
    fn a_timeout_has_eight_digits_at_most_and_a_unit() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", http::HeaderValue::from_static(text));
            timeout(&headers)
        };
        assert_eq!(of("99999999H"), Some(Duration::from_hours(99_999_999)));
        assert_eq!(of("2M"), Some(Duration::from_mins(2)));
        assert_eq!(of("3S"), Some(Duration::from_secs(3)));
        assert_eq!(of("40m"), Some(Duration::from_millis(40)));
        assert_eq!(of("5u"), Some(Duration::from_micros(5)));
        assert_eq!(of("6n"), Some(Duration::from_nanos(6)));
        for bad in ["", "5", "S", "123456789S", "1.5S", "5s"] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
        assert_eq!(timeout(&HeaderMap::new()), None);
    }
}
