//! Authorities of sites: what they cannot certify, and files of them that are not usable.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::handshakes::raw_client;
use super::{RELOADED, Served, call, dial};
use crate::error_chain::chain;
use crate::fixtures::{Authority, Disk, Issued, Log, Subject, name, realm};
use crate::identity::Caller;
use crate::metrics::Metrics;
use crate::telemetry::AUDIT;
use crate::tls::{ServerTls, TlsMetrics};

const FAULTS: &str = "sip_tls_site_authorities_unusable";

fn agent_of(site: &str) -> Caller {
    Caller::Agent {
        site: name(site),
        name: name("cluster"),
    }
}

fn server(region: &Authority) -> Disk {
    Disk::new(&region.issue(&Subject::of_caller(&Caller::Scheduler)), region)
}

/// Whether a client with this certificate is served.
async fn entered(served: &Served, region: &Authority, issued: &Issued) -> Result<(), String> {
    let disk = Disk::new(issued, region);
    let called = call(&dial(served, &disk.client_args())).await;
    called.map_err(|status| chain(&status))
}

/// Whether the cluster agent of a site is served with a certificate of this authority.
async fn agent_entered(
    served: &Served,
    region: &Authority,
    by: &Authority,
    site: &str,
) -> Result<(), String> {
    entered(served, region, &by.issue(&Subject::of_caller(&agent_of(site)))).await
}

#[tokio::test]
async fn a_site_authority_under_the_regions_makes_no_operators() {
    let region = Authority::new();
    let (one, below) = {
        let one = Authority::issued_by(&region);
        let below = Authority::issued_by(&one);
        (one, below)
    };
    let server = server(&region);
    server.trust_site("s1", &one);
    server.trust_site("s2", &Authority::new());
    let served = Served::start(&server.server_args()).await;
    let people = [
        Caller::Operator { name: name("ada") },
        Caller::Reader { name: name("eve") },
        Caller::Scheduler,
        agent_of("s2"),
    ];
    // Also one that the scheduler has never known as a site's.
    let unknown = Authority::issued_by(&region);
    for caller in &people {
        let issued = unknown.issue(&Subject::of_caller(caller));
        entered(&served, &region, &with_chain(&issued, &[unknown.pem()]))
            .await
            .unwrap_err();
    }
    for (by, above) in [(&one, vec![&one]), (&below, vec![&below, &one])] {
        let issue = |caller: &Caller| {
            let Issued { mut certificate, key } = by.issue(&Subject::of_caller(caller));
            for authority in &above {
                certificate.push_str(authority.pem());
            }
            Issued { certificate, key }
        };
        for caller in &people {
            entered(&served, &region, &issue(caller)).await.unwrap_err();
        }
        entered(&served, &region, &issue(&agent_of("s1"))).await.unwrap();
    }
    let own = region.issue(&Subject::of_caller(&people[0]));
    entered(&served, &region, &own).await.unwrap();
}

/// A certificate with others after it.
fn with_chain(issued: &Issued, others: &[&str]) -> Issued {
    Issued {
        certificate: issued.certificate.clone() + &others.concat(),
        key: issued.key.clone(),
    }
}

