//! Certificates that are refused: the reason travels through rustls, and whom they name beside it.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::{CertificateError, OtherError};

tokio::task_local! {
    /// Whom the certificate names that the handshake of this task has shown.
    static CLAIMED: RefCell<Option<String>>;
}

/// Runs a handshake. Returns with it the identity that the peer's certificate names, whether or not it was believed.
pub(super) async fn claimed<T>(handshake: impl Future<Output = T>) -> (T, Option<String>) {
    let handshake = async {
        let done = handshake.await;
        (done, CLAIMED.with(RefCell::take))
    };
    CLAIMED.scope(RefCell::default(), handshake).await
}

/// The certificate names this identity.
pub(super) fn claim(identity: impl FnOnce() -> String) {
    // A chain that is verified again later belongs to no handshake.
    let _ = CLAIMED.try_with(|claimed| claimed.replace(Some(identity())));
}

/// Whether a handshake failed because of who the peer is, and not because of how it speaks.
pub(super) fn is_of_identity(error: &std::io::Error) -> bool {
    let cause = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(
        cause,
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
    )
}

/// A certificate that chains, but names somebody who is not meant.
pub(super) fn refused(error: crate::identity::Error) -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}

/// The error of a handshake with the reason of [`refused`] in its own words: rustls shows it as a debug text.
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
