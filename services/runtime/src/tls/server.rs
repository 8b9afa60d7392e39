//! The server's side: every client proves who it is, during the handshake.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio::sync::watch;

use super::material::Files;
use super::reload::{Reloader, Reloading, Side, Sources, TlsMetrics};
use super::trust::{SiteAuthorities, Trust, TrustFiles};
use super::{ALPN, Error, ServerTlsArgs};
use crate::identity::{Caller, Realm};

/// A server's certificates, following their files. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ServerTls(pub(super) Arc<Reloading<Serving>>);

/// What a server makes of its files.
#[derive(Debug)]
pub(super) struct Serving {
    tls: Arc<ServerConfig>,
    trust: Arc<Trust>,
}

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
            tls_site_ca_dir,
            tls_deny,
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
            trust: TrustFiles {
                sites: tls_site_ca_dir.clone(),
                denied: tls_deny.clone(),
            },
        };
        let known = SiteAuthorities::counted(metrics.site_faults());
        let build = move |sources: Sources<'_, Serving>| config(sources, &known);
        let reloading = Reloading::load(files, realm.clone(), Side::Server, metrics.clone(), build)?;
        let reloader = Reloader::new(Arc::clone(&reloading), *tls_reload_seconds);
        Ok(Some((Self(reloading), reloader)))
    }

    /// Who this server is, by its current certificate.
    #[must_use]
    pub fn identity(&self) -> Caller {
        self.0.identity()
    }

    /// The configuration for a handshake that begins now.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.config().tls)
    }

    /// Who has shown this chain, as it is accepted now.
    pub(super) fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<Caller, rustls::Error> {
        let (leaf, intermediates) = chain
            .split_first()
            .ok_or(rustls::Error::NoCertificatesPresented)?;
        let trust = Arc::clone(&self.0.config().trust);
        Ok(trust.verify(leaf, intermediates, UnixTime::now())?.0)
    }

    /// Waits until this chain is no longer trusted.
    pub(super) async fn withdrawn(
        self,
        mut changes: watch::Receiver<()>,
        chain: Vec<CertificateDer<'static>>,
    ) {
        while self.verify(&chain).is_ok() {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

fn config(sources: Sources<'_, Serving>, known: &SiteAuthorities) -> Result<Arc<Serving>, Error> {
    let Sources {
        files,
        realm,
        provider,
        material,
        former,
        faults,
    } = sources;
    let region = (&*files.anchors, &material.anchors);
    let former = former.map(|former| &*former.trust);
    let trust = Trust::read(&files.trust, region, realm, provider, known, former, faults)?;
    let trust = Arc::new(trust);
    let mut tls = server_config(Arc::clone(provider))?
        .with_client_cert_verifier(Arc::new(CallerVerifier(Arc::clone(&trust))))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&material.own.key))));
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    let tls = Arc::new(tls);
    Ok(Arc::new(Serving { tls, trust }))
}

fn server_config(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>, Error> {
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(Error::Protocol)
}

/// Refuses a wrong certificate with an alert rather than by a connection that closes for no visible reason.
#[derive(Debug)]
struct CallerVerifier(Arc<Trust>);

impl ClientCertVerifier for CallerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // With many authorities there are no hints: a client that chose by the region's would show nothing.
        if self.0.has_one_authority() {
            self.0.region().root_hint_subjects()
        } else {
            &[]
        }
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(self.0.verify(end_entity, intermediates, now)?.1)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.region().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.region().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.region().supported_verify_schemes()
    }

    fn offer_client_auth(&self) -> bool {
        self.0.region().offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.region().client_auth_mandatory()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.0.region().requires_raw_public_keys()
    }
}
