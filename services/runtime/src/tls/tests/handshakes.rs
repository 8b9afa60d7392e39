//! Who gets in, who does not, and what both sides are told.

use std::sync::Arc;
use std::time::Duration;

use rcgen::ExtendedKeyUsagePurpose;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::super::server_verifier::ServerVerifier;
use super::{Served, call, dial, scheduler};
use crate::error_chain::chain;
use crate::fixtures::{Authority, Disk, Issued, Log, Subject, agent, name, realm};
use crate::identity::Caller;

#[tokio::test]
async fn every_kind_of_caller_gets_in_and_handlers_see_who_it_is() {
    let (authority, _disk, served) = scheduler().await;
    let callers = [
        agent("cluster"),
        Caller::Operator { name: name("ada") },
        Caller::Reader {
            name: name("grafana"),
        },
        Caller::Scheduler,
    ];
    for caller in callers {
        let disk = Disk::new(&authority.issue(&Subject::of_caller(&caller)), &authority);
        call(&dial(&served, &disk.client_args())).await.unwrap();
        assert_eq!(served.callers(), [caller.to_string()]);
    }
    assert_eq!(
        served
            .sample(r#"sip_tls_handshakes_total{side="server",outcome="ok"}"#)
            .as_deref(),
        Some("4")
    );
}

/// The client's own certificate is checked against its own realm when it is loaded, so clients with bad ones
/// are made of rustls alone.
#[tokio::test]
async fn an_unauthorized_client_is_refused_and_logged() {
    let (authority, _disk, served) = scheduler().await;
    let stranger = Authority::new();
    let uris = |uris: &[&str]| authority.issue(&Subject::uris(uris));
    let cases: [(&str, Option<Issued>, &str); 9] =
        [
            ("no certificate", None, "peer sent no certificates"),
            (
                "another authority",
                Some(stranger.issue(&Subject::of_caller(&agent("cluster")))),
                "UnknownIssuer",
            ),
            (
                "expired",
                Some(authority.issue(&Subject::of_caller(&agent("cluster")).expired())),
                "certificate expired",
            ),
            (
                "a certificate for servers only",
                Some(authority.issue(
                    &Subject::of_caller(&agent("cluster")).only_for(ExtendedKeyUsagePurpose::ServerAuth),
                )),
                "extended key usage",
            ),
            (
                "another trust domain",
                Some(uris(&["spiffe://evil.org/region/north/site/s1/agent/cluster"])),
                "belongs to trust domain `evil.org`; expected `example.org`",
            ),
            (
                "another region",
                Some(uris(&["spiffe://example.org/region/south/site/s1/agent/cluster"])),
                "belongs to region `south`; expected `north`",
            ),
            (
                "an unknown form",
                Some(uris(&["spiffe://example.org/region/north/site/s1"])),
                "has an unknown form; expected `spiffe://example.org/region/north/` and then",
            ),
            (
                "no name",
                Some(uris(&[])),
                "exactly one URI subject alternative name",
            ),
            (
                "two names",
                Some(uris(&[
                    "spiffe://example.org/region/north/operator/ada",
                    "spiffe://example.org/region/north/operator/eve",
                ])),
                "this one has 2",
            ),
        ];
    for (case, issued, reason) in cases {
        let (log, _guard) = Log::capture();
        let told = raw_client(&served, &authority, issued.as_ref(), &rustls::version::TLS13)
            .await
            .unwrap_err();
        assert!(
            told.contains("fatal alert"),
            "{case}: the client is told `{told}`"
        );
        let log = log.text();
        assert!(log.contains(reason), "{case}: logged:\n{log}");
        assert!(served.callers().is_empty(), "{case} reached a handler");
    }
    assert_eq!(
        served.sample(r#"sip_tls_handshakes_total{side="server",outcome="ok"}"#),
        None
    );
}

#[tokio::test]
async fn a_client_that_offers_only_tls_1_2_is_refused() {
    let (authority, _disk, served) = scheduler().await;
    let good = authority.issue(&Subject::of_caller(&agent("cluster")));
    let told = raw_client(&served, &authority, Some(&good), &rustls::version::TLS12)
        .await
        .unwrap_err();
    assert!(told.contains("ProtocolVersion"), "{told}");
    raw_client(&served, &authority, Some(&good), &rustls::version::TLS13)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_server_that_is_not_the_scheduler_is_refused_by_the_client() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let client = Disk::new(
        &authority.issue(&Subject::of_caller(&agent("cluster"))),
        &authority,
    );
    let cases = [
        (
            "an agent posing as the scheduler",
            authority.issue(&Subject::of_caller(&agent("cluster"))),
            "the peer is `spiffe://example.org/region/north/site/s1/agent/cluster`; expected `spiffe://example.org/region/north/scheduler`",
        ),
        (
            "another authority's scheduler",
            stranger.issue(&Subject::of_caller(&Caller::Scheduler)),
            "UnknownIssuer",
        ),
        (
            "a certificate for clients only",
            authority
                .issue(&Subject::of_caller(&Caller::Scheduler).only_for(ExtendedKeyUsagePurpose::ClientAuth)),
            "extended key usage",
        ),
    ];
    for (case, issued, reason) in cases {
        let disk = Disk::new(&issued, &authority);
        let served = Served::start(&disk.server_args()).await;
        let refusal = chain(&call(&dial(&served, &client.client_args())).await.unwrap_err());
        assert!(refusal.contains(reason), "{case}: {refusal}");
        assert!(served.callers().is_empty(), "{case} was asked something");
    }
}

#[tokio::test]
async fn a_client_refuses_a_foreign_or_expired_scheduler() {
    let authority = Authority::new();
    let client = Disk::new(
        &authority.issue(&Subject::of_caller(&agent("cluster"))),
        &authority,
    );
    let cases = [
        (
            authority.issue(&Subject::uris(&["spiffe://example.org/region/south/scheduler"])),
            "belongs to region `south`; expected `north`",
        ),
        (
            authority.issue(&Subject::of_caller(&Caller::Scheduler).expired()),
            "certificate expired",
        ),
    ];
    for (issued, reason) in cases {
        let refusal = refusal_of_raw_server(&issued, &client, &rustls::version::TLS13).await;
        assert!(refusal.contains(reason), "{refusal}");
    }
}

#[tokio::test]
async fn a_server_that_offers_only_tls_1_2_is_refused_by_the_client() {
    let authority = Authority::new();
    let client = Disk::new(
        &authority.issue(&Subject::of_caller(&agent("cluster"))),
        &authority,
    );
    let good = authority.issue(&Subject::of_caller(&Caller::Scheduler));
    let refusal = refusal_of_raw_server(&good, &client, &rustls::version::TLS12).await;
    assert!(
        refusal.contains("one side does not trust the certificate of the other"),
        "{refusal}"
    );
}

#[tokio::test]
async fn a_server_that_closes_the_connection_is_not_called_untrusted() {
    let authority = Authority::new();
    let disk = Disk::new(
        &authority.issue(&Subject::of_caller(&agent("cluster"))),
        &authority,
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("https://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let closing = tokio::spawn(async move {
        loop {
            drop(listener.accept().await.unwrap());
        }
    });
    let tls = super::ClientTls::load(
        &disk.client_args(),
        &realm(),
        Caller::Scheduler,
        &super::TlsMetrics::default(),
    )
    .unwrap();
    let channel = super::channel(&endpoint, tls.map(|(tls, _)| tls)).unwrap();
    let refusal = chain(&call(&channel).await.unwrap_err());
    assert!(refusal.contains("the server closed the connection"), "{refusal}");
    closing.abort();
}

#[tokio::test]
async fn a_connection_ends_when_its_certificate_expires() {
    let (authority, _disk, served) = scheduler().await;
    let short = Subject::of_caller(&agent("cluster")).expiring_in(Duration::from_secs(3));
    let disk = Disk::new(&authority.issue(&short), &authority);
    let channel = dial(&served, &disk.client_args());
    let mut watch = HealthClient::new(channel)
        .watch(HealthCheckRequest {
            service: String::new(),
        })
        .await
        .unwrap()
        .into_inner();
    assert!(watch.message().await.unwrap().is_some(), "the first status");
    let patience = Duration::from_secs(20);
    tokio::time::timeout(patience, watch.message())
        .await
        .expect("the stream is cut")
        .unwrap_err();
}

#[tokio::test]
async fn clients_that_say_nothing_do_not_keep_others_out() {
    let (authority, _disk, served) = scheduler().await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(served.address).await.unwrap());
    }
    let disk = Disk::new(
        &authority.issue(&Subject::of_caller(&agent("cluster"))),
        &authority,
    );
    tokio::time::timeout(Duration::from_secs(4), call(&dial(&served, &disk.client_args())))
        .await
        .expect("sooner than the silent ones time out")
        .unwrap();
}

