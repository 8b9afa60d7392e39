//! One reporter per site.

use proto::inventory::v1 as wire;
use scheduler::{error::Error, ledger::Position};

use crate::fixtures::{SITE, Stage, fence, host};

#[tokio::test]
async fn a_newer_reporter_cuts_the_older_one_off() {
    let stage = Stage::empty();
    let old = stage
        .region
        .open_session(SITE, fence("lease", 1), None)
        .await
        .unwrap();

    let new = stage
        .region
        .open_session(SITE, fence("lease", 2), None)
        .await
        .unwrap();

    assert!(old.superseded.is_cancelled());
    let late = stage
        .region
        .report(SITE, &old.id, wire::HostChanges::default())
        .await;
    assert!(matches!(late, Err(Error::Superseded { what: _, by: _ })));
    stage
        .region
        .report(SITE, &new.id, wire::HostChanges::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_reporter_of_an_earlier_election_is_refused() {
    let stage = Stage::empty();
    stage
        .region
        .open_session(SITE, fence("lease", 2), None)
        .await
        .unwrap();

    let error = stage
        .region
        .open_session(SITE, fence("lease", 1), None)
        .await
        .unwrap_err();

    assert!(error.to_string().contains("lease#2"), "{error}");
}

#[tokio::test]
async fn another_lease_is_believed_only_when_the_reporter_of_the_earlier_one_has_gone() {
    let stage = Stage::empty();
    let first = stage
        .region
        .open_session(SITE, fence("first", 9), None)
        .await
        .unwrap();
    assert!(
        stage
            .region
            .open_session(SITE, fence("second", 1), None)
            .await
            .is_err()
    );

    stage.region.close_session(SITE, &first.id);

    assert!(
        stage
            .region
            .open_session(SITE, fence("second", 1), None)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn what_a_snapshot_does_not_name_is_gone() {
    let stage = Stage::empty();
    stage.sync(&[host("h1"), host("h2")]).await;

    stage.sync(&[host("h2")]).await;

    let site = stage.region.site(SITE).unwrap();
    let names: Vec<String> = site.lock().hosts().keys().map(ToString::to_string).collect();
    assert_eq!(names, ["metal/h2"]);
}

#[tokio::test]
async fn a_site_that_has_seen_more_than_the_ledger_holds_raises_the_epoch_durably() {
    let stage = Stage::empty();
    let seen = Position {
        epoch: 3,
        revision: 100,
    };

    stage
        .region
        .open_session(SITE, fence("lease", 1), Some(seen))
        .await
        .unwrap();

    let position = stage.ledger.load().unwrap().position;
    assert!(
        position.epoch > seen.epoch && position.revision > seen.revision,
        "{position}"
    );
    stage.sync(&[host("h1")]).await;
    assert!(stage.apply("one", 1, 1).await.unwrap().revision > seen.revision);
}
