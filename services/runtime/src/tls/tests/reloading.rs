//! Certificates change while connections live.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::super::reload::Refresh;
use super::{ClientTls, RELOADED, Served, TlsMetrics, call, channel, dial, load, presented, scheduler};
use crate::error_chain::chain;
use crate::fixtures::{Authority, Disk, Issued, Log, Subject, agent, name, realm};
use crate::identity::Caller;
use crate::readiness::Readiness;

/// What is done to files in use.
type Break<'a> = Box<dyn Fn() + 'a>;
/// What is done to the files of one process.
type Spoil<'a> = Box<dyn Fn(&Disk) + 'a>;

const NOT_RELOADED: &str = r#"sip_tls_reloads_total{side="server",outcome="failed"}"#;

#[tokio::test]
async fn a_new_certificate_serves_new_connections_only() {
    let (old_authority, server, served) = scheduler().await;
    let old_client = Disk::new(
        &old_authority.issue(&Subject::of_caller(&agent("cluster"))),
        &old_authority,
    );
    let old_connection = dial(&served, &old_client.client_args());
    call(&old_connection).await.unwrap();

    let new_authority = Authority::new();
    server.replace(&new_authority.issue(&Subject::of_caller(&Caller::Scheduler)));
    // The client trusts the new authority alone, and shows a certificate of the old one, which the server
    // still trusts.
    served.until(RELOADED, |reloads| reloads >= 1).await;
    let new_client = Disk::new(
        &old_authority.issue(&Subject::of_caller(&agent("dex"))),
        &new_authority,
    );
    call(&dial(&served, &new_client.client_args())).await.unwrap();

    call(&old_connection).await.unwrap();
    let anew = chain(&call(&dial(&served, &old_client.client_args())).await.unwrap_err());
    assert!(
        anew.contains("UnknownIssuer"),
        "the old certificate is gone: {anew}"
    );
    assert_eq!(
        served.callers(),
        [
            "site/s1/agent/cluster",
            "site/s1/agent/dex",
            "site/s1/agent/cluster"
        ]
    );
}

#[tokio::test]
async fn a_withdrawn_authority_admits_no_new_connection() {
    let (authority, server, served) = scheduler().await;
    let client = Disk::new(
        &authority.issue(&Subject::of_caller(&agent("cluster"))),
        &authority,
    );
    call(&dial(&served, &client.client_args())).await.unwrap();
    server.write("ca.pem", Authority::new().pem());
    served.until(RELOADED, |reloads| reloads >= 1).await;
    call(&dial(&served, &client.client_args())).await.unwrap_err();
}

