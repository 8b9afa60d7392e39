//! The reconciliation table (`docs/reconciliation.md`): what the ledger says of a host, times what the host shows.
//! One test per cell, named by it.

mod machines;
mod own;

use std::{collections::BTreeSet, sync::Arc};

use placement::MemberState::{Bound, Claimed, Releasing};
use scheduler::{error::Error, record::Record, site::MISSING_UID};

use crate::fixtures::{
    Stage, again, half_labelled, host, labelled, members, observed, released, with_status,
};

/// What the ledger says of `h1`, from the point of view of the cluster `one`.
const LEDGER: [&str; 5] = ["free", "claimed", "bound", "releasing", "other_cluster"];
/// What `h1` shows.
const SITE_SHOWS: [&str; 5] = ["unlabelled", "ours", "foreign", "partial_labels", "uid_gone"];

#[test]
fn the_document_and_the_tests_have_the_same_cells() {
    let expected: BTreeSet<String> = LEDGER
        .iter()
        .flat_map(|row| SITE_SHOWS.iter().map(move |column| format!("{row}_and_{column}")))
        .collect();
    let mut lines = [include_str!("mod.rs"), include_str!("own.rs")]
        .into_iter()
        .flat_map(str::lines);
    let mut tests = BTreeSet::new();
    while let Some(line) = lines.next() {
        if line == "#[tokio::test]" {
            let name = lines.next().and_then(|line| line.strip_prefix("async fn "));
            let name = name.and_then(|line| line.strip_suffix("() {")).unwrap();
            tests.extend(name.contains("_and_").then(|| name.to_owned()));
        }
    }
    let document = include_str!("../../../../../docs/reconciliation.md");
    let table = document
        .lines()
        .skip_while(|line| !line.starts_with("| Ledger | Site |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let cells = table.filter_map(|line| {
        let (ledger, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
        let (site, _) = rest.split_once(" | ")?;
        Some(format!("{ledger}_and_{site}").replace(' ', "_"))
    });
    let cells: Vec<String> = cells.collect();
    assert_eq!(cells.len(), expected.len(), "a cell is there twice: {cells:?}");
    assert_eq!(tests, expected, "tests");
    assert_eq!(cells.into_iter().collect::<BTreeSet<_>>(), expected, "document");
}

fn names(record: &Record) -> Vec<String> {
    members(record).into_iter().map(|(name, _)| name).collect()
}

/// `h1` and a cluster `one` that has claimed it.
async fn claimed() -> (Stage, scheduler::site::SessionId, Arc<Record>) {
    let stage = Stage::empty();
    let session = stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    let record = stage.apply("one", 1, 1).await.unwrap();
    assert_eq!(members(&record), [("h1".to_owned(), Claimed)]);
    (stage, session, record)
}

/// The same, bound.
async fn bound() -> (Stage, scheduler::site::SessionId, Arc<Record>) {
    let (stage, session, _) = claimed().await;
    stage.report(&session, &[labelled("h1", "one")]).await;
    let record = stage.record("one").await.unwrap();
    assert_eq!(members(&record), [("h1".to_owned(), Bound)]);
    (stage, session, record)
}

/// The same, releasing.
async fn releasing() -> (Stage, scheduler::site::SessionId, Arc<Record>) {
    let (stage, session, _) = bound().await;
    let record = stage.release("one").await.unwrap();
    assert_eq!(members(&record), [("h1".to_owned(), Releasing)]);
    (stage, session, record)
}

/// `h1` is claimed by `two`, and `one` wants a host.
async fn other_cluster() -> (Stage, scheduler::site::SessionId) {
    let stage = Stage::empty();
    let session = stage
        .sync_with(&[host("h1")], &[observed("one"), observed("two")], None)
        .await;
    stage.apply("two", 1, 1).await.unwrap();
    let one = stage.apply("one", 1, 1).await.unwrap();
    assert_eq!(members(&one), []);
    (stage, session)
}

#[tokio::test]
async fn free_and_unlabelled() {
    let stage = Stage::empty();
    stage.sync_with(&[host("h1")], &[observed("one")], None).await;

    assert_eq!(stage.why_not("h1"), [""; 0]);
    let record = stage.apply("one", 1, 1).await.unwrap();
    assert_eq!(members(&record), [("h1".to_owned(), Claimed)]);
    assert_eq!(stage.conflicts("one").await, [""; 0]);
}

#[tokio::test]
async fn free_and_ours() {
    let stage = Stage::empty();
    let clusters = [observed("one"), observed("two")];
    stage.sync_with(&[labelled("h1", "one")], &clusters, None).await;

    assert_eq!(stage.why_not("h1"), ["labelled"]);
    let two = stage.apply("two", 1, 1).await.unwrap();
    assert_eq!(members(&two), [], "it is not free");
    let one = stage.apply("one", 1, 1).await.unwrap();
    assert_eq!(members(&one), [("h1".to_owned(), Bound)], "it is adopted");
    assert_eq!(stage.conflicts("one").await, [""; 0]);
}

#[tokio::test]
async fn free_and_foreign() {
    let stage = Stage::empty();
    let orphan = labelled("h1", "gone");
    let session = stage
        .sync_with(std::slice::from_ref(&orphan), &[observed("one")], None)
        .await;
    assert_eq!(stage.why_not("h1"), ["orphaned"]);
    let one = stage.apply("one", 1, 1).await.unwrap();
    assert_eq!(members(&one), [], "it is never free by itself");

    let releasing = stage.release_orphan(&orphan).await.unwrap().unwrap();

    assert_eq!(members(&releasing), [("h1".to_owned(), Releasing)]);
    assert_eq!(
        releasing.uid, MISSING_UID,
        "the watch shows it under a uid that the agent can confirm"
    );
    stage
        .report(&session, &[released("h1", releasing.revision)])
        .await;
    assert_eq!(stage.why_not("h1"), ["held"], "it is not confirmed");
    assert!(stage.confirm(&releasing).await.is_none());
    stage.retry().await;
    assert_eq!(names(&stage.record("one").await.unwrap()), ["h1"]);
}

#[tokio::test]
async fn free_and_partial_labels() {
    let stage = Stage::empty();
    let session = stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    stage.apply("one", 1, 0).await.unwrap();

    stage.report(&session, &[half_labelled("h1", "one")]).await;

    assert_eq!(stage.why_not("h1"), ["labels-partial"]);
    assert_eq!(stage.conflicts("one").await, ["labels-partial"]);
    let one = stage.apply("one", 2, 1).await.unwrap();
    assert_eq!(members(&one), [], "it is neither free nor a member");
    let refused = stage.release_orphan(&host("h1")).await.unwrap_err();
    assert!(matches!(refused, Error::NotOrphaned { .. }), "{refused}");
}

#[tokio::test]
async fn free_and_uid_gone() {
    let stage = Stage::empty();
    let session = stage.sync_with(&[host("h1")], &[observed("one")], None).await;

    stage.report_gone(&session, &["h1"]).await;

    assert_eq!(stage.why_not("h1"), ["not-found"]);
    assert!(stage.apply("one", 1, 1).await.unwrap().refusal.is_some());
    stage.report(&session, &[again(host("h1"))]).await;
    stage.retry().await;
    let one = stage.record("one").await.unwrap();
    assert_eq!(
        members(&one),
        [("h1".to_owned(), Claimed)],
        "a new host is a host"
    );
}

#[tokio::test]
async fn other_cluster_and_unlabelled() {
    let (stage, _) = other_cluster().await;

    assert_eq!(stage.why_not("h1"), ["held"]);
    assert!(stage.record("one").await.unwrap().refusal.is_some());
    assert_eq!(stage.conflicts("one").await, [""; 0]);
    assert_eq!(stage.conflicts("two").await, [""; 0]);
}

#[tokio::test]
async fn other_cluster_and_ours() {
    let (stage, session) = other_cluster().await;

    stage.report(&session, &[labelled("h1", "one")]).await;
    stage.apply("one", 2, 1).await.unwrap();

    assert_eq!(
        names(&stage.record("one").await.unwrap()),
        [""; 0],
        "labels take nothing"
    );
    assert_eq!(names(&stage.record("two").await.unwrap()), ["h1"]);
    assert_eq!(stage.conflicts("one").await, ["held-by-another"]);
    assert_eq!(stage.conflicts("two").await, ["labels-of-another"]);
}

#[tokio::test]
async fn other_cluster_and_foreign() {
    let (stage, session) = other_cluster().await;

    stage.report(&session, &[labelled("h1", "two")]).await;

    let two = stage.record("two").await.unwrap();
    assert_eq!(members(&two), [("h1".to_owned(), Bound)]);
    assert_eq!(stage.conflicts("one").await, [""; 0]);
    assert_eq!(stage.conflicts("two").await, [""; 0]);
}

#[tokio::test]
async fn other_cluster_and_partial_labels() {
    let (stage, session) = other_cluster().await;

    stage.report(&session, &[half_labelled("h1", "one")]).await;

    assert_eq!(names(&stage.record("two").await.unwrap()), ["h1"]);
    assert_eq!(stage.conflicts("one").await, ["held-by-another"]);
    assert_eq!(stage.conflicts("two").await, ["labels-partial"]);
}

#[tokio::test]
async fn other_cluster_and_uid_gone() {
    let (stage, session) = other_cluster().await;

    stage.report(&session, &[again(host("h1"))]).await;
    let one = stage.apply("one", 2, 1).await.unwrap();

    assert_eq!(
        members(&one),
        [],
        "load balancers of the other cluster route to its machine"
    );
    assert_eq!(stage.why_not("h1"), ["former-member"]);
    let two = stage.record("two").await.unwrap();
    assert!(two.members.values().all(|member| member.failed_since.is_some()));
    assert_eq!(stage.conflicts("two").await, ["host-missing"]);

    let two = stage.release("two").await.unwrap();
    assert_eq!(stage.why_not("h1"), ["former-member"], "it is not confirmed");
    assert!(stage.confirm(&two).await.is_none());
    assert_eq!(stage.why_not("h1"), [""; 0]);
    stage.retry().await;
    let one = stage.record("one").await.unwrap();
    assert_eq!(members(&one), [("h1".to_owned(), Claimed)]);
}

#[tokio::test]
async fn only_an_orphan_can_be_released_by_an_operator() {
    let (stage, session, record) = bound().await;
    stage.report(&session, &[host("h2"), labelled("h3", "two")]).await;
    let mut clusters = vec![with_status(&record, 1)];
    clusters.push(observed("two"));
    let cases = [
        (labelled("h1", "one"), "tenant/one holds it, which exists"),
        (host("h2"), "it has no label of a cluster"),
        (labelled("h3", "two"), "its labels name tenant/two, which exists"),
    ];
    stage
        .sync_with(
            &[labelled("h1", "one"), host("h2"), labelled("h3", "two")],
            &clusters,
            None,
        )
        .await;
    for (host, why) in cases {
        let refused = stage.release_orphan(&host).await.unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
    let unknown = stage.release_orphan(&again(host("h2"))).await.unwrap_err();
    assert!(matches!(unknown, Error::NotFound { what: _ }), "{unknown}");
}

#[tokio::test]
async fn hosts_of_a_deleted_sipcluster_are_reported_as_orphans() {
    let (stage, _, _) = bound().await;

    let session = stage.sync_with(&[labelled("h1", "one")], &[], None).await;
    assert_eq!(stage.conflicts("one").await, ["cluster-missing"]);
    let releasing = stage
        .release_orphan(&labelled("h1", "one"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(members(&releasing), [("h1".to_owned(), Releasing)]);

    stage
        .report(&session, &[released("h1", releasing.revision)])
        .await;
    assert!(stage.confirm(&releasing).await.is_none());
    assert_eq!(stage.why_not("h1"), [""; 0]);
}

#[tokio::test]
async fn a_remade_host_of_a_removed_sipcluster_can_be_released() {
    let (stage, _, _) = bound().await;
    let remade = again(host("h1"));

    let clusters = [observed("two")];
    stage
        .sync_with(std::slice::from_ref(&remade), &clusters, None)
        .await;
    assert_eq!(stage.why_not("h1"), ["former-member"]);
    assert!(stage.apply("two", 1, 1).await.unwrap().refusal.is_some());

    let releasing = stage.release_orphan(&remade).await.unwrap().unwrap();
    assert_eq!(members(&releasing), [("h1".to_owned(), Releasing)]);
    assert_eq!(stage.why_not("h1"), ["former-member"], "it is not confirmed");
    assert!(stage.confirm(&releasing).await.is_none());
    stage.retry().await;
    let two = stage.record("two").await.unwrap();
    assert_eq!(members(&two), [("h1".to_owned(), Claimed)]);
}
