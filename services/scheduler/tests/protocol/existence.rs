//! Calls for `SIPCluster`s that do not exist, or not yet.

use std::time::{Duration, SystemTime};

use placement::MemberState::{Bound, Claimed, Releasing};
use proto::inventory::v1 as wire;
use scheduler::{
    error::Error,
    site::{Apply, SessionId, UNOBSERVED_LIMIT},
};

use crate::fixtures::{
    CALLER, SITE, Stage, cluster, host, labelled, members, observed, released, spec, used,
};

/// Longer than a `SIPCluster` may be missing.
const LONG: Duration = Duration::from_mins(11);

/// A site whose cluster was deleted, released its host, and is gone. The host shows the mark of its release.
async fn gone() -> (Stage, SessionId) {
    let stage = Stage::empty();
    let session = stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    stage.apply("one", 1, 1).await.unwrap();
    let releasing = stage.release("one").await.unwrap();
    stage
        .report(&session, &[released("h1", releasing.revision)])
        .await;
    assert!(stage.confirm(&releasing).await.is_none());
    stage.report_cluster_gone(&session, "one", "uid").await;
    (stage, session)
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn is_gone<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::ClusterGone { cluster: _, uid: _ }))
}

#[tokio::test]
async fn a_late_declaration_of_a_deleted_sipcluster_does_nothing() {
    let (stage, _) = gone().await;

    let late = stage.apply("one", 1, 1).await;

    assert!(is_gone(&late), "{late:?}");
    assert!(stage.record("one").await.is_none());
    assert_eq!(stage.why_not("h1"), [""; 0], "the host stays free");
}

#[tokio::test]
async fn a_late_declaration_is_refused_however_its_sipcluster_went() {
    // A snapshot does not have it any more.
    let stage = Stage::empty();
    stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    stage.sync_with(&[host("h1")], &[], None).await;
    let late = stage.apply("one", 1, 1).await;
    assert!(is_gone(&late), "{late:?}");

    // Another one has its name.
    let stage = Stage::empty();
    let session = stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    stage.report_cluster(&session, "one", "second").await;
    let late = stage.apply("one", 1, 1).await;
    assert!(is_gone(&late), "{late:?}");
    stage.apply_as("one", "second", 1, 1).await.unwrap();

    // Another one has its name, and nobody remembers it.
    let stage = Stage::empty();
    let made_later = wire::ObservedCluster {
        created: Some(at(9).into()),
        ..observed("one")
    };
    stage.sync_with(&[host("h1")], &[made_later], None).await;
    let early = Apply {
        cluster: cluster("one"),
        uid: "first".to_owned(),
        generation: 1,
        created: Some(at(8)),
        spec: scheduler::convert::parse_spec(spec(1), "spec").unwrap(),
    };
    let late = stage.region.apply(SITE, early, CALLER).await;
    assert!(
        matches!(late, Err(Error::ClusterGone { cluster: _, uid: _ })),
        "{late:?}"
    );

    // It was made and deleted before it was reported.
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    stage.report_cluster_gone(&session, "one", "uid").await;
    let late = stage.apply("one", 1, 1).await;
    assert!(is_gone(&late), "{late:?}");
}

#[tokio::test]
async fn a_late_release_leaves_a_host_labelled_since() {
    let (stage, session) = gone().await;
    stage.report(&session, &[labelled("h1", "one")]).await;

    assert!(stage.release("one").await.is_none());

    assert_eq!(stage.why_not("h1"), ["orphaned"]);
}

#[tokio::test]
async fn a_sipcluster_may_be_declared_before_it_is_reported() {
    let (stage, session) = gone().await;

    let record = stage.apply_as("one", "second", 1, 1).await.unwrap();
    assert_eq!(members(&record), [("h1".to_owned(), Claimed)]);

    stage.report_cluster(&session, "one", "second").await;
    stage.pass(LONG);
    stage.forget().await;
    assert_eq!(stage.record("one").await.unwrap(), record);
}

#[tokio::test]
async fn a_sipcluster_missing_in_a_late_snapshot_is_declared_later() {
    let stage = Stage::empty();
    stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    // Another agent takes over, whose API server is behind.
    let session = stage.sync(&[host("h1")]).await;
    assert!(is_gone(&stage.apply("one", 1, 1).await));

    stage.report_cluster(&session, "one", "uid").await;

    stage.apply("one", 1, 1).await.unwrap();
}

/// Somebody removes the finalizer of a `SIPCluster` while its host is being released. A claim of Cluster API may be on its way still.
#[tokio::test]
async fn a_release_of_no_sipcluster_waits_for_its_confirmation() {
    for shrinks in [false, true] {
        let stage = Stage::empty();
        let clusters = [observed("one"), observed("two")];
        let session = stage.sync_with(&[host("h1")], &clusters, None).await;
        stage.apply("one", 1, 1).await.unwrap();
        let releasing = if shrinks {
            stage.apply("one", 2, 0).await.unwrap()
        } else {
            stage.release("one").await.unwrap()
        };
        stage.report_cluster_gone(&session, "one", "uid").await;
        let marked = released("h1", releasing.revision);

        stage.report(&session, std::slice::from_ref(&marked)).await;
        assert_eq!(stage.why_not("h1"), ["held"]);
        let stage = stage.restart();
        stage.sync_with(&[marked], &clusters[1..], None).await;
        assert_eq!(stage.why_not("h1"), ["held"], "the ledger is not lost");
        assert_eq!(members(&stage.apply("two", 1, 1).await.unwrap()), []);

        stage.confirm(&releasing).await;
        assert_eq!(stage.why_not("h1"), [""; 0]);
    }
}

