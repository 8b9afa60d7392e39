//! Whom a client trusts.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::refusal::refused;
use crate::identity::{Caller, Realm};

/// Webpki's verification with one thing exchanged: instead of the host name that was dialled, the certificate
/// must carry the SPIFFE id that was expected. Which name or address leads to the scheduler is no secret and
/// no proof; its identity is.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    anchors: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
    realm: Realm,
    server: Caller,
}

impl ServerVerifier {
    /// Accepts `server` of `realm` with a chain to one of `anchors`.
    pub(super) fn new(
        anchors: Arc<RootCertStore>,
        provider: &Arc<CryptoProvider>,
        realm: Realm,
        server: Caller,
    ) -> Result<Self, VerifierBuilderError> {
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::clone(&anchors), Arc::clone(provider))
            .build()?;
        let algorithms = provider.signature_verification_algorithms;
        Ok(Self {
            webpki,
            anchors,
            algorithms,
            realm,
            server,
        })
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.anchors,
            intermediates,
            now,
            self.algorithms.all,
        )?;
        self.realm.expect(&self.server, end_entity).map_err(refused)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.webpki.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.webpki.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}
