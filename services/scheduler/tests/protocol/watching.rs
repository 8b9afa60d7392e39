//! What watchers are told.

use scheduler::site::{Changed, Cursor};

use crate::fixtures::{SITE, Stage, host, released};

fn told(changes: Option<Vec<Changed>>) -> Vec<(u64, bool)> {
    changes
        .unwrap()
        .iter()
        .map(|change| (change.revision(), matches!(change, Changed::Removed { .. })))
        .collect()
}

#[tokio::test]
async fn a_watcher_is_told_the_newest_state_of_each_cluster_and_nothing_twice() {
    let stage = Stage::empty();
    stage.sync(&[host("h1"), host("h2"), host("h3")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    let two = stage.apply("two", 1, 1).await.unwrap().revision;
    let one = stage.apply("one", 2, 2).await.unwrap().revision;
    let site = stage.region.site(SITE).unwrap();

    let mut cursor = site.lock().beginning();
    assert_eq!(
        told(site.lock().changes(cursor, one, 64)),
        [(two, false), (one, false)]
    );
    assert_eq!(
        told(site.lock().changes(cursor, two, 64)),
        [(two, false)],
        "what is not durable is not told"
    );
    assert_eq!(
        told(site.lock().changes(cursor, one, 1)),
        [(two, false)],
        "page by page"
    );
    cursor.advance(one);
    assert_eq!(told(site.lock().changes(cursor, one, 64)), []);
}

#[tokio::test]
async fn a_watcher_that_resumes_is_told_what_went_meanwhile() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    let applied = stage.apply("one", 1, 1).await.unwrap().revision;
    let releasing = stage.release("one").await.unwrap();
    stage
        .report(&session, &[released("h1", releasing.revision)])
        .await;
    stage.confirm(&releasing).await;
    let now = stage.region.committer().watch().borrow().revision;
    let site = stage.region.site(SITE).unwrap();

    assert_eq!(
        told(site.lock().changes(Cursor::resume(applied), now, 64)),
        [(now, true)]
    );
}

#[tokio::test]
async fn a_watcher_from_before_a_restart_begins_anew_since_removals_are_not_remembered() {
    let stage = Stage::empty();
    stage.sync(&[host("h1"), host("h2")]).await;
    let first = stage.apply("one", 1, 1).await.unwrap().revision;
    let second = stage.apply("two", 1, 1).await.unwrap().revision;

    let stage = stage.restart();

    let site = stage.region.site(SITE).unwrap();
    assert!(site.lock().changes(Cursor::resume(first), second, 64).is_none());
    assert_eq!(told(site.lock().changes(Cursor::resume(second), second, 64)), []);
    let beginning = site.lock().beginning();
    assert_eq!(told(site.lock().changes(beginning, second, 64)).len(), 2);
}
