//! What watchers are told.

use scheduler::{
    region::SharedSite,
    site::{Changed, Cursor},
};

use crate::fixtures::{SITE, Stage, host, released};

fn received(changes: Option<Vec<Changed>>) -> Vec<(u64, bool)> {
    changes
        .unwrap()
        .iter()
        .map(|change| (change.revision(), matches!(change, Changed::Removed { .. })))
        .collect()
}

#[tokio::test]
async fn a_watcher_gets_each_clusters_newest_state_once() {
    let stage = Stage::empty();
    stage.sync(&[host("h1"), host("h2"), host("h3")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    let two = stage.apply("two", 1, 1).await.unwrap().revision;
    let one = stage.apply("one", 2, 2).await.unwrap().revision;
    let site = stage.region.site(SITE).unwrap();

    let mut cursor = site.lock().beginning();
    assert_eq!(
        received(site.lock().changes(cursor, one, 64)),
        [(two, false), (one, false)]
    );
    assert_eq!(
        received(site.lock().changes(cursor, two, 64)),
        [(two, false)],
        "what is not durable is not told"
    );
    assert_eq!(
        received(site.lock().changes(cursor, one, 1)),
        [(two, false)],
        "page by page"
    );
    cursor.advance(one);
    assert_eq!(received(site.lock().changes(cursor, one, 64)), []);
}

#[tokio::test]
async fn a_resuming_watcher_gets_the_removals_it_missed() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    let applied = stage.apply("one", 1, 1).await.unwrap().revision;
    let releasing = stage.release("one").await.unwrap();
    stage
        .report(&session, &[released("h1", releasing.revision)])
        .await;
    stage.confirm(&releasing).await;
    let now = stage.region.committer().watch().borrow().number();
    let site = stage.region.site(SITE).unwrap();

    assert_eq!(
        received(site.lock().changes(Cursor::resume(applied), now, 64)),
        [(now, true)]
    );
}

#[tokio::test]
async fn a_watcher_resumes_after_a_restart_unless_it_missed_a_removal() {
    let stage = Stage::empty();
    stage.sync(&[host("h1"), host("h2")]).await;
    let first = stage.apply("one", 1, 1).await.unwrap().revision;
    let second = stage.apply("two", 1, 1).await.unwrap().revision;

    let restarted = stage.restart();
    let site = restarted.region.site(SITE).unwrap();
    let resumed = |site: &SharedSite, at, upto| site.lock().changes(Cursor::resume(at), upto, 64);
    assert_eq!(received(resumed(&site, first, second)), [(second, false)]);
    assert_eq!(received(resumed(&site, second, second)), []);

    let session = restarted.sync(&[host("h1"), host("h2")]).await;
    let releasing = restarted.release("one").await.unwrap();
    let held = releasing.members.keys().next().unwrap().name.name();
    restarted
        .report(&session, &[released(held, releasing.revision)])
        .await;
    restarted.confirm(&releasing).await;
    let removed = restarted.region.committer().watch().borrow().number();

    let two = restarted.record("two").await.unwrap().revision;

    let again = restarted.restart();
    let site = again.region.site(SITE).unwrap();
    assert!(
        resumed(&site, second, removed).is_none(),
        "nobody knows any more what was removed: it begins anew"
    );
    assert_eq!(received(resumed(&site, removed, removed)), []);
    let beginning = site.lock().beginning();
    assert_eq!(
        received(site.lock().changes(beginning, removed, 64)),
        [(two, false)]
    );
}
