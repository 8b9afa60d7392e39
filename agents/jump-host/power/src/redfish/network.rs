//! How BMCs are reached: whom to trust, by which proxy, with which timeouts.

use std::{
    fmt, fs,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use runtime::resolver::Resolver;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};
use tokio::time::timeout;

use crate::bmc::Address;

/// How BMCs are reached, on the command line.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "BMCs")]
pub struct NetworkArgs {
    /// Further CA certificates (PEM) for the certificates of BMCs, besides those that the agent's image trusts
    #[arg(long, env = "SIP_BMC_CA", value_name = "FILE")]
    bmc_ca: Option<PathBuf>,
    /// HTTP proxy through which the agent connects to BMCs for clusters whose `jumpHost` entry has `bmc.proxy: true`, such as
    /// `http://proxy.example:3128`
    #[arg(long, env = "SIP_BMC_PROXY", value_name = "URL")]
    bmc_proxy: Option<Proxy>,
}

/// Why BMCs cannot be reached at all.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The file with CA certificates.
    #[error("cannot read CA certificates from {} (--bmc-ca)", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The configuration by which host names are resolved.
    #[error("host names cannot be resolved")]
    Resolver(#[source] std::io::Error),
    /// The cryptography lacks TLS.
    #[error("TLS is not available")]
    Tls(#[source] rustls::Error),
}

/// An HTTP proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    pub(super) host: String,
    pub(super) port: u16,
}

impl std::str::FromStr for Proxy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rule = "must be a URL such as http://proxy.example:3128, without user name and path";
        let uri: http::Uri = text.parse().map_err(|_| rule.to_owned())?;
        let authority = uri
            .authority()
            .filter(|authority| !authority.as_str().contains('@'));
        let (Some(authority), Some("http"), "" | "/", None) =
            (authority, uri.scheme_str(), uri.path(), uri.query())
        else {
            return Err(rule.to_owned());
        };
        Ok(Self {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
        })
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

/// Timeouts of calls of a BMC.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a connection, with its TLS handshake.
    pub connect: Duration,
    /// For an answer, from the request to its last byte.
    pub answer: Duration,
}

impl Default for Timeouts {
    /// BMCs are slow: some need several seconds for one system.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(20),
        }
    }
}

/// How one host's BMC is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Whether its certificate must chain to a trusted CA and bear its name.
    pub verify: bool,
    /// Whether the site's proxy is used, if it has one.
    pub proxy: bool,
}

/// How BMCs are reached. Cheap to clone.
#[derive(Clone)]
pub struct Network {
    verifying: Arc<ClientConfig>,
    trusting: Arc<ClientConfig>,
    proxy: Option<Proxy>,
    timeouts: Timeouts,
    loopback: bool,
    resolver: Resolver,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("proxy", &self.proxy)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

impl Network {
    /// Reads the CA certificates.
    ///
    /// # Errors
    /// As [`NetworkError`] lists.
    pub fn new(args: &NetworkArgs, timeouts: Timeouts) -> Result<Self, NetworkError> {
        let NetworkArgs { bmc_ca, bmc_proxy } = args;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = || {
            ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .map_err(NetworkError::Tls)
        };
        let verifying = builder()?
            .with_root_certificates(roots(bmc_ca.as_ref())?)
            .with_no_client_auth();
        let trusting = builder()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(Arc::clone(&provider))))
            .with_no_client_auth();
        Ok(Self {
            verifying: Arc::new(verifying),
            trusting: Arc::new(trusting),
            proxy: bmc_proxy.clone(),
            timeouts,
            loopback: false,
            resolver: Resolver::from_system().map_err(NetworkError::Resolver)?,
        })
    }

    /// The same, for BMCs on this machine too, which tests have: otherwise a name that resolves to loopback is refused.
    #[must_use]
    pub fn with_loopback(self) -> Self {
        Self {
            loopback: true,
            ..self
        }
    }

    pub(super) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Whether a BMC may be at this address: not this machine, and not a link-local address, such as a cloud's metadata service.
    pub(super) fn may_reach(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let near = match ip {
            IpAddr::V4(ip) => {
                ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() || ip.is_link_local()
            }
            IpAddr::V6(ip) => ip.is_unspecified() || ip.is_multicast() || ip.is_unicast_link_local(),
        };
        !near && (self.loopback || !ip.is_loopback())
    }

    /// Resolves a BMC's host to addresses with its port. Empty for a BMC behind the proxy, which resolves names itself, and if the name cannot be
    /// resolved within the time for a connection.
    pub(crate) async fn resolve(&self, address: &Address, route: Route) -> Vec<SocketAddr> {
        if self.proxy(route).is_some() {
            return Vec::new();
        }
        let host = address.host();
        let lookup = self.resolver.addresses(&host, address.port());
        let Ok(Ok(found)) = timeout(self.timeouts.connect, lookup).await else {
            return Vec::new();
        };
        found
            .into_iter()
            .map(|found| SocketAddr::new(found.ip().to_canonical(), found.port()))
            .collect()
    }

    /// Timeouts of calls of a BMC.
    pub(super) fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    pub(super) fn tls(&self, route: Route) -> Arc<ClientConfig> {
        Arc::clone(if route.verify {
            &self.verifying
        } else {
            &self.trusting
        })
    }

    pub(super) fn proxy(&self, route: Route) -> Option<&Proxy> {
        self.proxy.as_ref().filter(|_| route.proxy)
    }
}