/// Connects with rustls alone, past the checks of this crate's client; what the server says to that.
pub(super) async fn raw_client(
    served: &Served,
    trusted: &Authority,
    issued: Option<&Issued>,
    version: &'static SupportedProtocolVersion,
) -> Result<(), String> {
    let tcp = TcpStream::connect(served.address).await.unwrap();
    raw_client_over(tcp, trusted, issued, version).await
}

/// The same by a connection that is open.
pub(super) async fn raw_client_over(
    tcp: TcpStream,
    trusted: &Authority,
    issued: Option<&Issued>,
    version: &'static SupportedProtocolVersion,
) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(trusted.pem().as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = ServerVerifier::new(Arc::new(roots), &provider, realm(), Caller::Scheduler).unwrap();
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match issued {
        None => config.with_no_client_auth(),
        Some(issued) => {
            let (chain, key) = der(issued);
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut tls = TlsConnector::from(Arc::new(config))
        .connect(name, tcp)
        .await
        .map_err(|error| chain(&error))?;
    // A server that accepts begins HTTP/2 with its settings.
    let mut first = [0; 1];
    tls.read_exact(&mut first)
        .await
        .map(|_| ())
        .map_err(|error| chain(&error))
}

/// What this crate's client says to a server made of rustls alone.
async fn refusal_of_raw_server(
    issued: &Issued,
    client: &Disk,
    version: &'static SupportedProtocolVersion,
) -> String {
    let (cert_chain, key) = der(issued);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(cert_chain, key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("https://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let tls = super::ClientTls::load(
        &client.client_args(),
        &realm(),
        Caller::Scheduler,
        &super::TlsMetrics::default(),
    )
    .unwrap();
    let channel = super::channel(&endpoint, tls.map(|(tls, _)| tls)).unwrap();
    let serve = async {
        let (tcp, _) = listener.accept().await.unwrap();
        TlsAcceptor::from(Arc::new(config)).accept(tcp).await.err()
    };
    let (called, _) = tokio::join!(call(&channel), serve);
    chain(&called.unwrap_err())
}

fn der(issued: &Issued) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes());
    (
        chain.collect::<Result<_, _>>().unwrap(),
        PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap(),
    )
}