#[tokio::test]
async fn a_site_locks_nobody_out_by_certificates_of_others() {
    let region = Authority::new();
    let (people, one, two) = (Authority::issued_by(&region), Authority::new(), Authority::new());
    let below_two = Authority::issued_by(&two);
    // The scheduler shows one of the region's CAs to everybody.
    let scheduler = people.issue(&Subject::of_caller(&Caller::Scheduler));
    let server = Disk::new(&with_chain(&scheduler, &[people.pem()]), &region);
    server.write("ca.pem", &format!("{}{}", region.pem(), people.pem()));
    let (direct, below) = (
        Subject::of_caller(&agent_of("s2")),
        Subject::of_caller(&agent_of("s2")),
    );
    let direct = two.issue(&direct);
    let below = with_chain(&below_two.issue(&below), &[below_two.pem()]);
    let ada = people.issue(&Subject::of_caller(&Caller::Operator { name: name("ada") }));
    let ada = with_chain(&ada, &[people.pem()]);
    server.trust_site("s2", &two);
    for added in [
        &direct.certificate,
        below_two.pem(),
        people.pem(),
        &ada.certificate,
    ] {
        server.write("sites/s1.crt", &format!("{}{added}", one.pem()));
        let served = Served::start(&server.server_args()).await;
        for issued in [&direct, &below, &ada] {
            entered(&served, &region, issued).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_site_locks_nobody_out_by_a_ca_that_it_does_not_have() {
    let region = Authority::new();
    let (people, one) = (Authority::issued_by(&region), Authority::new());
    let server = server(&region);
    server.write("ca.pem", &format!("{}{}", region.pem(), people.pem()));
    server.trust_site("s1", &one);
    server.write("sites/s1.crt", &format!("{}{}", one.pem(), people.pem()));
    let served = Served::start(&server.server_args()).await;
    let ada = people.issue(&Subject::of_caller(&Caller::Operator { name: name("ada") }));
    for shown in [vec![], vec![people.pem()], vec![people.pem(), region.pem()]] {
        entered(&served, &region, &with_chain(&ada, &shown))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_ca_between_is_named_in_the_audit_log() {
    let (log, _capture) = Log::capture();
    let region = Authority::new();
    let people = Authority::issued_by(&region);
    let server = server(&region);
    server.trust_site("s1", &Authority::new());
    let served = Served::start(&server.server_args()).await;
    let ada = people.issue(&Subject::of_caller(&Caller::Operator { name: name("ada") }));
    let ada = with_chain(&ada, &[people.pem()]);
    entered(&served, &region, &ada).await.unwrap_err();
    let text = log.text();
    assert!(
        text.contains("must be issued by a CA certificate of --tls-client-ca itself"),
        "{text}"
    );
}

#[tokio::test]
async fn a_long_chain_is_refused_before_it_is_verified() {
    let region = Authority::new();
    let server = server(&region);
    let served = Served::start(&server.server_args()).await;
    let ada = region.issue(&Subject::of_caller(&Caller::Operator { name: name("ada") }));
    let others: Vec<_> = (0..5).map(|_| Authority::new()).collect();
    let others: Vec<_> = others.iter().map(Authority::pem).collect();
    entered(&served, &region, &with_chain(&ada, &others[..4]))
        .await
        .unwrap();
    let why = entered(&served, &region, &with_chain(&ada, &others)).await;
    why.unwrap_err();
}

/// The certificates of a PEM text.
fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes());
    all.collect::<Result<_, _>>().unwrap()
}

/// What a server with these files decides about chains.
fn trusted(server: &Disk) -> ServerTls {
    let metrics = TlsMetrics::registered(&Metrics::default());
    let loaded = ServerTls::load(&server.server_args(), &realm(), &metrics).unwrap();
    let (tls, _reloader) = loaded.unwrap();
    tls
}

#[test]
fn of_ca_certificates_of_one_name_the_first_counts() {
    let (region, site) = (Authority::new(), Authority::new());
    let between = Authority::issued_by(&site);
    let namesake = between.namesake();
    let server = server(&region);
    server.trust_site("s1", &site);
    let tls = trusted(&server);
    let issued = between.issue(&Subject::of_caller(&agent_of("s1")));
    let verified = |shown: &[&str]| tls.verify(&certificates(&with_chain(&issued, shown).certificate));
    verified(&[between.pem()]).unwrap();
    verified(&[between.pem(), namesake.pem()]).unwrap();
    verified(&[namesake.pem(), between.pem()]).unwrap_err();
}

#[test]
fn a_site_has_at_most_eight_authorities() {
    let region = Authority::new();
    let authorities: Vec<_> = (0..9).map(|_| Authority::new()).collect();
    let pems: Vec<_> = authorities.iter().map(Authority::pem).collect();
    let server = server(&region);
    server.trust_site("s1", &authorities[0]);
    let issued = authorities[0].issue(&Subject::of_caller(&agent_of("s1")));
    let enters = |pem: &str| {
        server.write("sites/s1.crt", pem);
        trusted(&server)
            .verify(&certificates(&issued.certificate))
            .is_ok()
    };
    assert!(enters(&pems[..8].concat()));
    assert!(!enters(&pems.concat()));
    // One that is there again counts once.
    assert!(enters(&[&pems[..8], &[pems[0]; 8][..]].concat().concat()));
}

#[test]
fn a_chain_of_32_kib_is_the_longest_that_is_verified() {
    const QUARTER: usize = 8 << 10;
    let region = Authority::new();
    let server = server(&region);
    // With the authority of a site, of an operator's chain only the first certificate is read.
    server.trust_site("s1", &Authority::new());
    let tls = trusted(&server);
    let ada = region.issue(&Subject::of_caller(&Caller::Operator { name: name("ada") }));
    let ada = CertificateDer::from_pem_slice(ada.certificate.as_bytes()).unwrap();
    let verified = |bytes: &[usize]| {
        let others = bytes.iter().map(|bytes| CertificateDer::from(vec![0_u8; *bytes]));
        let chain: Vec<_> = [ada.clone()].into_iter().chain(others).collect();
        tls.verify(&chain).map_err(|error| format!("{error:?}"))
    };
    for chain in [&[4 * QUARTER][..], &[QUARTER; 4], &[4 * QUARTER - 3, 1, 1, 1]] {
        verified(chain).unwrap();
    }
    for chain in [
        &[4 * QUARTER + 1][..],
        &[QUARTER, QUARTER, QUARTER, QUARTER + 1],
        &[1; 5],
    ] {
        let refused = verified(chain).unwrap_err();
        assert!(refused.contains("LongChain"), "{chain:?}: {refused}");
    }
}

#[tokio::test]
async fn a_long_certificate_is_refused_before_it_is_read() {
    let (log, _capture) = Log::capture();
    let region = Authority::new();
    let served = Served::start(&server(&region).server_args()).await;
    let uri = realm().uri(&Caller::Operator { name: name("ada") });
    let issue = |names: usize| {
        let mut uris = vec![uri.as_str()];
        let others: Vec<String> = (0..names)
            .map(|number| format!("https://{number:0>40}.example.org/"))
            .collect();
        uris.extend(others.iter().map(String::as_str));
        region.issue(&Subject::uris(&uris))
    };
    // A short one with several names is read, and refused for these.
    let tls13 = &rustls::version::TLS13;
    for (names, is_read) in [(2, true), (200, false)] {
        let issued = issue(names);
        let refused = raw_client(&served, &region, Some(&issued), tls13).await;
        refused.unwrap_err();
        let text = log.text();
        assert_eq!(text.contains("one of at most 8 KiB is read"), !is_read, "{text}");
    }
}

#[tokio::test]
async fn an_unusable_authority_of_a_site_stops_no_other_site() {
    let region = Authority::new();
    let (one, two) = (Authority::new(), Authority::new());
    let server = server(&region);
    server.trust_site("s2", &two);
    for broken in ["nothing", region.pem()] {
        server.write("sites/s1.crt", broken);
        let served = Served::start(&server.server_args()).await;
        assert_eq!(served.sample(FAULTS).unwrap(), "1");
        agent_entered(&served, &region, &two, "s2").await.unwrap();
        let refused = agent_entered(&served, &region, &one, "s1").await;
        refused.unwrap_err();
        let by_region = agent_entered(&served, &region, &region, "s1").await;
        by_region.unwrap_err();
        // Once the file is usable the site has agents.
        server.trust_site("s1", &one);
        served.until(RELOADED, |reloads| reloads >= 1).await;
        assert_eq!(served.sample(FAULTS).unwrap(), "0");
        agent_entered(&served, &region, &one, "s1").await.unwrap();
    }
}

#[tokio::test]
async fn what_a_site_had_before_stays_in_use() {
    let region = Authority::new();
    let (one, two) = (Authority::new(), Authority::new());
    let server = server(&region);
    server.trust_site("s1", &one);
    server.trust_site("s2", &two);
    let served = Served::start(&server.server_args()).await;
    server.write("sites/s1.crt", "nothing");
    served.until(FAULTS, |faults| faults == 1).await;
    agent_entered(&served, &region, &one, "s1").await.unwrap();
    // The others follow their files meanwhile.
    let new = Authority::new();
    server.trust_site("s2", &new);
    served.until(RELOADED, |reloads| reloads >= 2).await;
    agent_entered(&served, &region, &new, "s2").await.unwrap();
    agent_entered(&served, &region, &two, "s2").await.unwrap_err();
    // Which of two files counts is not said.
    server.trust_site("s1", &one);
    served.until(FAULTS, |faults| faults == 0).await;
    server.write("sites/s1.pem", new.pem());
    served.until(FAULTS, |faults| faults == 1).await;
    agent_entered(&served, &region, &one, "s1").await.unwrap();
    agent_entered(&served, &region, &new, "s1").await.unwrap_err();
    // Without any file it is withdrawn.
    std::fs::remove_file(server.path("sites/s1.pem")).unwrap();
    served.until(FAULTS, |faults| faults == 0).await;
    let before: u64 = served.sample(RELOADED).unwrap().parse().unwrap();
    std::fs::remove_file(server.path("sites/s1.crt")).unwrap();
    served.until(RELOADED, |reloads| reloads > before).await;
    agent_entered(&served, &region, &one, "s1").await.unwrap_err();
}

#[tokio::test]
async fn refused_handshakes_are_audited_with_identity_and_reason() {
    let (log, _capture) = Log::capture();
    let (region, other) = (Authority::new(), Authority::new());
    let server = server(&region);
    let revoked = agent_of("s1");
    server.write("denied", &format!("{}\n", realm().uri(&revoked)));
    let served = Served::start(&server.server_args()).await;
    let (expired, foreign) = (agent_of("s2"), agent_of("s3"));
    for (issued, caller, why) in [
        (
            region.issue(&Subject::of_caller(&revoked)),
            revoked,
            "denied by --tls-deny",
        ),
        (
            region.issue(&Subject::of_caller(&expired).expired()),
            expired,
            "certificate expired",
        ),
        (
            other.issue(&Subject::of_caller(&foreign)),
            foreign,
            "UnknownIssuer",
        ),
    ] {
        let client = raw_client(&served, &region, Some(&issued), &rustls::version::TLS13);
        client.await.unwrap_err();
        let text = log.text();
        let about = format!(" {AUDIT}: denied identity=\"{}\"", realm().uri(&caller));
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(&about)).collect();
        let line = lines.first().unwrap_or_else(|| panic!("{about}: {text}"));
        for part in [
            "call=\"TLS handshake\"",
            "address=127.0.0.1",
            "UNAUTHENTICATED",
            why,
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}
