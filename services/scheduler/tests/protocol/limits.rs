//! A site has so much and no more, and what it has too much of is its own fault.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use placement::Policy;
use proto::inventory::v1 as wire;
use scheduler::{
    convert,
    error::Error,
    ledger::Fence,
    region::SharedSite,
    site::{Limits, SessionId},
};
use tokio::task::JoinSet;

use crate::fixtures::{CALLER, SITE, Stage, cluster, host, observed};

fn limited(limits: Limits) -> Stage {
    let stage = Stage::empty();
    // The region is one, however often it is cloned.
    let _ = stage.region.clone().limited(limits);
    stage
}

async fn report(stage: &Stage, session: &SessionId, hosts: &[&str], clusters: &[&str]) -> Result<(), Error> {
    let changes = wire::HostChanges {
        hosts: hosts.iter().map(|name| host(name)).collect(),
        clusters: clusters.iter().map(|name| observed(name)).collect(),
        ..wire::HostChanges::default()
    };
    let reported = stage
        .region
        .report(SITE, session, convert::changes(SITE, changes));
    reported.await.map(drop)
}

fn limit(refused: Result<(), Error>) -> &'static str {
    match refused {
        Err(Error::SiteFull { site, limit, why: _ }) if site == SITE => limit,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_snapshot_without_end_is_refused_at_its_limit() {
    let stage = limited(Limits {
        hosts: 3,
        ..Limits::default()
    });
    let reporter = stage.open("lease", 1).await.unwrap();
    let session = reporter.session().id.clone();
    report(&stage, &session, &["h1", "h2", "h3"], &[]).await.unwrap();
    report(&stage, &session, &["h1", "h2"], &["one", "two"])
        .await
        .unwrap();
    assert_eq!(limit(report(&stage, &session, &["h4"], &[]).await), "hosts");
    let site = stage.region.site(SITE).unwrap();
    let counts = (site.read().hosts().len(), site.read().clusters().len());
    assert_eq!(counts, (3, 2), "nothing of what was refused is kept");
}

#[tokio::test]
async fn hosts_without_uid_count_while_a_snapshot_lasts() {
    let stage = limited(Limits {
        hosts: 3,
        ..Limits::default()
    });
    let reporter = stage.open("lease", 1).await.unwrap();
    let session = reporter.session().id.clone();
    let mut refused = None;
    for number in 0..10 {
        let mut nameless = host(&format!("h{number}"));
        if let Some(reference) = &mut nameless.r#ref {
            reference.uid.clear();
        }
        let changes = wire::HostChanges {
            hosts: vec![nameless],
            ..wire::HostChanges::default()
        };
        let changes = convert::changes(SITE, changes);
        if let Err(error) = stage.region.report(SITE, &session, changes).await {
            refused = Some((number, error));
            break;
        }
    }
    let (number, error) = refused.unwrap();
    assert_eq!((number, limit(Err(error))), (3, "hosts"));
}

#[tokio::test]
async fn renamed_hosts_fit_in_the_place_of_those_before() {
    let stage = limited(Limits {
        hosts: 3,
        clusters: 2,
        ..Limits::default()
    });
    let reporter = stage.open("lease", 1).await.unwrap();
    let session = reporter.session().id.clone();
    report(&stage, &session, &["h1", "h2", "h3"], &["one"])
        .await
        .unwrap();
    stage.region.complete_snapshot(SITE, &session).await.unwrap();
    drop(reporter);
    // What earlier snapshots named makes room, also if they never ended.
    for round in 0..3 {
        let reporter = stage.open("lease", 1).await.unwrap();
        let session = reporter.session().id.clone();
        let names = [1, 2, 3].map(|number| format!("r{round}-{number}"));
        let names = names.each_ref().map(String::as_str);
        let cluster = format!("c{round}");
        report(&stage, &session, &names, &[&cluster]).await.unwrap();
        if round == 2 {
            stage.region.complete_snapshot(SITE, &session).await.unwrap();
            let site = stage.region.site(SITE).unwrap();
            assert_eq!(site.read().hosts().len(), 3);
            assert!(site.read().require_synced().is_ok());
        }
    }
}

#[tokio::test]
async fn bytes_of_the_inventory_are_limited() {
    let stage = limited(Limits {
        inventory: 96 << 10,
        ..Limits::default()
    });
    let reporter = stage.open("lease", 1).await.unwrap();
    let session = reporter.session().id.clone();
    let mut large = host("h1");
    large.problems = vec!["p".repeat(60 << 10)];
    let changes = |host: &wire::Host| {
        let changes = wire::HostChanges {
            hosts: vec![host.clone()],
            ..wire::HostChanges::default()
        };
        convert::changes(SITE, changes)
    };
    // The same host again takes no more.
    for _ in 0..3 {
        stage
            .region
            .report(SITE, &session, changes(&large))
            .await
            .unwrap();
    }
    if let Some(reference) = &mut large.r#ref {
        reference.name = "h2".to_owned();
    }
    let refused = stage.region.report(SITE, &session, changes(&large)).await;
    assert_eq!(limit(refused.map(drop)), "inventory");
    report(&stage, &session, &["h3"], &[]).await.unwrap();
}

