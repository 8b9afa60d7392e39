//! Hosts that are deleted and made again under their name: another host each time. A report that does not have a host may be
//! older than the host, so the one before goes when the agent confirms that the API server does not have it.

use placement::{
    MemberState::{self, Bound, Claimed, Releasing},
    Replaces,
};
use scheduler::{ledger::Commit, record::Record};

use crate::fixtures::{Stage, again, host, labelled, members, observed};

/// uid and state of each member.
fn incarnations(record: &Record) -> Vec<(&str, MemberState)> {
    let members = record.members.iter();
    members
        .map(|(id, member)| (id.uid.as_str(), member.state))
        .collect()
}

#[tokio::test]
async fn a_recreated_host_waits_until_the_old_ones_end_is_confirmed() {
    let stage = Stage::empty();
    let session = stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, &[labelled("h1", "one")]).await;

    stage.report(&session, &[again(host("h1"))]).await;
    let before = stage.record("one").await.unwrap();
    assert_eq!(members(&before), [("h1".to_owned(), Bound)], "it has failed");
    stage.retry().await;

    let both = stage.record("one").await.unwrap();
    assert_eq!(
        incarnations(&both),
        [("uid-h1", Releasing), ("uid-h1-again", Claimed)]
    );
    let gone = before.members.first_key_value().unwrap().0;
    let taken = both.members.last_key_value().unwrap().1;
    assert_eq!(taken.replaces.as_ref().map(Replaces::host), Some(gone));
    assert!(both.refusal.is_none());

    stage.report(&session, &[again(host("h1"))]).await;
    let still = stage.record("one").await.unwrap();
    assert_eq!(still.members.len(), 2, "reports alone do not free it");

    let after = stage.confirm(&still).await.unwrap();
    assert_eq!(incarnations(&after), [("uid-h1-again", Claimed)]);
    let log = stage.ledger.decisions(Commit::MAX, 1, &|_| true).unwrap();
    assert_eq!(log[0].freed[0].uid, "uid-h1", "{log:?}");
}

#[tokio::test]
async fn a_host_in_a_newer_report_only_is_not_free_yet() {
    let stage = Stage::empty();
    let session = stage
        .sync_with(&[again(host("h1"))], &[observed("one")], None)
        .await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, &[again(labelled("h1", "one"))]).await;

    // Another agent, whose watches are behind: they show the host of before, and nobody confirms that the other is gone.
    stage.report(&session, &[host("h1")]).await;
    stage.retry().await;
    stage.report(&session, &[host("h1")]).await;

    let record = stage.record("one").await.unwrap();
    let held = record.members.keys().any(|id| id.uid.as_str() == "uid-h1-again");
    assert!(held, "{record:?}");

    stage.report(&session, &[again(labelled("h1", "one"))]).await;
    assert!(stage.apply("two", 1, 1).await.unwrap().members.is_empty());
}

#[tokio::test]
async fn a_host_recreated_with_another_role_is_adopted_too() {
    let stage = Stage::empty();
    let session = stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    stage.apply("one", 1, 1).await.unwrap();
    let mut control_plane = again(labelled("h1", "one"));
    let role = vocabulary::labels::NODE_TYPE.to_owned();
    control_plane.labels.insert(role, "ControlPlane".to_owned());

    stage.report(&session, &[control_plane]).await;

    let record = stage.record("one").await.unwrap();
    let (id, adopted) = record.members.last_key_value().unwrap();
    assert_eq!(
        (id.uid.as_str(), adopted.role.as_str(), adopted.state),
        ("uid-h1-again", "ControlPlane", Bound)
    );
}

#[tokio::test]
async fn a_recreated_host_is_free_once_its_release_is_confirmed() {
    let stage = Stage::empty();
    let session = stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    stage.apply("one", 1, 1).await.unwrap();
    let releasing = stage.apply("one", 2, 0).await.unwrap();
    assert_eq!(members(&releasing), [("h1".to_owned(), Releasing)]);

    stage.report(&session, &[again(host("h1"))]).await;
    let record = stage.apply("one", 3, 1).await.unwrap();

    assert_eq!(
        incarnations(&record),
        [("uid-h1", Releasing)],
        "the rack is still its"
    );
    stage.confirm(&record).await;
    stage.retry().await;

    let record = stage.record("one").await.unwrap();
    assert_eq!(incarnations(&record), [("uid-h1-again", Claimed)]);
}
