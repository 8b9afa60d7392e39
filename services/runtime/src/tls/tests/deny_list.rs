//! Who is denied, and what happens with a list that is not usable.

use std::time::{Instant, SystemTime};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

use super::{RELOADED, Served, call, denied, dial, load, presented};
use crate::fixtures::{Authority, Disk, Issued, Subject, agent, realm};
use crate::identity::Caller;
use crate::metrics::Metrics;
use crate::tls::{ServerTls, TlsMetrics};

fn digest(issued: &Issued) -> String {
    let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    let digest = Sha256::digest(&certificate);
    let bytes: Vec<String> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    bytes.join(":")
}

#[tokio::test]
async fn a_denied_peer_alone_is_disconnected_at_once() {
    let region = Authority::new();
    let server = Disk::new(&region.issue(&Subject::of_caller(&Caller::Scheduler)), &region);
    server.write("denied", "# nobody yet\n");
    let served = Served::start(&server.server_args()).await;
    let issued = region.issue(&Subject::of_caller(&agent("cluster")));
    let (stolen, renewed) = (
        Disk::new(&issued, &region),
        Disk::new(&region.issue(&Subject::of_caller(&agent("cluster"))), &region),
    );
    let (open, other) = (
        dial(&served, &stolen.client_args()),
        dial(&served, &renewed.client_args()),
    );
    call(&open).await.unwrap();
    call(&other).await.unwrap();

    let begun = Instant::now();
    server.write("denied", &format!("sha256:{} # lost laptop\n", digest(&issued)));
    let took = denied(&served, &stolen, &open, begun).await;
    println!("a certificate was denied after {took:?}, with files looked at every 10 ms");
    call(&other).await.unwrap();

    server.write("denied", &format!("{}\n", realm().uri(&agent("cluster"))));
    denied(&served, &renewed, &other, Instant::now()).await;
    let dex = Disk::new(&region.issue(&Subject::of_caller(&agent("dex"))), &region);
    call(&dial(&served, &dex.client_args())).await.unwrap();

    server.write("denied", "");
    served.until(RELOADED, |reloads| reloads >= 3).await;
    let again = dial(&served, &renewed.client_args());
    call(&again).await.unwrap();
}

#[test]
fn a_deny_list_that_says_something_else_is_refused() {
    let region = Authority::new();
    let server = Disk::new(&region.issue(&Subject::of_caller(&Caller::Scheduler)), &region);
    let load = || {
        ServerTls::load(
            &server.server_args(),
            &realm(),
            &TlsMetrics::registered(&Metrics::default()),
        )
    };
    server.write("denied", "\nsha256:1234\n");
    let error = load().unwrap_err().to_string();
    assert!(
        error.starts_with("line 2 of ") && error.contains("64 hexadecimal"),
        "{error}"
    );
    server.write("denied", "");
    load().unwrap();
    let mut missing = server.server_args();
    missing.tls_deny = Some(server.path("nowhere"));
    let loaded = ServerTls::load(&missing, &realm(), &TlsMetrics::registered(&Metrics::default()));
    loaded.unwrap_err();
}

#[test]
fn an_invalid_line_of_the_deny_list_unlocks_nobody() {
    let authority = Authority::new();
    let disk = Disk::new(
        &authority.issue(&Subject::of_caller(&Caller::Scheduler)),
        &authority,
    );
    let uri = |name: &str| realm().uri(&agent(name));
    disk.write("denied", &format!("{}\n", uri("cluster")));
    let tls = load(&disk.server_args());
    let is_denied = |name: &str| tls.verify(&presented(&authority, &agent(name))).is_err();
    assert!(is_denied("cluster") && !is_denied("dex"));

    disk.write("denied", &format!("sha256:1234\n{}\n", uri("dex")));
    let faults = tls.0.refresh(SystemTime::now()).unwrap_err();
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert!(
        faults.len() == 1 && faults[0].starts_with("line 1 of "),
        "{faults:?}"
    );
    assert!(is_denied("cluster"), "the line may be about anybody");
    assert!(is_denied("dex"), "a valid line counts beside an invalid one");
    assert!(!is_denied("jump-host"));

    std::fs::remove_file(disk.path("denied")).unwrap();
    tls.0.refresh(SystemTime::now()).unwrap_err();
    assert!(is_denied("cluster") && is_denied("dex"));

    disk.write("denied", &format!("{}\n", uri("dex")));
    tls.0.refresh(SystemTime::now()).unwrap();
    assert!(!is_denied("cluster") && is_denied("dex"));
}
