//! An etcd that speaks TLS only, and wants a certificate.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use sandbox::{
    authority::{Authority, Caller, Identity, Validity},
    process::Group,
};

use crate::region::{PATIENCE, Region, assert_kept};

/// How long the first certificate is good for.
const SHORT: Duration = Duration::from_secs(12);
/// A certificate's validity has whole seconds.
const SECOND: Duration = Duration::from_secs(1);

struct Secured {
    authority: Authority,
    region: Region,
}

impl Secured {
    async fn start() -> Self {
        let group = Group::new("schedulers").unwrap();
        let authority = Authority::new(&group.directory().join("pki"), "north").unwrap();
        let server = authority
            .issue_server(&Caller::Operator("etcd"), &["localhost"])
            .unwrap();
        let region = Region::with_tls(group, &server).await;
        Self { authority, region }
    }

    fn add(&mut self, authority: &Path, identity: Option<&Identity>) {
        let endpoints = self.region.etcd.endpoints();
        let mut options = vec!["--etcd-cacert", authority.to_str().unwrap()];
        if let Some(identity) = identity {
            let paths = [&identity.certificate, &identity.key].map(|path| path.to_str().unwrap());
            options.extend(["--etcd-cert", paths[0], "--etcd-key", paths[1]]);
        }
        self.region.add_also_with(&endpoints, &options);
    }
}

#[tokio::test]
async fn renewed_certificates_are_used_before_the_old_expire() {
    let mut secured = Secured::start().await;
    let issued = Instant::now();
    let validity = Validity::For(SHORT);
    let identity = secured
        .authority
        .issue_valid(&Caller::Scheduler, validity)
        .unwrap();
    let authority = secured.authority.certificate().to_owned();
    secured.add(&authority, Some(&identity));
    let leader = secured.region.leader(None).await;
    let _reports = secured.region.reported(leader).await;
    let client = secured.region.schedulers[leader].client.clone();
    let first = client.apply("first", 3).await.unwrap();

    secured.authority.issue(&Caller::Scheduler).unwrap();
    tokio::time::sleep((SHORT + SECOND).saturating_sub(issued.elapsed())).await;
    let member = &mut secured.region.etcd.members()[0];
    member.process.kill9().await.unwrap();
    member.process.restart().await.unwrap();
    member.ready().await.unwrap();

    let second = client.apply("second", 3).await.unwrap();
    let promised = [("first".to_owned(), first), ("second".to_owned(), second)].into();
    assert_kept(&promised, &client.list().await.unwrap());
    let log = secured.region.schedulers[leader].process.log_tail(10_000);
    assert_eq!(log.matches("a term begins").count(), 1, "the term goes on: {log}");
    assert!(log.contains("with new certificates"), "{log}");
}

#[tokio::test]
async fn untrusted_peers_get_an_error_that_says_so() {
    let mut secured = Secured::start().await;
    let strangers = secured.region.directory().join("strangers");
    let stranger = Authority::new(&strangers, "south").unwrap();
    let (ours, theirs) = (
        secured.authority.issue(&Caller::Scheduler).unwrap(),
        stranger.issue(&Caller::Scheduler).unwrap(),
    );
    let cases = [
        (&theirs.authority, Some(&ours), "UnknownIssuer"),
        (&ours.authority, Some(&theirs), "does not accept the certificate"),
        (&ours.authority, None, "or misses one"),
    ];
    for (index, (authority, identity, why)) in cases.into_iter().enumerate() {
        secured.add(authority, identity);
        let begun = Instant::now();
        loop {
            let status = secured.region.schedulers[index].client.list().await.unwrap_err();
            if status.message().contains(why) {
                println!("{}", status.message());
                assert!(status.message().contains("https://127.0.0.1:"), "{status:?}");
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{why}: {status:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test]
async fn certificates_are_not_given_for_nothing() {
    let mut secured = Secured::start().await;
    let identity = secured.authority.issue(&Caller::Scheduler).unwrap();
    let endpoints = secured.region.etcd.endpoints();
    let authority = identity.authority.to_str().unwrap();
    let plain = endpoints[0].replace("https://", "http://");
    for (endpoint, options, why) in [
        (
            &plain,
            vec!["--etcd-cacert", authority],
            "must begin with https://",
        ),
        (&endpoints[0], vec![], "--etcd-cacert is needed for https://"),
    ] {
        secured
            .region
            .add_also_with(std::slice::from_ref(endpoint), &options);
        let scheduler = secured.region.schedulers.last_mut().unwrap();
        let ended = tokio::time::timeout(PATIENCE, scheduler.process.ended()).await;
        assert!(!ended.unwrap().unwrap().unwrap().success());
        let log = scheduler.process.log_tail(100);
        assert!(log.contains(why), "{log}");
    }
}
