//! From nothing to bound.

use placement::MemberState::{Bound, Claimed};
use scheduler::error::Error;

use crate::fixtures::{SITE, Stage, again, cluster, host, labelled, members};

#[tokio::test]
async fn answers_contain_only_durable_claims() {
    let stage = Stage::empty();
    stage.sync(&[host("h1"), host("h2")]).await;

    let record = stage.apply("one", 1, 2).await.unwrap();

    assert_eq!(
        members(&record),
        [("h1".to_owned(), Claimed), ("h2".to_owned(), Claimed)]
    );
    let on_disk = stage.ledger.load().unwrap();
    assert_eq!(on_disk.records.values().collect::<Vec<_>>(), [&record]);
    assert_eq!(on_disk.commit.number(), record.revision);
}

#[tokio::test]
async fn declaring_the_same_shape_again_costs_no_commit() {
    let stage = Stage::empty();
    stage.sync(&[host("h1"), host("h2")]).await;

    let first = stage.apply("one", 1, 1).await.unwrap();
    let second = stage.apply("one", 1, 1).await.unwrap();

    assert_eq!(first, second);
    assert_eq!(stage.ledger.load().unwrap().commit.number(), first.revision);
}

#[tokio::test]
async fn two_clusters_never_hold_the_same_host() {
    let stage = Stage::empty();
    stage.sync(&[host("h1"), host("h2"), host("h3")]).await;

    let (one, two) = tokio::join!(stage.apply("one", 1, 2), stage.apply("two", 1, 2));

    let (one, two) = (one.unwrap(), two.unwrap());
    let held: Vec<_> = one.members.keys().chain(two.members.keys()).collect();
    assert_eq!(held.len(), 2, "{held:?}");
    assert_eq!(
        [&one, &two]
            .iter()
            .filter(|record| record.refusal.is_some())
            .count(),
        1
    );
}

#[tokio::test]
async fn an_older_generation_is_refused_and_names_both() {
    let stage = Stage::empty();
    stage.sync(&[host("h1")]).await;
    stage.apply("one", 2, 1).await.unwrap();

    let error = stage.apply("one", 1, 0).await.unwrap_err();

    assert!(
        matches!(
            error,
            Error::StaleGeneration {
                cluster: _,
                asked: 1,
                applied: 2
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn nothing_is_placed_without_a_complete_snapshot() {
    let stage = Stage::empty();
    let unheard = stage.apply("one", 1, 1).await.unwrap_err();
    assert!(
        unheard
            .to_string()
            .contains("no cluster agent has reported it yet"),
        "{unheard}"
    );

    let reporter = stage.open("lease", 1).await.unwrap();
    let session = reporter.session().id.clone();
    stage.report(&session, &[host("h1")]).await;
    let incomplete = stage.apply("one", 1, 1).await.unwrap_err();
    assert!(
        incomplete.to_string().contains("its snapshot is not complete"),
        "{incomplete}"
    );

    stage.region.complete_snapshot(SITE, &session).await.unwrap();
    assert_eq!(members(&stage.apply("one", 1, 1).await.unwrap()).len(), 1);

    drop(reporter);
    let ended = stage.apply("two", 1, 1).await.unwrap_err();
    assert!(
        ended
            .to_string()
            .contains("no cluster agent reports it at present"),
        "{ended}"
    );
}

#[tokio::test]
async fn a_claim_is_bound_only_when_the_inventory_shows_its_labels() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    stage.apply("one", 1, 1).await.unwrap();

    stage.report(&session, &[labelled("h1", "another")]).await;
    assert_eq!(
        members(&stage.record("one").await.unwrap()),
        [("h1".to_owned(), Claimed)]
    );

    stage.report(&session, &[labelled("h1", "one")]).await;
    assert_eq!(
        members(&stage.record("one").await.unwrap()),
        [("h1".to_owned(), Bound)]
    );
}

#[tokio::test]
async fn hosts_that_carry_a_clusters_labels_are_adopted_as_bound() {
    let stage = Stage::empty();
    stage.sync(&[labelled("h1", "one"), host("h2"), host("h3")]).await;

    let record = stage.apply("one", 1, 2).await.unwrap();

    assert_eq!(
        members(&record),
        [("h1".to_owned(), Bound), ("h2".to_owned(), Claimed)]
    );
}

#[tokio::test]
async fn hosts_with_foreign_labels_are_not_free() {
    let stage = Stage::empty();
    stage.sync(&[labelled("h1", "unknown")]).await;

    let record = stage.apply("one", 1, 1).await.unwrap();

    assert_eq!(members(&record), []);
    assert!(record.refusal.is_some());
}

#[tokio::test]
async fn a_cluster_that_waits_is_served_when_a_host_appears() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    let refused = stage.apply("one", 1, 2).await.unwrap();
    assert_eq!(members(&refused), []);
    let retries = tokio::spawn(stage.region.clone().run_retries());

    stage.report(&session, &[host("h2")]).await;

    let next = placement_after(&stage, refused.revision).await;
    assert_eq!(next, 2);
    retries.abort();
}

/// Number of members once the cluster has changed after a revision.
async fn placement_after(stage: &Stage, revision: u64) -> usize {
    let mut durable = stage.region.committer().watch();
    let changed = async {
        loop {
            let record = stage.record("one").await.unwrap();
            if record.revision > revision && record.refusal.is_none() {
                return record.members.len();
            }
            durable.changed().await.unwrap();
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), changed)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_sipcluster_that_is_made_again_keeps_its_hosts() {
    let stage = Stage::empty();
    stage.sync(&[host("h1"), host("h2")]).await;
    let before = stage.apply_as("one", "first", 7, 1).await.unwrap();

    let after = stage.apply_as("one", "second", 1, 1).await.unwrap();

    assert_eq!(before.members, after.members);
    assert_eq!((&*after.uid, after.generation), ("second", 1));
    let told = stage.region.placement(SITE, &cluster("one"), "first", None).await;
    assert!(matches!(told, Err(Error::NotFound { what: _ })));
}

#[tokio::test]
async fn a_late_declaration_of_an_earlier_uid_takes_nothing_over() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1"), host("h2")]).await;
    stage.apply_as("one", "first", 7, 2).await.unwrap();
    stage.report_cluster(&session, "one", "second").await;
    let taken_over = stage.apply_as("one", "second", 1, 1).await.unwrap();

    let late = stage.apply_as("one", "first", 8, 2).await;

    assert!(
        matches!(late, Err(Error::Superseded { what: _, by: _ })),
        "{late:?}"
    );
    assert_eq!(stage.record("one").await.unwrap(), taken_over);
}

#[tokio::test]
async fn a_claim_of_a_recreated_host_is_newer_than_its_release_mark() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    let claimed = stage.apply("one", 1, 1).await.unwrap();
    let mut made_again = again(labelled("h1", "one"));
    made_again.release_mark = claimed.revision;

    stage.report(&session, &[made_again.clone()]).await;

    let record = stage.record("one").await.unwrap();
    let (id, member) = record.members.first_key_value().unwrap();
    assert_eq!(id.uid.as_str(), made_again.r#ref.as_ref().unwrap().uid);
    assert!(
        member.revision > made_again.release_mark,
        "at {}, and an agent would take it for released",
        member.revision
    );
}
