//! Deadlines, what a call stages, and no panic for a client.
//!
//! | what | answer |
//! |---|---|
//! | its deadline has passed before it was decided | `DEADLINE_EXCEEDED` (`NOT_DECIDED`), nothing was done |
//! | its deadline passes while the ledger writes, or before the answer is made | `DEADLINE_EXCEEDED` (`MAYBE_DECIDED`): calling again finds out |
//! | a panic | `INTERNAL` without its text, which is in the log |

use std::{any::Any, panic::AssertUnwindSafe, time::Duration};

use futures::{Stream, StreamExt as _};
use http::HeaderMap;
use tokio::time::Instant;
use tonic::{Status, body::Body};
use tower_http::catch_panic::CatchPanicLayer;

use crate::{error::Error, ledger::CallChanges};

/// Maximum time before its deadline at which a call is answered, so that the answer arrives; otherwise a tenth of the time that the call
/// had.
const MAX_HEADROOM: Duration = Duration::from_millis(200);

tokio::task_local! {
    /// When the answer to the call that this task serves must be given.
    static DEADLINE: Option<Instant>;
    /// Counts what the call that this task serves stages in the ledger.
    static CHANGES: CallChanges;
}

/// Answers a panic of a handler.
type Panicked = fn(Box<dyn Any + Send>) -> http::Response<Body>;

/// The layer that answers a panic of a handler.
pub(crate) fn panics() -> CatchPanicLayer<Panicked> {
    CatchPanicLayer::custom((|panic| panicked(&*panic).into_http()) as Panicked)
}

/// When a call must be answered: by its caller's deadline, with some room for the answer to arrive, and `longest` after it
/// began at the latest.
pub(crate) fn deadline(headers: &HeaderMap, begun: Instant, longest: Option<Duration>) -> Option<Instant> {
    let own = timeout(headers).map(|timeout| timeout.saturating_sub((timeout / 10).min(MAX_HEADROOM)));
    let time = own.into_iter().chain(longest).min()?;
    begun.checked_add(time)
}

/// Serves a call until its deadline, and counts what it stages. `None`: that has passed.
pub(crate) async fn with_deadline<T>(
    deadline: Option<Instant>,
    changes: CallChanges,
    call: impl Future<Output = T>,
) -> Option<T> {
    let call = DEADLINE.scope(deadline, CHANGES.scope(changes, call));
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, call).await.ok(),
        None => Some(call.await),
    }
}

/// Polls the answer of a call, and counts what it stages: a stream may change the ledger for as long as it lasts.
pub(crate) fn counting<T>(changes: &CallChanges, poll: impl FnOnce() -> T) -> T {
    CHANGES.sync_scope(changes.clone(), poll)
}

/// Where the changes of the call that this task serves are counted; `None`: it serves none.
pub(crate) fn changes() -> Option<CallChanges> {
    CHANGES.try_get().ok()
}

/// Refuses to decide for a caller that no longer waits.
///
/// # Errors
/// [`Error::TooLate`].
pub(crate) fn require_time() -> Result<(), Error> {
    match time_left() {
        Some(left) if left.is_zero() => Err(Error::TooLate { maybe: false }),
        Some(_) | None => Ok(()),
    }
}

/// Time until the answer to the call that this task serves must be given; `None`: it has no deadline, or there is no call.
pub(crate) fn time_left() -> Option<Duration> {
    let deadline = DEADLINE.try_with(|deadline| *deadline).ok().flatten()?;
    Some(deadline.saturating_duration_since(Instant::now()))
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
    Status::internal("the scheduler failed in this call; its log has the cause")
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
    use futures::FutureExt as _;

    use super::*;
    use crate::ledger::{Change, Commit, commit};

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
    async fn what_a_call_stages_is_counted_while_it_is_served() {
        async fn stage() {
            let (committer, _writer) = commit::committer(Commit::NONE);
            let permit = committer.reserve().await.unwrap().counted(changes());
            let change = |commit| Change::Fence {
                site: "a".to_owned(),
                fence: None,
                decision: Box::default(),
                commit,
            };
            permit.stage(change).unwrap();
        }
        let (one, two) = (CallChanges::default(), CallChanges::default());
        stage().await;
        with_deadline(None, one.clone(), stage()).await.unwrap();
        with_deadline(None, two.clone(), async {}).await.unwrap();
        assert_eq!((one.count(), two.count()), (1, 0));
        assert_eq!((one.site(), two.site()), (Some("a"), None));
        // A step of a stream, after the head of its answer.
        counting(&two, || stage().now_or_never()).unwrap();
        assert_eq!((one.count(), two.count()), (1, 1));
        assert!(changes().is_none());
    }

    #[tokio::test]
    async fn a_panic_ends_its_stream_without_its_text() {
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
