//! Requests that are sent again while a member of etcd is away.
//!
//! The client spreads requests over all endpoints, and one that refuses connections answers fastest: without sending again,
//! one dead member of three can fail every request for a long time.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};

use crate::ledger::Error;

/// How long one request may take before the client sends it again.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends a request, which must be one that may be sent twice, until etcd answers; for so long at most.
///
/// # Errors
/// What etcd answered, unless that passes; that the time is over.
pub(crate) async fn send_with_retries<T, R>(
    limit: Duration,
    action: &'static str,
    mut request: impl FnMut() -> R,
) -> Result<T, Error>
where
    R: Future<Output = Result<T, etcd_client::Error>>,
{
    let pauses = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(Duration::from_millis(200))
        .with_jitter()
        .without_max_times();
    let once = || {
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, request());
        async move {
            let late = |_| tonic::Status::deadline_exceeded("no member of etcd has answered in time");
            answer.await.map_err(late).map_err(etcd_client::Error::from)?
        }
    };
    // Boxed, since what callers await is large enough without it.
    let sending = Box::pin(async { once.retry(pauses).sleep(tokio::time::sleep).when(passes).await });
    tokio::time::timeout(limit, sending)
        .await
        .map_err(Error::storage(action))?
        .map_err(Error::storage(action))
}

/// Whether the same request may be answered otherwise when it is sent again.
pub(super) fn passes(error: &etcd_client::Error) -> bool {
    use tonic::Code;
    match error {
        etcd_client::Error::TransportError(_) | etcd_client::Error::IoError(_) => true,
        etcd_client::Error::GRpcStatus(status) => match status.code() {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Aborted => {
                true
            }
            Code::ResourceExhausted => is_busy(status),
            _ => false,
        },
        _ => false,
    }
}

/// Whether etcd is busy: it refuses requests while it is too far behind with applying earlier ones, and closes connections with too many
/// pings (`ENHANCE_YOUR_CALM` of HTTP/2). A full storage has the same code and does not pass.
fn is_busy(status: &tonic::Status) -> bool {
    let message = status.message();
    message.contains("too many requests") || message.starts_with("h2 protocol error")
}

/// Whether an answer was not taken because of its length, which its head states: nothing of it was read.
pub(super) fn is_too_large(error: &etcd_client::Error) -> bool {
    let etcd_client::Error::GRpcStatus(status) = error else {
        return false;
    };
    status.code() == tonic::Code::OutOfRange && status.message().contains("message length too large")
}

/// Why etcd does not take what is in a request, when it says so: the same request is never taken, another one is.
/// That the storage is full is no such answer, though it has the code of a message that is too large.
pub(super) fn refusal(error: &etcd_client::Error) -> Option<String> {
    use tonic::Code;
    let etcd_client::Error::GRpcStatus(status) = error else {
        return None;
    };
    let too_large = status.message().contains("message larger than max");
    match status.code() {
        Code::InvalidArgument => Some(status.message().to_owned()),
        Code::ResourceExhausted if too_large => Some(status.message().to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::*;

    #[test]
    fn a_busy_etcd_is_asked_again_and_a_full_one_is_not() {
        let is_repeated = |code, message: &str| passes(&etcd_client::Error::from(Status::new(code, message)));
        for busy in ["etcdserver: too many requests", "h2 protocol error: http2 error"] {
            assert!(is_repeated(Code::ResourceExhausted, busy), "{busy}");
        }
        for other in [
            "etcdserver: mvcc: database space exceeded",
            "grpc: received message larger than max (2 vs. 1)",
        ] {
            assert!(!is_repeated(Code::ResourceExhausted, other), "{other}");
        }
        assert!(is_repeated(Code::Unavailable, "etcdserver: leader changed"));
        assert!(!is_repeated(
            Code::InvalidArgument,
            "etcdserver: request is too large"
        ));
    }
}
