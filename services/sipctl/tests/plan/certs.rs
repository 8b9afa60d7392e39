//! What `sipctl certs` makes is what the scheduler believes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use proto::ledger::v1::{ExportLedgerRequest, ledger_service_client::LedgerServiceClient};
use runtime::identity::{Caller, Realm};
use runtime::metrics::Metrics;
use runtime::tls::{self, ClientTls, ClientTlsArgs, Listener, ServerTlsArgs, TlsMetrics};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sipctl::cli::Cli;
use sipctl::command::{Ending, run};
use tonic::Code;

fn certs(arguments: &[&str]) -> Result<(String, Ending), String> {
    let cli = Cli::try_parse_from(["sipctl", "certs"].iter().chain(arguments)).unwrap();
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    match run(cli, &mut out, &mut notes) {
        Ok(ending) => Ok((String::from_utf8(out).unwrap(), ending)),
        Err(error) => Err(format!("{error:#}")),
    }
}

fn realm() -> Realm {
    Realm::new("sip.example".parse().unwrap(), "north".parse().unwrap())
}

fn issued(folder: &Path, identity: &str, ending: &str) -> PathBuf {
    folder.join("issued").join(format!("{identity}.{ending}"))
}

/// Calls as somebody; a server without services answers that it does not know the call.
async fn enters(folder: &Path, address: &str, identity: &str) -> bool {
    let args = ClientTlsArgs {
        tls_cert: Some(issued(folder, identity, "crt")),
        tls_key: Some(issued(folder, identity, "key")),
        tls_ca: Some(folder.join("region.crt")),
        plaintext_loopback: false,
        tls_reload_seconds: Duration::from_secs(5),
    };
    let metrics = TlsMetrics::registered(&Metrics::default());
    let client = ClientTls::load(&args, &realm(), Caller::Scheduler, &metrics).unwrap();
    let endpoint = format!("https://{address}").parse().unwrap();
    let channel = tls::channel(&endpoint, client.map(|(client, _)| client)).unwrap();
    let called = LedgerServiceClient::new(channel)
        .export_ledger(ExportLedgerRequest {})
        .await;
    called.unwrap_err().code() == Code::Unimplemented
}

#[test]
fn an_agent_that_serves_has_a_certificate_for_its_dns_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let at = folder.to_str().unwrap();
    certs(&["init", at, "--trust-domain", "sip.example", "--region", "north"]).unwrap();
    certs(&["site", at, "s1"]).unwrap();
    let name = "sip-jump-host-agent-power.sip-system.svc";
    certs(&["issue", at, "site/s1/agent/jump-host", "--dns", name]).unwrap();
    certs(&["issue", at, "site/s1/agent/cluster"]).unwrap();
    let refused = certs(&["issue", at, "site/s1/agent/cluster", "--dns", "bücher"]).unwrap_err();
    assert!(refused.contains("is not ASCII"), "{refused}");

    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(folder.join("sites/s1.crt")).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .unwrap();
    let serves = |file: &str, name: &'static str| {
        let certificate = CertificateDer::from_pem_file(issued(folder, file, "crt")).unwrap();
        let name = ServerName::try_from(name).unwrap();
        verifier
            .verify_server_cert(&certificate, &[], &name, &[], UnixTime::now())
            .is_ok()
    };
    assert!(serves("site_s1_agent_jump-host", name));
    assert!(!serves("site_s1_agent_jump-host", "other.sip-system.svc"));
    assert!(!serves("site_s1_agent_cluster", name));
}

#[test]
fn a_directory_of_certificates_is_what_a_scheduler_believes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let at = folder.to_str().unwrap();
    let init = ["init", at, "--trust-domain", "sip.example", "--region", "north"];
    certs(&init).unwrap();
    assert!(certs(&init).unwrap_err().contains("exists already"));
    certs(&["site", at, "s1"]).unwrap();
    certs(&["site", at, "s2"]).unwrap();
    for identity in [
        "scheduler",
        "operator/ada",
        "site/s1/agent/cluster",
        "site/s2/agent/cluster",
    ] {
        let (said, ending) = certs(&["issue", at, identity]).unwrap();
        assert!(said.contains(identity) && ending == Ending::Done, "{said}");
    }
    let unknown = certs(&["issue", at, "site/s3/agent/cluster"]).unwrap_err();
    assert!(unknown.contains("sipctl certs site"), "{unknown}");
    assert!(
        certs(&["issue", at, "root"])
            .unwrap_err()
            .contains("unknown form")
    );
    for key in [folder.join("keys/region.key"), issued(folder, "scheduler", "key")] {
        let mode = std::fs::metadata(key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    let (table, ending) = certs(&["show", at]).unwrap();
    println!("{table}");
    assert_eq!(ending, Ending::Done);
    assert!(
        table.contains("site/s1/agent/cluster") && table.contains("good"),
        "{table}"
    );
    let (table, ending) = certs(&["show", at, "--warn-days", "100"]).unwrap();
    assert!(
        table.contains("renew") && ending == Ending::CertificatesDue,
        "{table}"
    );

    let args = ServerTlsArgs {
        tls_cert: Some(issued(folder, "scheduler", "crt")),
        tls_key: Some(issued(folder, "scheduler", "key")),
        tls_client_ca: Some(folder.join("region.crt")),
        tls_site_ca_dir: Some(folder.join("sites")),
        tls_deny: Some(folder.join("denied")),
        plaintext_loopback: false,
        tls_reload_seconds: Duration::from_secs(5),
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let served = |who: &'static [&'static str]| {
        runtime.block_on(async {
            let any = "127.0.0.1:0".parse().unwrap();
            let metrics = TlsMetrics::registered(&Metrics::default());
            let (listener, _) = Listener::bind(any, &args, &realm(), &metrics).await.unwrap();
            let address = listener.address().to_string();
            let routes = tonic::service::Routes::default();
            let server = tonic::transport::Server::builder().add_routes(routes);
            let serving = tokio::spawn(server.serve_with_incoming(listener.incoming()));
            let mut entered = Vec::new();
            for identity in who {
                entered.push(enters(folder, &address, identity).await);
            }
            serving.abort();
            entered
        })
    };
    let who = &["operator_ada", "site_s1_agent_cluster", "site_s2_agent_cluster"];
    assert_eq!(served(who), [true, true, true]);

    certs(&["deny", at, "site/s1/agent/cluster", "--why", "left"]).unwrap();
    let operator = issued(folder, "operator_ada", "crt");
    certs(&["deny", at, operator.to_str().unwrap()]).unwrap();
    assert!(
        certs(&["deny", at, "nobody"])
            .unwrap_err()
            .contains("neither a file nor")
    );
    assert_eq!(served(who), [false, false, true]);
    certs(&["issue", at, "operator/ada"]).unwrap();
    assert_eq!(
        served(who),
        [true, false, true],
        "a new certificate is another one"
    );
}
