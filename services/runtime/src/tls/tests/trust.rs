//! What an authority may certify, who is denied, and certificates that change all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;

use super::{Served, call, dial, scheduler};
use crate::error_chain::chain;
use crate::fixtures::{Authority, Disk, Issued, Subject, agent, name, realm};
use crate::identity::Caller;
use crate::metrics::Metrics;
use crate::tls::{ServerTls, TlsMetrics};

const RELOADED: &str = r#"sip_tls_reloads_total{side="server",outcome="ok"}"#;

fn agent_of(site: &str) -> Caller {
    Caller::Agent {
        site: name(site),
        name: name("cluster"),
    }
}

/// Whether a client with a certificate of this authority gets in, as this caller.
async fn enters(served: &Served, region: &Authority, by: &Authority, caller: &Caller) -> Result<(), String> {
    let disk = Disk::new(&by.issue(&Subject::of_caller(caller)), region);
    let called = call(&dial(served, &disk.client_args())).await;
    let who = served.callers();
    called.map_err(|status| chain(&status))?;
    assert_eq!(who, [caller.to_string()]);
    Ok(())
}

#[tokio::test]
async fn an_authority_of_a_site_makes_agents_of_that_site_only() {
    let region = Authority::new();
    let (one, two) = (Authority::new(), Authority::new());
    let server = Disk::new(&region.issue(&Subject::of_caller(&Caller::Scheduler)), &region);
    server.trust_site("s1", &one);
    server.trust_site("s2", &two);
    let served = Served::start(&server.server_args()).await;
    let callers = [
        agent_of("s1"),
        agent_of("s2"),
        agent_of("s3"),
        Caller::Operator { name: name("ada") },
        Caller::Reader { name: name("eve") },
        Caller::Scheduler,
    ];
    for (authority, which) in [(&region, "region"), (&one, "s1"), (&two, "s2")] {
        for caller in &callers {
            let own = caller.site().map_or("region", |site| site.as_str());
            let entered = enters(&served, &region, authority, caller).await;
            assert_eq!(entered.is_ok(), own == which, "{which} as {caller}: {entered:?}");
        }
    }
}

#[tokio::test]
async fn a_new_authority_of_a_site_ends_connections_of_the_old_one() {
    let region = Authority::new();
    let (old, new, other) = (Authority::new(), Authority::new(), Authority::new());
    let server = Disk::new(&region.issue(&Subject::of_caller(&Caller::Scheduler)), &region);
    server.trust_site("s1", &old);
    server.trust_site("s2", &other);
    let served = Served::start(&server.server_args()).await;
    let client = |by: &Authority, caller: &Caller| Disk::new(&by.issue(&Subject::of_caller(caller)), &region);
    let (mine, theirs) = (client(&old, &agent_of("s1")), client(&other, &agent_of("s2")));
    let open = dial(&served, &mine.client_args());
    let unaffected = dial(&served, &theirs.client_args());
    call(&open).await.unwrap();
    call(&unaffected).await.unwrap();

    server.trust_site("s1", &new);
    served.until(RELOADED, |reloads| reloads >= 1).await;

    denied(&served, &mine, &open, Instant::now()).await;
    call(&unaffected).await.unwrap();
    served.callers();
    enters(&served, &region, &old, &agent_of("s1")).await.unwrap_err();
    enters(&served, &region, &new, &agent_of("s1")).await.unwrap();
}

/// Waits until calls fail, and says how long that took.
async fn denied(served: &Served, client: &Disk, open: &crate::tls::Channel, begun: Instant) -> Duration {
    loop {
        if call(open).await.is_err() {
            let took = begun.elapsed();
            call(&dial(served, &client.client_args())).await.unwrap_err();
            return took;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "it still gets in");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

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

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_rotations_under_load_fail_no_call() {
    const CLIENTS: usize = 16;
    const ROTATIONS: u64 = 100;
    // All together connect more slowly than a site and an address may.
    const PAUSE: Duration = Duration::from_millis(500);
    let (authority, server, served) = scheduler().await;
    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut clients = JoinSet::new();
    let mut disks = Vec::new();
    for number in 0..CLIENTS {
        let caller = agent(&format!("agent-{number}"));
        let disk = Disk::new(&authority.issue(&Subject::of_caller(&caller)), &authority);
        let (stop, calls) = (Arc::clone(&stop), Arc::clone(&calls));
        let args = disk.client_args();
        let channel = dial(&served, &args);
        disks.push((caller, disk));
        let uri = served.uri("https");
        clients.spawn(async move {
            let mut connected = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                call(&channel).await.unwrap();
                // Now and then one is by a connection of its own, with the certificate of now.
                if connected.elapsed() >= PAUSE {
                    connected = Instant::now();
                    let tls =
                        super::ClientTls::load(&args, &realm(), Caller::Scheduler, &TlsMetrics::default());
                    // A certificate and a key of two rotations: the files are not replaced at once.
                    let Ok(tls) = tls else { continue };
                    let fresh = super::channel(&uri, tls.map(|(tls, _)| tls)).unwrap();
                    call(&fresh).await.unwrap();
                }
                calls.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for rotation in 1..=ROTATIONS {
        server.replace(&authority.issue(&Subject::of_caller(&Caller::Scheduler)));
        for (caller, disk) in &disks {
            disk.replace(&authority.issue(&Subject::of_caller(caller)));
        }
        served.until(RELOADED, |reloads| reloads >= rotation).await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    println!(
        "{ROTATIONS} rotations, {} calls of {CLIENTS} clients, none failed",
        calls.load(Ordering::Relaxed)
    );
}
