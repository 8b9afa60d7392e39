//! What the arguments may say.

use std::net::SocketAddr;

use clap::Parser;
use http::Uri;

use super::{ClientTls, Listener, Served, ServerTlsArgs, TlsMetrics, call, channel, dial, scheduler};
use crate::error_chain::chain;
use crate::fixtures::{Authority, Disk, Subject, agent, realm};
use crate::identity::{Caller, RealmArgs};
use crate::tls::ClientTlsArgs;

#[derive(Debug, Parser)]
struct Server {
    #[command(flatten)]
    tls: ServerTlsArgs,
    #[command(flatten)]
    realm: RealmArgs,
}

#[derive(Debug, Parser)]
struct Client {
    #[command(flatten)]
    tls: ClientTlsArgs,
}

/// What is done to a good set of files.
type Spoil<'a> = Box<dyn Fn(&Disk) + 'a>;

const REALM: [&str; 4] = ["--trust-domain", "example.org", "--region", "north"];

fn plaintext() -> ServerTlsArgs {
    Server::try_parse_from(["server", "--plaintext-loopback"].iter().chain(&REALM))
        .unwrap()
        .tls
}

#[test]
fn a_server_needs_all_certificate_files_or_the_plaintext_flag() {
    let files = ["--tls-cert", "c", "--tls-key", "k", "--tls-client-ca", "a"];
    let cases: [(&[&str], Option<&str>); 5] = [
        (&[], Some("--tls-cert <FILE>")),
        (&files, None),
        (&files[..4], Some("--tls-client-ca <FILE>")),
        (&["--plaintext-loopback"], None),
        (
            &["--plaintext-loopback", "--tls-cert", "c"],
            Some("cannot be used with '--tls-cert <FILE>'"),
        ),
    ];
    for (options, refusal) in cases {
        let parsed = Server::try_parse_from(["server"].iter().chain(&REALM).chain(options));
        match (parsed, refusal) {
            (
                Ok(Server {
                    tls: _,
                    realm: parsed,
                }),
                None,
            ) => assert_eq!(parsed.realm(), realm(), "{options:?}"),
            (Err(error), Some(text)) => assert!(error.to_string().contains(text), "{options:?}: {error}"),
            (parsed, expected) => panic!("{options:?}: expected {expected:?}, got {parsed:?}"),
        }
    }
}

#[test]
fn a_client_needs_all_certificate_files_or_the_plaintext_flag() {
    let files = ["--tls-cert", "c", "--tls-key", "k", "--tls-ca", "a"];
    let cases: [(&[&str], bool); 4] = [
        (&[], false),
        (&files, true),
        (&files[..4], false),
        (&["--plaintext-loopback"], true),
    ];
    for (options, good) in cases {
        let parsed = Client::try_parse_from(["client"].iter().chain(options));
        assert_eq!(parsed.is_ok(), good, "{options:?}: {parsed:?}");
    }
}

#[tokio::test]
async fn plaintext_is_refused_where_others_could_reach_it() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0"] {
        let address: SocketAddr = address.parse().unwrap();
        let refusal = Listener::bind(address, &plaintext(), &realm(), &TlsMetrics::default())
            .await
            .unwrap_err();
        let text = refusal.to_string();
        assert!(
            text.starts_with(&format!("--plaintext-loopback is refused for `{address}`")),
            "{text}"
        );
    }
    for endpoint in [
        "http://192.0.2.1:1",
        "http://scheduler.example.org:1",
        "http://localhost.example.org:1",
    ] {
        let refusal = channel(&endpoint.parse().unwrap(), None).unwrap_err().to_string();
        assert!(
            refusal.starts_with("--plaintext-loopback is refused for `http://"),
            "{refusal}"
        );
    }
}

#[tokio::test]
async fn plaintext_on_loopback_serves_callers_that_are_called_so() {
    let served = Served::start(&plaintext()).await;
    call(&channel(&served.uri("http"), None).unwrap()).await.unwrap();
    assert_eq!(served.callers(), ["plaintext-loopback"]);
}

#[tokio::test]
async fn tls_and_plaintext_clients_never_fall_back() {
    let (authority, _server, served) = scheduler().await;
    let disk = Disk::new(
        &authority.issue(&Subject::of_caller(&agent("cluster"))),
        &authority,
    );
    let load = || {
        ClientTls::load(
            &disk.client_args(),
            &realm(),
            Caller::Scheduler,
            &TlsMetrics::default(),
        )
        .unwrap()
        .map(|(tls, _reloader)| tls)
    };
    let refusal = channel(&served.uri("http"), load()).unwrap_err().to_string();
    assert_eq!(
        refusal,
        format!("`http://{}/` must begin with `https://`", served.address)
    );
    let refusal = channel(&served.uri("https"), None).unwrap_err().to_string();
    assert!(
        refusal.contains("must begin with `http://` because of --plaintext-loopback"),
        "{refusal}"
    );

    let plain = Served::start(&plaintext()).await;
    let refusal = chain(&call(&dial(&plain, &disk.client_args())).await.unwrap_err());
    assert!(
        refusal.contains("one side does not trust the certificate of the other"),
        "{refusal}"
    );
    assert!(plain.callers().is_empty());
}

#[test]
fn an_endpoint_without_a_host_is_refused() {
    let refusal = channel(&Uri::from_static("/only/a/path"), None)
        .unwrap_err()
        .to_string();
    assert_eq!(refusal, "`/only/a/path` does not name a host to connect to");
}

#[test]
fn unusable_files_are_refused_at_start_with_a_reason() {
    let authority = Authority::new();
    let good = || authority.issue(&Subject::of_caller(&Caller::Scheduler));
    let south = Subject::uris(&["spiffe://example.org/region/south/scheduler"]);
    let cases: [(Spoil<'_>, &str, &str); 7] = [
        (
            Box::new(|disk| std::fs::remove_file(disk.path("cert.pem")).unwrap()),
            "cert.pem",
            "No such file",
        ),
        (
            Box::new(|disk| disk.write("key.pem", "")),
            "key.pem",
            "does not hold a private key in PEM form",
        ),
        (
            Box::new(|disk| disk.write("ca.pem", "")),
            "ca.pem",
            "does not hold CA certificates in PEM form",
        ),
        (
            Box::new(|disk| disk.write("key.pem", &good().key)),
            "key.pem",
            "does not serve for the certificate in",
        ),
        (
            Box::new(|disk| {
                disk.replace(&authority.issue(&Subject::of_caller(&Caller::Scheduler).expired()));
            }),
            "cert.pem",
            "not now",
        ),
        (
            Box::new(|disk| disk.replace(&authority.issue(&south))),
            "cert.pem",
            "belongs to region `south`; expected `north`",
        ),
        (
            Box::new(|disk| {
                disk.write(
                    "ca.pem",
                    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                );
            }),
            "ca.pem",
            "cannot be trusted as a CA",
        ),
    ];
    for (spoil, file, reason) in cases {
        let disk = Disk::new(&good(), &authority);
        spoil(&disk);
        let refusal = super::super::ServerTls::load(&disk.server_args(), &realm(), &TlsMetrics::default());
        let text = chain(&refusal.unwrap_err());
        assert!(
            text.contains(&disk.path(file).display().to_string()),
            "{file}: {text}"
        );
        assert!(text.contains(reason), "expected `{reason}`: {text}");
    }
}
