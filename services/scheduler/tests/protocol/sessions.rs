//! One reporter per site.

use futures::FutureExt as _;
use placement::MemberState;
use proto::inventory::v1 as wire;
use scheduler::{
    convert,
    error::Error,
    ledger::{Commit, SitePosition},
    record::Record,
    site::{KEEPALIVE, SessionId},
};

use crate::fixtures::{CALLER, SITE, Stage, host, labelled, observed};

async fn report_nothing(stage: &Stage, session: &SessionId) -> Result<(), Error> {
    stage
        .region
        .report(
            SITE,
            session,
            scheduler::convert::changes(SITE, wire::HostChanges::default()),
        )
        .await
        .map(drop)
}

/// What the log says of reporters, oldest first.
fn log(stage: &Stage) -> Vec<(String, String)> {
    let mut log = stage.ledger.decisions(Commit::MAX, 100, &|_| true).unwrap();
    log.reverse();
    let of_reporters = log.into_iter().filter(|entry| entry.cluster.is_none());
    of_reporters.map(|entry| (entry.action, entry.reason)).collect()
}

#[tokio::test]
async fn a_newer_reporter_cuts_the_older_one_off() {
    let stage = Stage::empty();
    let old = stage.open("lease", 1).await.unwrap();

    let new = stage.open("lease", 2).await.unwrap();

    assert!(old.session().superseded.is_cancelled());
    let late = report_nothing(&stage, &old.session().id).await;
    assert!(matches!(late, Err(Error::Superseded { what: _, by: _ })));
    drop(old);
    report_nothing(&stage, &new.session().id)
        .await
        .expect("the end of the older stream does not end the newer");
}

#[tokio::test]
async fn an_earlier_reporter_is_refused_after_a_restart_too() {
    let stage = Stage::empty();
    drop(stage.open("lease", 2).await.unwrap());
    let before = stage.open("lease", 1).await.unwrap_err();

    let stage = stage.restart();
    stage.pass(KEEPALIVE * 2);
    let after = stage.open("lease", 1).await.unwrap_err();

    for error in [before, after] {
        assert!(error.to_string().contains("lease#2"), "{error}");
    }
    stage.open("lease", 2).await.unwrap();
}

#[tokio::test]
async fn a_reporter_is_let_in_only_when_its_fence_is_durable() {
    let stage = Stage::empty();

    let reporter = stage.open("lease", 7).await.unwrap();

    let fence = stage.ledger.load().unwrap().fences.remove(SITE).unwrap();
    assert_eq!(fence.highest.to_string(), "lease#7");
    drop(reporter);
    let before = stage.ledger.load().unwrap().commit;
    drop(stage.open("lease", 7).await.unwrap());
    assert_eq!(
        stage.ledger.load().unwrap().commit,
        before,
        "the same election again costs no commit"
    );
}

#[tokio::test]
async fn another_lease_counts_once_the_earlier_reporter_is_silent() {
    let stage = Stage::empty();
    let first = stage.open("first", 9).await.unwrap();
    stage.pass(KEEPALIVE * 2);
    report_nothing(&stage, &first.session().id).await.unwrap();
    let while_it_reports = stage.open("second", 1).await.unwrap_err();
    assert!(
        while_it_reports
            .to_string()
            .contains("first#9, which may still run"),
        "{while_it_reports}"
    );
    drop(first);
    stage.pass(KEEPALIVE / 2);
    assert!(stage.open("second", 1).await.is_err(), "it may come back");

    stage.pass(KEEPALIVE / 2);
    drop(stage.open("second", 1).await.unwrap());

    let (action, reason) = log(&stage).pop().unwrap();
    assert_eq!(
        (&*action, &*reason),
        (
            "fence",
            "reporter second#1 has another Lease and replaces first#9"
        )
    );
}

#[tokio::test]
async fn after_a_restart_another_lease_waits_for_the_earlier() {
    let stage = Stage::empty();
    drop(stage.open("first", 9).await.unwrap());
    let stage = stage.restart();

    assert!(stage.open("second", 1).await.is_err());
    stage.pass(KEEPALIVE);

    stage.open("second", 1).await.unwrap();
}