fn roots(ca: Option<&PathBuf>) -> Result<RootCertStore, NetworkError> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(native.certs);
    if let Some(path) = ca {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| NetworkError::Read {
            path: path.clone(),
            source,
        };
        let pem = fs::read(path).map_err(|error| failed(error.into()))?;
        let mut added = 0;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| failed(error.into()))?;
            roots.add(certificate).map_err(|error| failed(error.into()))?;
            added += 1;
        }
        if added == 0 {
            return Err(failed("it contains no certificate".into()));
        }
    }
    Ok(roots)
}

/// Verifies no chain, for hosts with `disableCertificateVerification`: any server counts as the BMC if it holds the key of the certificate that
/// it shows.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_url_of_http_without_user_name_or_path() {
        let proxy = |text: &str| text.parse::<Proxy>().map(|proxy| proxy.to_string());
        assert_eq!(
            proxy("http://proxy.example:3128").as_deref(),
            Ok("proxy.example:3128")
        );
        assert_eq!(proxy("http://[2001:db8::1]/").as_deref(), Ok("[2001:db8::1]:80"));
        for bad in [
            "",
            "proxy:3128",
            "https://proxy",
            "http://u:p@proxy",
            "http://proxy/x",
            "http://proxy?x",
        ] {
            let refused = proxy(bad).unwrap_err();
            assert!(refused.starts_with("must be a URL"), "{bad}: {refused}");
        }
    }

    #[test]
    fn a_bmc_is_never_this_machine_or_a_link_local_address() {
        let network = Network::new(&NetworkArgs::default(), Timeouts::default()).unwrap();
        for near in [
            "127.0.0.1",
            "127.8.8.8",
            "::1",
            "::ffff:127.0.0.1",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "0.0.0.0",
            "::",
        ] {
            assert!(!network.may_reach(near.parse().unwrap()), "{near}");
        }
        for far in ["192.0.2.1", "10.0.0.1", "2001:db8::1", "fd00::1"] {
            assert!(network.may_reach(far.parse().unwrap()), "{far}");
        }
        let network = network.with_loopback();
        assert!(network.may_reach("127.0.0.1".parse().unwrap()));
        assert!(!network.may_reach("169.254.169.254".parse().unwrap()));
    }

    #[tokio::test]
    async fn name_and_address_of_a_bmc_resolve_alike() {
        let proxy = "http://proxy.example:3128".parse().unwrap();
        let args = NetworkArgs {
            bmc_ca: None,
            bmc_proxy: Some(proxy),
        };
        let network = Network::new(&args, Timeouts::default()).unwrap();
        let route = |proxy| Route { verify: true, proxy };
        for host in ["localhost:8443", "127.0.0.1:8443", "[::ffff:127.0.0.1]:8443"] {
            let address = format!("redfish://{host}/redfish/v1/Systems/1");
            let address = Address::parse(Some(&address)).unwrap();
            let found = network.resolve(&address, route(false)).await;
            assert!(
                found.contains(&"127.0.0.1:8443".parse().unwrap()),
                "{host}: {found:?}"
            );
            assert!(network.resolve(&address, route(true)).await.is_empty());
        }
    }

    #[test]
    fn a_file_without_certificates_is_refused_by_its_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let args = NetworkArgs {
            bmc_ca: Some(file.path().to_owned()),
            bmc_proxy: None,
        };
        let error = Network::new(&args, Timeouts::default()).unwrap_err();
        assert!(
            error.to_string().contains(&file.path().display().to_string()),
            "{error}"
        );
    }
}
