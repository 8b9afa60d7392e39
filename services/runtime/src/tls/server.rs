//! The server's side: every client proves who it is, during the handshake.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, ServerConfig, SignatureScheme,
};

use super::material::{Files, Material};
use super::reload::{Reloader, Reloading, Side, TlsMetrics};
use super::{ALPN, Error, ServerTlsArgs};
use crate::identity::{Caller, Realm};

/// A server's certificates, following their files. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ServerTls(pub(super) Arc<Reloading<ServerConfig>>);

impl ServerTls {
    /// Loads the files; `None` where the arguments ask for plaintext. The [`Reloader`] must be run.
    ///
    /// # Errors
    /// When the files are not usable or not given.
    pub fn load(
        args: &ServerTlsArgs,
        realm: &Realm,
        metrics: &TlsMetrics,
    ) -> Result<Option<(Self, Reloader)>, Error> {
        let ServerTlsArgs {
            tls_cert,
            tls_key,
            tls_client_ca,
            plaintext_loopback,
            tls_reload_seconds,
        } = args;
        if *plaintext_loopback {
            return Ok(None);
        }
        let (Some(certificate), Some(key), Some(anchors)) = (tls_cert, tls_key, tls_client_ca) else {
            return Err(Error::NoCertificates {
                missing: "--tls-cert, --tls-key and --tls-client-ca",
            });
        };
        let files = Files {
            certificate: certificate.clone(),
            key: key.clone(),
            anchors: anchors.clone(),
        };
        let reloading = Reloading::load(files, realm.clone(), Side::Server, metrics.clone(), config)?;
        let reloader = Reloader::new(Arc::clone(&reloading), *tls_reload_seconds);
        Ok(Some((Self(reloading), reloader)))
    }

    /// Who this server is, by its current certificate.
    #[must_use]
    pub fn identity(&self) -> Caller {
        self.0.identity()
    }
}

fn config(files: &Files, realm: &Realm, now: SystemTime) -> Result<(Arc<ServerConfig>, Material), Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let material = Material::read(files, realm, &provider, now)?;
    let chain =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&material.anchors), Arc::clone(&provider))
            .build()
            .map_err(|source| Error::Verifier {
                path: files.anchors.clone(),
                source,
            })?;
    let mut config = server_config(provider)?
        .with_client_cert_verifier(Arc::new(CallerVerifier {
            chain,
            realm: realm.clone(),
        }))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&material.own))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok((Arc::new(config), material))
}

fn server_config(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>, Error> {
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(Error::Protocol)
}

/// Webpki's verification of the chain, and then the identity's, so that a wrong one is refused with an alert
/// rather than by a connection that closes for no visible reason.
#[derive(Debug)]
struct CallerVerifier {
    chain: Arc<dyn ClientCertVerifier>,
    realm: Realm,
}

impl ClientCertVerifier for CallerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        self.realm.caller_of(end_entity).map_err(refused)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }

    fn offer_client_auth(&self) -> bool {
        self.chain.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.chain.client_auth_mandatory()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.chain.requires_raw_public_keys()
    }
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