#[tokio::test]
async fn a_clock_set_back_delays_another_lease_by_one_wait() {
    let stage = Stage::empty();
    drop(stage.open("first", 9).await.unwrap());
    stage.set_back(KEEPALIVE * 100);

    assert!(stage.open("second", 1).await.is_err(), "the wait begins again");
    stage.pass(KEEPALIVE);

    stage.open("second", 1).await.unwrap();
}

#[tokio::test]
async fn a_replaced_lease_is_never_accepted_again() {
    let stage = Stage::empty();
    drop(stage.open("first", 9).await.unwrap());
    stage.pass(KEEPALIVE);
    drop(stage.open("second", 1).await.unwrap());
    let stage = stage.restart();
    stage.pass(KEEPALIVE * 2);

    let error = stage.open("first", 10).await.unwrap_err();

    assert!(error.to_string().contains("sipctl site reset-fence a"), "{error}");
}

#[tokio::test]
async fn an_operator_accepts_a_restored_counter_and_is_logged() {
    let stage = Stage::empty();
    let reporter = stage.open("lease", 9).await.unwrap();

    let forgotten = stage.region.reset_fence(SITE, "operator/ann").await.unwrap();

    assert_eq!(forgotten.unwrap().to_string(), "lease#9");
    assert!(
        reporter.session().superseded.is_cancelled(),
        "the present one is fenced"
    );
    drop(reporter);
    let stage = stage.restart();
    drop(stage.open("lease", 3).await.unwrap());
    assert_eq!(
        log(&stage)[1..],
        [
            (
                "reset-fence".to_owned(),
                "the fence is reset: reporter lease#9 is removed, and the next reporter is accepted whatever its Lease".to_owned()
            ),
            ("fence".to_owned(), "reporter lease#3 is the first".to_owned()),
        ]
    );
    let who = stage.ledger.decisions(Commit::MAX, 2, &|_| true).unwrap();
    let who: Vec<_> = who.iter().map(|entry| &*entry.caller).collect();
    assert_eq!(who, [CALLER, "operator/ann"]);
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
async fn a_site_ahead_of_the_ledger_raises_the_epoch() {
    let stage = Stage::empty();
    let seen = SitePosition::new(3, 100);

    drop(stage.open_seen("lease", 1, Some(seen)).await.unwrap());

    let contents = stage.ledger.load().unwrap();
    let position = contents.histories[SITE].at(contents.commit);
    assert!(
        position.epoch() > seen.epoch() && position.revision() > seen.revision(),
        "{position}"
    );
    stage.sync(&[host("h1")]).await;
    assert!(stage.apply("one", 1, 1).await.unwrap().revision > seen.revision());
}

#[tokio::test]
async fn a_superseded_session_settles_nothing_more() {
    let stage = Stage::empty();
    let session = stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    stage.apply("one", 1, 1).await.unwrap();
    let changes = wire::HostChanges {
        hosts: vec![labelled("h1", "one")],
        ..wire::HostChanges::default()
    };
    let region = stage.region.clone();
    let mut reported = Box::pin(region.report(SITE, &session, convert::changes(SITE, changes)));
    assert!(
        (&mut reported).now_or_never().is_none(),
        "it is taken in, and not settled"
    );

    let newer = stage.open("lease", 2).await.unwrap();

    let refused = reported.await.unwrap_err();
    assert!(matches!(refused, Error::Superseded { .. }), "{refused}");
    let state = |record: &Record| record.members.values().next().unwrap().state;
    assert_eq!(state(&stage.record("one").await.unwrap()), MemberState::Claimed);
    // The snapshot of the newer one settles it.
    let id = newer.session().id.clone();
    let changes = wire::HostChanges {
        hosts: vec![labelled("h1", "one")],
        clusters: vec![observed("one")],
        ..wire::HostChanges::default()
    };
    region
        .report(SITE, &id, convert::changes(SITE, changes))
        .await
        .unwrap();
    region.complete_snapshot(SITE, &id).await.unwrap();
    assert_eq!(state(&stage.record("one").await.unwrap()), MemberState::Bound);
}
