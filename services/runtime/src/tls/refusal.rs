//! Certificates that are refused: rustls carries the reason, and a task-local variable carries the identity that the certificate names.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::{CertificateError, OtherError};

tokio::task_local! {
    /// The identity that the peer's certificate names in this task's handshake.
    static CLAIMED: RefCell<Option<String>>;
}

/// Runs a handshake. Returns its result and the identity that the peer's certificate names, whether or not it was accepted.
pub(super) async fn claimed<T>(handshake: impl Future<Output = T>) -> (T, Option<String>) {
    let handshake = async {
        let done = handshake.await;
        (done, CLAIMED.with(RefCell::take))
    };
    CLAIMED.scope(RefCell::default(), handshake).await
}

/// Records the identity that the peer's certificate names.
pub(super) fn claim(identity: impl FnOnce() -> String) {
    // Outside of a handshake, when an accepted chain is verified again, there is nothing to record to.
    let _ = CLAIMED.try_with(|claimed| claimed.replace(Some(identity())));
}

/// Whether a handshake failed because of the peer's certificate, and not because of the protocol.
pub(super) fn is_of_identity(error: &std::io::Error) -> bool {
    let cause = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(
        cause,
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
    )
}

/// The rustls error for a certificate that chains to a trusted CA, but that this side does not accept.
pub(super) fn refused(error: crate::identity::Error) -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}

/// The error of a handshake with the reason of [`refused`] as its text; rustls would show that reason in debug format.
pub(super) fn readable(error: std::io::Error) -> std::io::Error {
    let refusal = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match refusal {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(reason)))) => {
            std::io::Error::new(error.kind(), Arc::clone(reason))
        }
        Some(_) | None => error,
    }
}
