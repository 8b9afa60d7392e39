//! What an authority may certify, and certificates that change all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{RELOADED, Served, call, denied, dial, scheduler};
use crate::error_chain::chain;
use crate::fixtures::{Authority, Disk, Subject, agent, name, realm};
use crate::identity::Caller;
use crate::tls::TlsMetrics;

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
