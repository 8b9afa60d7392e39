//! A connection to a region's scheduler, for operators.

use std::time::Duration;

use anyhow::Context as _;
use http::Uri;
use runtime::identity::Caller;
use runtime::metrics::Metrics;
use runtime::tls::{self, Channel, ClientTls, TlsMetrics};
use tonic::{Code, Request, Status};

use crate::region::cli::Connection;

/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A channel to the scheduler, and its address for people.
///
/// # Errors
/// When the certificates cannot be read, or do not fit the address.
pub(crate) fn open(connection: Connection) -> anyhow::Result<(Uri, Channel)> {
    let Connection {
        scheduler,
        realm,
        tls,
    } = connection;
    let metrics = TlsMetrics::registered(&Metrics::default());
    // The call ends long before the certificate files change, so they are not reloaded.
    let tls = ClientTls::load(&tls, &realm.realm(), Caller::Scheduler, &metrics)?.map(|(tls, _)| tls);
    let channel = tls::channel(&scheduler, tls).context("no connection can be made")?;
    Ok((scheduler, channel))
}

/// A request with a deadline.
pub(crate) fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_TIMEOUT);
    request
}

/// A status that the scheduler answered, as an error.
pub(crate) fn status_error(scheduler: &Uri, status: &Status) -> anyhow::Error {
    anyhow::anyhow!("{scheduler} answers: {} ({:?})", status.message(), status.code())
}

/// Why the scheduler refuses; an error when it could not be asked.
///
/// # Errors
/// When the scheduler does not answer, or cannot answer now.
pub(crate) fn refused(scheduler: &Uri, status: &Status) -> anyhow::Result<String> {
    match status.code() {
        Code::NotFound | Code::FailedPrecondition | Code::PermissionDenied | Code::Aborted => {
            Ok(status.message().to_owned())
        }
        _ => Err(status_error(scheduler, status)),
    }
}