#[tokio::test]
async fn a_declaration_after_a_restart_is_undone_if_never_reported() {
    let (stage, _) = gone().await;
    let mark = stage.ledger.load().unwrap().commit.number();
    let stage = stage.restart();
    let session = stage.sync(&[released("h1", mark)]).await;
    let late = stage.apply("one", 1, 1).await.unwrap();
    assert_eq!(
        members(&late),
        [("h1".to_owned(), Claimed)],
        "nobody knows better yet"
    );

    stage.pass(UNOBSERVED_LIMIT / 2);
    stage.forget().await;
    assert_eq!(stage.record("one").await.unwrap(), late);
    stage.pass(UNOBSERVED_LIMIT / 2);
    stage.forget().await;

    let releasing = stage.record("one").await.unwrap();
    assert_eq!(members(&releasing), [("h1".to_owned(), Releasing)]);
    assert_eq!(stage.why_not("h1"), ["held"], "time alone frees nothing");
    stage
        .report(&session, &[released("h1", releasing.revision)])
        .await;
    assert!(stage.confirm(&releasing).await.is_none());
    assert_eq!(stage.why_not("h1"), [""; 0]);
}

#[tokio::test]
async fn a_declaration_without_hosts_is_forgotten_after_a_restart() {
    let stage = Stage::empty().restart();
    stage.sync(&[]).await;
    assert!(stage.apply("one", 1, 1).await.unwrap().refusal.is_some());

    stage.pass(LONG);
    stage.forget().await;

    assert!(stage.record("one").await.is_none());
}

#[tokio::test]
async fn the_scheduler_looks_by_itself_when_it_is_time() {
    let stage = Stage::empty();
    stage.sync(&[]).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.pass(UNOBSERVED_LIMIT.mul_f64(0.999));
    let retries = tokio::spawn(stage.region.clone().run_retries());
    // What has changed is looked at, and it is too early.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    stage.pass(UNOBSERVED_LIMIT);

    let mut durable = stage.region.committer().watch();
    let forgotten = async {
        while stage.record("one").await.is_some() {
            durable.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(10), forgotten)
        .await
        .unwrap();
    retries.abort();
}

#[tokio::test]
async fn a_possibly_used_host_waits_for_an_operator() {
    let cases = [
        (labelled("h1", "one"), Bound),
        (used(host("h1")), Bound),
        (host("h1"), Bound),
    ];
    for (shown, state) in cases {
        let stage = Stage::empty();
        let session = stage.sync_with(&[host("h1")], &[observed("one")], None).await;
        stage.apply("one", 1, 1).await.unwrap();
        stage.report(&session, &[labelled("h1", "one")]).await;
        stage.report(&session, &[shown]).await;
        stage.report_cluster_gone(&session, "one", "uid").await;

        stage.pass(LONG);
        stage.forget().await;

        let record = stage.record("one").await.unwrap();
        assert_eq!(members(&record), [("h1".to_owned(), state)]);
        assert_eq!(record.conflicts[0].kind, "cluster-missing");
    }
}

#[tokio::test]
async fn time_in_which_the_site_does_not_report_does_not_count() {
    let stage = Stage::empty();
    stage.sync(&[host("h1")]).await;
    let claimed = stage.apply("one", 1, 1).await.unwrap();
    stage.lose_reporter();
    stage.pass(LONG);
    stage.forget().await;
    assert_eq!(members(&claimed), members(&stage.record("one").await.unwrap()));

    // Nor does what was before the snapshot that does not have it.
    stage.sync(&[host("h1")]).await;
    stage.forget().await;
    assert_eq!(members(&claimed), members(&stage.record("one").await.unwrap()));
    stage.pass(LONG);
    stage.forget().await;
    assert_eq!(
        members(&stage.record("one").await.unwrap()),
        [("h1".to_owned(), Releasing)]
    );
}

#[tokio::test]
async fn a_declaration_is_a_sign_of_life() {
    let stage = Stage::empty();
    stage.sync(&[host("h1")]).await;
    let record = stage.apply("one", 1, 1).await.unwrap();
    for _ in 0..3 {
        stage.pass(UNOBSERVED_LIMIT * 2 / 3);
        stage.apply("one", 1, 1).await.unwrap();
        stage.forget().await;
    }
    assert_eq!(stage.record("one").await.unwrap(), record);
}

#[tokio::test]
async fn nothing_more_is_claimed_for_a_sipcluster_that_is_gone() {
    let stage = Stage::empty();
    let session = stage.sync_with(&[], &[observed("one")], None).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report_cluster_gone(&session, "one", "uid").await;

    stage.report(&session, &[host("h1")]).await;
    stage.retry().await;

    assert_eq!(members(&stage.record("one").await.unwrap()), []);
}

#[tokio::test]
async fn a_recreated_sipcluster_is_placed_before_reports_catch_up() {
    let stage = Stage::empty();
    let before = wire::ObservedCluster {
        created: Some(at(8).into()),
        ..observed("one")
    };
    let session = stage.sync_with(&[], &[before], None).await;
    let again = Apply {
        cluster: cluster("one"),
        uid: "uid-again".to_owned(),
        generation: 1,
        created: Some(at(9)),
        spec: scheduler::convert::parse_spec(spec(1), "spec").unwrap(),
    };
    let waits = stage.region.apply(SITE, again, CALLER).await.unwrap();
    assert!(waits.record.unwrap().refusal.is_some(), "there is no host");

    stage.report(&session, &[host("h1")]).await;
    stage.retry().await;
    let placed = stage.record("one").await.unwrap();
    assert_eq!(members(&placed), [("h1".to_owned(), Claimed)]);
}