#[tokio::test]
async fn bad_files_leave_the_old_certificate_in_use() {
    let (authority, server, served) = scheduler().await;
    let client = Disk::new(
        &authority.issue(&Subject::of_caller(&agent("cluster"))),
        &authority,
    );
    let scheduler = || authority.issue(&Subject::of_caller(&Caller::Scheduler));
    let breaks: [(&str, Break<'_>); 5] = [
        ("an empty certificate", Box::new(|| server.write("cert.pem", ""))),
        (
            "a key of another certificate",
            Box::new(|| server.write("key.pem", &scheduler().key)),
        ),
        ("no authority", Box::new(|| server.write("ca.pem", "not PEM"))),
        (
            "an expired certificate",
            Box::new(|| server.replace(&authority.issue(&Subject::of_caller(&Caller::Scheduler).expired()))),
        ),
        (
            "a missing key",
            Box::new(|| std::fs::remove_file(server.path("key.pem")).unwrap()),
        ),
    ];
    for (case, break_it) in breaks {
        let failed = count(&served, NOT_RELOADED);
        break_it();
        served.until(NOT_RELOADED, |now| now > failed).await;
        call(&dial(&served, &client.client_args()))
            .await
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(served.readiness.unready().is_empty(), "{case}");

        let reloaded = count(&served, RELOADED);
        server.write("ca.pem", authority.pem());
        server.replace(&scheduler());
        served.until(RELOADED, |now| now > reloaded).await;
    }
}

#[tokio::test]
async fn bad_files_are_logged_once_with_the_file_and_the_reason() {
    let (log, _guard) = Log::capture();
    let (_authority, server, served) = scheduler().await;
    server.write("cert.pem", "");
    served.until(NOT_RELOADED, |failures| failures >= 5).await;
    let log = log.text();
    let said = log
        .matches("is not usable; what it held before stays in use")
        .count();
    assert_eq!(said, 1, "{log}");
    let place = format!(
        "{} does not hold a certificate chain in PEM form",
        server.path("cert.pem").display()
    );
    assert!(log.contains(&place), "{log}");
}

#[tokio::test]
async fn a_client_uses_its_new_certificate_for_its_next_connection() {
    let (authority, _server, served) = scheduler().await;
    let disk = Disk::new(
        &authority.issue(&Subject::of_caller(&agent("cluster"))),
        &authority,
    );
    let (tls, reloader) = ClientTls::load(
        &disk.client_args(),
        &realm(),
        Caller::Scheduler,
        &TlsMetrics::default(),
    )
    .unwrap()
    .unwrap();
    let readiness = Readiness::default();
    let mut tasks = JoinSet::new();
    tasks.spawn(reloader.run(readiness.gate("certificate"), CancellationToken::new()));
    call(&channel(&served.uri("https"), Some(tls.clone())).unwrap())
        .await
        .unwrap();

    disk.replace(&authority.issue(&Subject::of_caller(&Caller::Operator { name: name("ada") })));
    while tls.identity() != (Caller::Operator { name: name("ada") }) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    call(&channel(&served.uri("https"), Some(tls)).unwrap())
        .await
        .unwrap();
    assert_eq!(served.callers(), ["site/s1/agent/cluster", "operator/ada"]);
}

#[tokio::test]
async fn an_expired_certificate_makes_the_process_unready() {
    let authority = Authority::new();
    let short = Subject::of_caller(&Caller::Scheduler).expiring_in(Duration::from_secs(2));
    let disk = Disk::new(&authority.issue(&short), &authority);
    let served = Served::start(&disk.server_args()).await;
    let mut watch = served.readiness.watch();
    let expired = async {
        while !watch
            .unready()
            .get("certificate")
            .is_some_and(|reason| reason.starts_with("expired at"))
        {
            watch.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), expired)
        .await
        .expect("unready");
}

#[test]
fn a_certificate_past_half_its_life_is_reported() {
    let authority = Authority::new();
    let issued = authority.issue(&Subject::of_caller(&Caller::Scheduler));
    let disk = Disk::new(&issued, &authority);
    let tls = load(&disk.server_args());
    let now = SystemTime::now();
    // Valid for an hour on either side of now.
    let minutes = |minutes| Duration::from_mins(minutes);
    assert_eq!(tls.0.refresh(now - minutes(1)).unwrap(), Refresh::Unchanged);
    assert!(matches!(
        tls.0.refresh(now + minutes(1)).unwrap(),
        Refresh::RenewalOverdue { .. }
    ));

    disk.replace(
        &authority.issue(&Subject::of_caller(&Caller::Scheduler).expiring_in(Duration::from_hours(4))),
    );
    assert!(matches!(
        tls.0.refresh(now + minutes(1)).unwrap(),
        Refresh::Reloaded { .. }
    ));
    assert_eq!(tls.0.refresh(now + minutes(1)).unwrap(), Refresh::Unchanged);
}

#[test]
fn callers_are_denied_after_the_own_certificate_has_expired() {
    let authority = Authority::new();
    let server = authority.issue(&Subject::of_caller(&Caller::Scheduler));
    let disk = Disk::new(&server, &authority);
    disk.write("denied", "");
    let tls = load(&disk.server_args());
    let client = presented(&authority, &agent("cluster"));
    tls.verify(&client).unwrap();
    // Valid for an hour on either side of now.
    let expired = SystemTime::now() + Duration::from_hours(2);
    tls.0.refresh(expired).unwrap_err();

    disk.write("denied", &format!("{}\n", realm().uri(&agent("cluster"))));
    assert!(matches!(
        tls.0.refresh(expired).unwrap(),
        Refresh::Reloaded { .. }
    ));
    tls.verify(&client).unwrap_err();

    // Another certificate must be valid, whatever the one in use is.
    disk.replace(&authority.issue(&Subject::of_caller(&Caller::Scheduler)));
    tls.0.refresh(expired).unwrap_err();
    assert!(matches!(
        tls.0.refresh(SystemTime::now()).unwrap(),
        Refresh::Reloaded { .. }
    ));
}

#[test]
fn callers_are_denied_beside_files_that_are_not_usable() {
    let region = Authority::new();
    let scheduler = || Subject::of_caller(&Caller::Scheduler);
    let ada = Caller::Operator { name: name("ada") };
    let denied = format!("{}\n", realm().uri(&ada));
    let spoils: [(&str, Spoil<'_>); 6] = [
        (
            "a key of another certificate",
            Box::new(|disk| disk.write("key.pem", &region.issue(&scheduler()).key)),
        ),
        (
            "a certificate of another key",
            Box::new(|disk| disk.write("cert.pem", &region.issue(&scheduler()).certificate)),
        ),
        (
            "an expired certificate",
            Box::new(|disk| disk.replace(&region.issue(&scheduler().expired()))),
        ),
        (
            "a missing key",
            Box::new(|disk| std::fs::remove_file(disk.path("key.pem")).unwrap()),
        ),
        ("no CA", Box::new(|disk| disk.write("ca.pem", "not PEM"))),
        (
            "no authorities of sites",
            Box::new(|disk| std::fs::remove_dir_all(disk.path("sites")).unwrap()),
        ),
    ];
    for (case, spoil) in spoils {
        let disk = Disk::new(&region.issue(&scheduler()), &region);
        let site = Authority::new();
        disk.trust_site("s1", &site);
        disk.write("denied", "");
        let tls = load(&disk.server_args());
        let (operator, cluster) = (presented(&region, &ada), presented(&site, &agent("cluster")));
        tls.verify(&operator).unwrap();

        spoil(&disk);
        tls.0.refresh(SystemTime::now()).unwrap_err();
        disk.write("denied", &denied);
        tls.0.refresh(SystemTime::now()).unwrap_err();
        assert!(tls.verify(&operator).is_err(), "{case}");
        assert!(tls.verify(&cluster).is_ok(), "{case}");
        // A fault that lasts is reported again, and no connection is verified again for it.
        let before = Arc::as_ptr(&tls.0.config());
        tls.0.refresh(SystemTime::now()).unwrap_err();
        assert_eq!(Arc::as_ptr(&tls.0.config()), before, "{case}");

        disk.write("denied", "");
        disk.write("ca.pem", region.pem());
        disk.replace(&region.issue(&scheduler()));
        disk.trust_site("s1", &site);
        let refreshed = tls.0.refresh(SystemTime::now());
        assert!(matches!(refreshed, Ok(Refresh::Reloaded { .. })), "{case}");
        tls.verify(&operator).unwrap();
    }
}

#[test]
fn a_renewal_without_file_events_is_found() {
    let authority = Authority::new();
    let mut issued = authority.issue(&Subject::of_caller(&Caller::Scheduler));
    // PEM allows text after its blocks: room for a certificate whose signature happens to be longer.
    issued.certificate.push_str(&"\n".repeat(64));
    issued.key.push_str(&"\n".repeat(64));
    let disk = Disk::new(&issued, &authority);
    let tls = load(&disk.server_args());
    let renewed =
        authority.issue(&Subject::of_caller(&Caller::Scheduler).expiring_in(Duration::from_hours(4)));
    overwrite_unseen(&disk, &issued, &renewed);
    let early = SystemTime::now() - Duration::from_mins(1);
    let before = Arc::as_ptr(&tls.0.config());
    assert_eq!(tls.0.refresh(early).unwrap(), Refresh::Unchanged);
    assert_eq!(Arc::as_ptr(&tls.0.config()), before);
    let late = SystemTime::now() + Duration::from_mins(1);
    assert!(matches!(tls.0.refresh(late).unwrap(), Refresh::Reloaded { .. }));
    assert_ne!(Arc::as_ptr(&tls.0.config()), before);
}

/// Puts `new` in place of `old` with the same inodes, sizes and modification times.
fn overwrite_unseen(disk: &Disk, old: &Issued, new: &Issued) {
    for (file, old, new) in [
        ("cert.pem", &old.certificate, &new.certificate),
        ("key.pem", &old.key, &new.key),
    ] {
        let path = disk.path(file);
        let padded = format!("{new}{}", "\n".repeat(old.len() - new.len()));
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        let opened = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::io::Write::write_all(&mut &opened, padded.as_bytes()).unwrap();
        opened.set_modified(modified).unwrap();
    }
}

fn count(served: &Served, name: &str) -> u64 {
    served.sample(name).map_or(0, |value| value.parse().unwrap())
}
