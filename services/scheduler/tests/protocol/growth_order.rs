//! Refused clusters get hosts by age, however often younger ones are declared again.

use std::{sync::Arc, time::Duration};

use scheduler::{
    convert,
    record::Record,
    site::{Apply, Author, SessionId},
};

use crate::fixtures::{CALLER, SITE, Stage, cluster, host, members, spec};

/// Declares a cluster that was made so many seconds after the first one.
async fn declare(stage: &Stage, name: &str, made: u64, workers: u32) -> Arc<Record> {
    let apply = Apply {
        cluster: cluster(name),
        uid: "uid".to_owned(),
        generation: 1,
        created: Some(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(made)),
        spec: convert::parse_spec(spec(workers), "spec").unwrap(),
    };
    stage
        .region
        .apply(SITE, apply, CALLER)
        .await
        .unwrap()
        .record
        .unwrap()
}

fn hosts(record: &Record) -> Vec<String> {
    members(record).into_iter().map(|(name, _)| name).collect()
}

async fn held(stage: &Stage, name: &str) -> Vec<String> {
    hosts(&stage.record(name).await.unwrap())
}

fn kind(record: &Record) -> Option<&str> {
    record.refusal.as_ref().map(|refusal| &*refusal.kind)
}

/// A site with one host, which the oldest of three clusters has.
async fn one_host_for_three() -> (Stage, SessionId) {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    declare(&stage, "first", 0, 1).await;
    declare(&stage, "old", 1, 1).await;
    declare(&stage, "young", 2, 1).await;
    (stage, session)
}

#[tokio::test]
async fn a_younger_cluster_takes_no_host_that_an_older_one_waits_for() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    declare(&stage, "first", 0, 1).await;
    declare(&stage, "young", 2, 1).await;
    declare(&stage, "old", 1, 1).await;
    stage.retry().await;
    stage.report(&session, &[host("h2")]).await;

    for _ in 0..3 {
        let young = declare(&stage, "young", 2, 1).await;
        assert_eq!(hosts(&young), [""; 0]);
        assert_eq!(kind(&young), Some("older-first"));
    }
    stage.retry().await;
    assert_eq!(held(&stage, "old").await, ["h2"]);
    let young = stage.record("young").await.unwrap();
    assert_eq!((hosts(&young).len(), kind(&young)), (0, Some("no-fit")));
    stage.report(&session, &[host("h3")]).await;
    stage.retry().await;
    assert_eq!(held(&stage, "young").await, ["h3"]);
}

#[tokio::test]
async fn a_cluster_that_was_never_refused_is_decided_at_once() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    declare(&stage, "old", 1, 3).await;
    stage.report(&session, &[host("h2")]).await;
    let new = declare(&stage, "new", 2, 1).await;
    assert_eq!((hosts(&new).len(), kind(&new)), (1, None));
}

#[tokio::test]
async fn a_cluster_does_not_wait_for_an_older_one_that_gets_nothing() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    declare(&stage, "old", 1, 5).await;
    declare(&stage, "older", 0, 9).await;
    stage.report(&session, &[host("h2")]).await;
    let young = declare(&stage, "young", 2, 1).await;
    assert_eq!((hosts(&young).len(), kind(&young)), (1, None));
}

#[tokio::test]
async fn shrinking_waits_for_nobody() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1"), host("h2")]).await;
    declare(&stage, "young", 2, 2).await;
    declare(&stage, "old", 1, 1).await;
    stage.report(&session, &[host("h3")]).await;
    let mut young = declare(&stage, "young", 2, 1).await;
    let releasing = |record: &Record| {
        let states = members(record).into_iter();
        states
            .filter(|(_, state)| *state == placement::MemberState::Releasing)
            .count()
    };
    assert_eq!(releasing(&young), 1);
    young = declare(&stage, "young", 2, 1).await;
    assert_eq!(kind(&young), None);
}

#[tokio::test]
async fn an_order_that_is_half_done_keeps_its_order() {
    let (stage, session) = one_host_for_three().await;
    stage.report(&session, &[host("h1")]).await;
    let site = stage.region.site(SITE).unwrap();
    let order = site.lock().waiting(stage.now());
    assert_eq!(order, [cluster("old"), cluster("young")]);
    let decide = async |name: &str| {
        let permit = stage.region.committer().reserve().await.unwrap();
        let author = Author {
            caller: "scheduler",
            action: "retry",
            now: stage.now(),
        };
        site.lock().retry(&cluster(name), &author, permit);
    };
    decide("old").await;
    stage.report(&session, &[host("h2")]).await;
    decide("young").await;
    assert_eq!(held(&stage, "young").await, [""; 0]);
    let order = site.lock().waiting(stage.now());
    assert_eq!(order, [cluster("old"), cluster("young")]);
    stage.retry().await;
    assert_eq!(held(&stage, "old").await, ["h2"]);
}

#[tokio::test]
async fn a_refusal_that_cannot_have_changed_is_not_decided_again() {
    let (stage, session) = one_host_for_three().await;
    stage.retry().await;
    let site = stage.region.site(SITE).unwrap();
    assert!(site.lock().waiting(stage.now()).is_empty());
    // What holds hosts takes none from anybody.
    declare(&stage, "another", 3, 0).await;
    assert!(site.lock().waiting(stage.now()).is_empty());
    let first = stage.release("first").await.unwrap();
    assert_eq!(site.lock().waiting(stage.now()).len(), 2);
    stage.confirm(&first).await;
    stage.report(&session, &[host("h3")]).await;
    assert_eq!(site.lock().waiting(stage.now()).len(), 2);
}

#[tokio::test]
async fn freed_hosts_go_to_the_oldest_while_a_younger_one_insists() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    declare(&stage, "first", 0, 1).await;
    declare(&stage, "young", 2, 1).await;
    declare(&stage, "old", 1, 1).await;
    let retries = tokio::spawn(stage.region.clone().run_retries());
    stage.report(&session, &[host("h2")]).await;
    let insists = async {
        loop {
            let young = declare(&stage, "young", 2, 1).await;
            assert_eq!(hosts(&young), [""; 0]);
            if !held(&stage, "old").await.is_empty() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), insists)
        .await
        .unwrap();
    retries.abort();
}
