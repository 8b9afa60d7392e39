//! A region whose scheduler believes one authority for itself and its people, and another one for each site's agents.

use std::{
    collections::BTreeMap,
    fs, io,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use sandbox::authority::{Authority, Caller, Identity, Validity};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::transport::Uri;

/// The authorities, and the files of whom they have certified.
pub(crate) struct Pki {
    directory: PathBuf,
    region: Authority,
    sites: Vec<(String, Authority)>,
    stranger: Authority,
    /// Everybody has one certificate of each issuer.
    certified: Mutex<BTreeMap<(String, String), Connector>>,
}

/// Who certifies somebody.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Issuer<'a> {
    Region,
    Site(&'a str),
    /// One that nobody believes.
    Stranger,
}

impl Pki {
    /// Of a region with these sites.
    pub(crate) fn new(directory: &Path, sites: &[String]) -> Self {
        let authority = |name: &str| Authority::new(&directory.join(name), "north").unwrap();
        let trusted = directory.join("site-authorities");
        fs::create_dir_all(&trusted).unwrap();
        let sites = sites.iter().map(|site| {
            let authority = authority(&format!("authority-{site}"));
            fs::copy(authority.certificate(), trusted.join(format!("{site}.crt"))).unwrap();
            (site.clone(), authority)
        });
        Self {
            sites: sites.collect(),
            region: authority("authority"),
            stranger: authority("authority-stranger"),
            directory: directory.to_owned(),
            certified: Mutex::default(),
        }
    }

    /// The scheduler's options.
    pub(crate) fn options(&self) -> Vec<String> {
        let server = self.region.issue_server(&Caller::Scheduler, &["localhost"]);
        let Identity {
            certificate,
            key,
            authority,
            ..
        } = server.unwrap();
        let sites = self.directory.join("site-authorities");
        let options = [
            ("--tls-cert", &certificate),
            ("--tls-key", &key),
            ("--tls-client-ca", &authority),
            ("--tls-site-ca-dir", &sites),
        ];
        let options = options.map(|(option, path)| format!("{option}={}", path.display()));
        options.to_vec()
    }

    /// How that caller connects, certified by whom it should be.
    pub(crate) fn connector(&self, caller: &Caller<'_>) -> Connector {
        match caller {
            Caller::Agent { site, .. } => self.certified_by(Issuer::Site(site), caller),
            Caller::Scheduler | Caller::Operator(_) | Caller::Reader(_) => {
                self.certified_by(Issuer::Region, caller)
            }
        }
    }

    /// How that caller connects, certified by somebody.
    pub(crate) fn certified_by(&self, issuer: Issuer<'_>, caller: &Caller<'_>) -> Connector {
        let key = (format!("{issuer:?}"), caller.to_string());
        let mut certified = self.certified.lock().unwrap_or_else(PoisonError::into_inner);
        let connector = certified
            .entry(key)
            .or_insert_with(|| self.certify(issuer, caller));
        connector.clone()
    }

    fn certify(&self, issuer: Issuer<'_>, caller: &Caller<'_>) -> Connector {
        let authority = match issuer {
            Issuer::Region => &self.region,
            Issuer::Site(name) => &self.sites.iter().find(|(site, _)| site == name).unwrap().1,
            Issuer::Stranger => &self.stranger,
        };
        let identity = authority.issue_valid(caller, Validity::DAY).unwrap();
        let chain = CertificateDer::pem_file_iter(identity.certificate).unwrap();
        let chain = chain.collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(identity.key).unwrap();
        let config = self.config().with_client_auth_cert(chain, key).unwrap();
        Connector::new(config)
    }

    /// How somebody without a certificate connects.
    pub(crate) fn anonymous(&self) -> Connector {
        Connector::new(self.config().with_no_client_auth())
    }

    fn config(&self) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(self.region.certificate()).unwrap() {
            roots.add(certificate.unwrap()).unwrap();
        }
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
    }
}

/// Connects with TLS, as one caller.
#[derive(Clone)]
pub(crate) struct Connector(TlsConnector);

impl Connector {
    fn new(mut config: ClientConfig) -> Self {
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self(TlsConnector::from(Arc::new(config)))
    }

    /// A connection whose handshake is done, as far as the client can tell.
    pub(crate) async fn connect(&self, authority: &str) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(authority).await?;
        let server = ServerName::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        self.0.connect(server, stream).await
    }
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let authority = uri
                .authority()
                .map_or("", tonic::codegen::http::uri::Authority::as_str);
            Ok(TokioIo::new(connector.connect(authority).await?))
        })
    }
}
