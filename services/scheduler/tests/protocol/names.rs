//! A placement names a host once: an API server refuses a status that names one twice.

use placement::MemberState::{Bound, Claimed, Releasing};

use crate::fixtures::{Stage, again, host, labelled, members, observed};

#[tokio::test]
async fn a_host_that_was_made_again_takes_the_place_of_the_one_that_is_gone_in_one_step() {
    let stage = Stage::empty();
    let session = stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, &[labelled("h1", "one")]).await;

    stage.report(&session, &[again(host("h1"))]).await;
    let before = stage.record("one").await.unwrap();
    assert_eq!(members(&before), [("h1".to_owned(), Bound)], "it has failed");
    stage.retry().await;

    let after = stage.record("one").await.unwrap();
    assert_eq!(members(&after), [("h1".to_owned(), Claimed)]);
    let (id, member) = after.members.first_key_value().unwrap();
    assert_eq!(id.uid.as_str(), "uid-h1-again");
    let gone = before.members.first_key_value().unwrap().0;
    assert_eq!(
        member.replaces.as_ref(),
        Some(gone),
        "it counts as a replacement until it is bound"
    );
    assert!(after.refusal.is_none());
    let log = stage.ledger.decisions(u64::MAX, 1, &|_| true).unwrap();
    assert_eq!(log[0].freed[0].uid, "uid-h1", "{log:?}");
}

#[tokio::test]
async fn a_host_that_was_made_again_with_labels_of_another_role_is_adopted_in_the_place_of_the_one_that_is_gone()
 {
    let stage = Stage::empty();
    let session = stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    stage.apply("one", 1, 1).await.unwrap();
    let mut control_plane = again(labelled("h1", "one"));
    let role = scheduler::convert::sip_label::ROLE.to_owned();
    control_plane.labels.insert(role, "ControlPlane".to_owned());

    stage.report(&session, &[control_plane]).await;

    let record = stage.record("one").await.unwrap();
    assert_eq!(members(&record), [("h1".to_owned(), Bound)]);
    let (id, member) = record.members.first_key_value().unwrap();
    assert_eq!(
        (id.uid.as_str(), member.role.as_str()),
        ("uid-h1-again", "ControlPlane")
    );
}

#[tokio::test]
async fn a_host_that_was_made_again_and_is_gone_too_is_there_once() {
    let stage = Stage::empty();
    let session = stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    stage.apply("one", 1, 1).await.unwrap();
    for _ in 0..3 {
        stage.report(&session, &[again(host("h1"))]).await;
        stage.retry().await;
        stage.report_gone(&session, &["h1"]).await;
        stage.report(&session, &[host("h1")]).await;
        stage.retry().await;
        let record = stage.record("one").await.unwrap();
        assert_eq!(members(&record), [("h1".to_owned(), Claimed)]);
    }
}

#[tokio::test]
async fn a_host_that_is_being_released_and_was_made_again_is_claimed_anew_in_one_step() {
    let stage = Stage::empty();
    let session = stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    stage.apply("one", 1, 1).await.unwrap();
    let releasing = stage.apply("one", 2, 0).await.unwrap();
    assert_eq!(members(&releasing), [("h1".to_owned(), Releasing)]);

    stage.report(&session, &[again(host("h1"))]).await;
    let record = stage.apply("one", 3, 1).await.unwrap();

    assert_eq!(members(&record), [("h1".to_owned(), Claimed)]);
}
