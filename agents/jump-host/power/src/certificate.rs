//! The TLS certificate of the port, which follows its files: the next connection gets a renewed one.

use std::{
    fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use sha2::{Digest as _, Sha256};
use tokio::time::{MissedTickBehavior, interval};

/// Time between two reads of the files.
const RESYNC_PERIOD: Duration = Duration::from_secs(10);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file lacks its expected content.
    #[error("{} does not contain {what} in PEM form", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should contain.
        what: &'static str,
        /// The cause.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// Certificate and key do not belong together.
    #[error("the key in {} does not match the certificate in {}", key.display(), certificate.display())]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// The cryptography lacks TLS 1.3.
    #[error("TLS 1.3 is not available")]
    Protocol(#[source] rustls::Error),
}

/// Where the certificate is.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// A certificate that follows its files.
#[derive(Debug)]
pub(crate) struct Certificate {
    files: Files,
    pub(crate) provider: Arc<CryptoProvider>,
    current: ArcSwap<Loaded>,
    /// Why the newest files cannot be used.
    refused: Mutex<Option<String>>,
}

#[derive(Debug)]
struct Loaded {
    key: Arc<CertifiedKey>,
    digest: [u8; 32],
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.load().key))
    }
}

impl Certificate {
    pub(crate) fn load(files: Files) -> Result<Arc<Self>, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let loaded = Loaded::read(&files, &provider)?;
        Ok(Arc::new(Self {
            files,
            provider,
            current: ArcSwap::from_pointee(loaded),
            refused: Mutex::default(),
        }))
    }

    /// TLS 1.3 for HTTP/2, without client certificates: a call proves by its token who makes it.
    pub(crate) fn config(self: &Arc<Self>) -> Result<ServerConfig, Error> {
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Self>::clone(self);
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Error::Protocol)?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }

    /// Reads the files periodically, without end. Logs files that cannot be used once, and keeps the certificate before.
    pub(crate) async fn follow(&self) {
        let mut ticks = interval(RESYNC_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match Loaded::read(&self.files, &self.provider) {
                Ok(loaded) => {
                    *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    if loaded.digest != self.current.load().digest {
                        self.current.store(Arc::new(loaded));
                        tracing::info!("the certificate of PowerService was reloaded");
                    }
                }
                Err(error) => {
                    let text = runtime::error_chain::chain(&error);
                    let before = self
                        .refused
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .replace(text.clone());
                    if before.as_ref() != Some(&text) {
                        tracing::error!(
                            error = text,
                            "the new certificate of PowerService is not usable; the previous one stays in use"
                        );
                    }
                }
            }
        }
    }

    /// The certificate that new connections get.
    pub(crate) fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.current.load().key)
    }

    /// Why the newest files cannot be used; `None` if they are in use.
    pub(crate) fn refused(&self) -> Option<String> {
        self.refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Loaded {
    fn read(files: &Files, provider: &CryptoProvider) -> Result<Self, Error> {
        let Files {
            certificate: certificate_file,
            key: key_file,
        } = files;
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|source| Error::Read {
                path: path.clone(),
                source,
            })
        };
        let pem = |path: &PathBuf, what| {
            let path = path.clone();
            move |source| Error::Pem { path, what, source }
        };
        let (certificate, key) = (read(certificate_file)?, read(key_file)?);
        let digest = Sha256::new()
            .chain_update(&certificate)
            .chain_update(&key)
            .finalize();
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&certificate)
            .collect::<Result<_, _>>()
            .map_err(pem(certificate_file, "certificates"))?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(pem(key_file, "a private key"))?;
        let key = CertifiedKey::from_der(chain, key, provider).map_err(|source| Error::Pair {
            certificate: certificate_file.clone(),
            key: key_file.clone(),
            source,
        })?;
        Ok(Self {
            key: Arc::new(key),
            digest: digest.into(),
        })
    }
}