#[tokio::test]
async fn a_new_site_takes_no_memory_of_the_others() {
    let stage = limited(Limits {
        sites: 1,
        ..Limits::default()
    });
    let _reporter = stage.open("lease", 1).await.unwrap();
    let fence = Fence::parse("lease".to_owned(), 1).unwrap();
    let refused = stage.region.open_session("b", &fence, None, CALLER).await;
    match refused {
        Err(Error::SiteFull { site, limit, why: _ }) => assert_eq!((&*site, limit), ("b", "sites")),
        other => panic!("{other:?}"),
    }
    // The one that is there goes on.
    stage.open("lease", 2).await.unwrap();
}

#[tokio::test]
async fn new_clusters_are_refused_at_the_limit_and_old_ones_shrink() {
    let stage = limited(Limits {
        clusters: 4,
        ..Limits::default()
    });
    let _session = stage.sync(&[host("h1"), host("h2"), host("h3")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.apply("two", 1, 1).await.unwrap();
    for _ in 0..3 {
        let refused = stage.apply("three", 1, 1).await;
        assert_eq!(limit(refused.map(drop)), "records");
    }
    stage.apply("one", 2, 2).await.unwrap();
    stage.apply("one", 3, 0).await.unwrap();
}

#[tokio::test]
async fn bytes_of_records_are_limited_and_old_ones_shrink() {
    let stage = limited(Limits {
        records: 32 << 10,
        ..Limits::default()
    });
    let _session = stage.sync(&[host("h1"), host("h2"), host("h3")]).await;
    stage.apply("one", 1, 3).await.unwrap();
    let mut refused = Ok(());
    for number in 0..16 {
        refused = stage.apply(&format!("more-{number}"), 1, 0).await.map(drop);
        if refused.is_err() {
            break;
        }
    }
    assert_eq!(limit(refused), "record-bytes");
    stage.apply("one", 2, 1).await.unwrap();
}

/// Somebody at work in a site, until this is dropped.
struct AtWork {
    end: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl AtWork {
    fn begin(site: &Arc<SharedSite>) -> Self {
        let (locked, is_locked) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let held = Arc::clone(site);
        let thread = thread::spawn(move || {
            let _site = held.lock();
            locked.send(()).unwrap();
            let _ = ended.recv();
        });
        is_locked.recv().unwrap();
        Self {
            end: Some(end),
            thread: Some(thread),
        }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        drop(self.end.take());
        self.thread.take().map(thread::JoinHandle::join).unwrap().unwrap();
    }
}

/// Whether another task runs.
fn others_run() -> bool {
    let (tell, told) = mpsc::channel();
    tokio::spawn(async move { tell.send(()) });
    // Not by the runtime's clock: its only thread may be the one that waits.
    told.recv_timeout(Duration::from_secs(30)).is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn waiting_for_one_site_holds_up_nothing_else() {
    let stage = Stage::empty();
    stage.sync(&[host("h1")]).await;
    let site = stage.region.site(SITE).unwrap();
    let work = AtWork::begin(&site);
    let waits = tokio::spawn(async move { site.read().hosts().len() });
    let others = others_run();
    drop(work);
    assert!(others);
    assert_eq!(waits.await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn callers_of_one_site_use_up_no_threads() {
    // More than a runtime has threads for what blocks.
    const CALLS: usize = 700;
    let stage = Stage::empty();
    stage.sync(&[host("h1")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    let site = stage.region.site(SITE).unwrap();
    let work = AtWork::begin(&site);
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let (region, name) = (stage.region.clone(), cluster("one"));
        calls.spawn(async move {
            if number % 2 == 0 {
                region.placement(SITE, &name, "", None).await.map(drop)
            } else {
                let released = BTreeMap::new();
                let confirmed = region.confirm(SITE, &name, "uid-one", &released, CALLER);
                confirmed.await.map(drop)
            }
        });
    }
    let others = others_run();
    let in_queue = stage.region.committer().reserve();
    let in_queue = tokio::time::timeout(Duration::from_secs(10), in_queue).await;
    drop(work);
    assert!(others, "no thread is left for other tasks");
    assert!(
        in_queue.is_ok(),
        "no place in the ledger's queue is left for other sites"
    );
    let mut ended = 0;
    while let Some(call) = calls.join_next().await {
        let _answered = call.unwrap();
        ended += 1;
    }
    assert_eq!(ended, CALLS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_at_work_holds_up_no_other_sites_policy() {
    let stage = Stage::empty();
    stage.sync(&[host("h1")]).await;
    let fence = Fence {
        lease: "lease".to_owned(),
        transitions: 1,
    };
    let _other = stage
        .region
        .open_session("b", &fence, None, CALLER)
        .await
        .unwrap();
    let other = stage.region.site("b").unwrap();
    let work = AtWork::begin(&stage.region.site(SITE).unwrap());
    let policy = Policy {
        hierarchy: vec!["room".parse().unwrap()],
        ..Policy::default()
    };
    let region = stage.region.clone();
    let policies = [("*".to_owned(), policy.clone())].into();
    let following = tokio::spawn(async move { region.set_policies(policies).await });
    let begun = Instant::now();
    while *other.read().model().policy() != policy && begun.elapsed() < Duration::from_secs(20) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let followed = *other.read().model().policy() == policy;
    drop(work);
    assert!(followed, "it waits for a site that is at work");
    following.await.unwrap().unwrap();
}
