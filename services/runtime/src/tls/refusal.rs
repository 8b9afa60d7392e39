//! Certificates that chain, and are refused all the same: the reason travels through rustls.

use std::sync::Arc;

use rustls::{CertificateError, OtherError};

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
