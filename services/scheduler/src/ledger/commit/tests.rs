use futures::FutureExt as _;
use redb::backends::InMemoryBackend;
use tokio::task::JoinSet;

use super::*;
use crate::ledger::{CallChanges, Decision, redb::Redb};

/// A change of about so many bytes.
fn change(site: &str, bytes: usize, commit: Commit) -> Change {
    Change::Fence {
        site: site.to_owned(),
        fence: None,
        decision: Box::new(Decision {
            site: site.to_owned(),
            reason: "r".repeat(bytes),
            ..Decision::default()
        }),
        commit,
    }
}

#[tokio::test]
async fn one_sites_flood_makes_another_wait_two_batches() {
    let ledger = Redb::on(InMemoryBackend::new()).unwrap();
    let mut durable = ledger.load().unwrap();
    let (committer, mut writer) = committer(durable.commit);
    let (flooding, other) = (Share::default(), Share::default());
    let mut flood = JoinSet::new();
    for _ in 0..64 {
        let (committer, share) = (committer.clone(), flooding.clone());
        flood.spawn(async move {
            let permit = committer.reserve_within(&share).await.unwrap();
            permit.stage(|commit| change("a", 1 << 20, commit)).unwrap()
        });
    }
    // All of them have come before the other site's.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let permit = committer.reserve_within(&other).now_or_never().unwrap().unwrap();
    let small = permit.stage(|commit| change("b", 10, commit)).unwrap();
    let mut batches = 0;
    while committer.last_durable() < small {
        let batch = writer.receive().await.unwrap();
        assert!(batch.bytes < MAX_BATCH_BYTES + (3 << 20), "{}", batch.bytes);
        writer
            .store(&ledger, batch, &mut durable, &|_| Commit::MAX)
            .unwrap();
        batches += 1;
    }
    assert!(batches <= 2, "it has waited for {batches} batches");
    // Nobody of the flood is forgotten.
    while !flood.is_empty() {
        tokio::select! {
            batch = writer.receive() => {
                writer.store(&ledger, batch.unwrap(), &mut durable, &|_| Commit::MAX).unwrap();
            }
            staged = flood.join_next() => { staged.unwrap().unwrap(); }
        }
    }
}

#[tokio::test]
async fn a_change_that_is_not_staged_is_not_counted() {
    const LARGEST: usize = 1 << 20;
    let (committer, _writer) = committer(Commit::NONE);
    let committer = committer.taking(Some(LARGEST));
    let changes = CallChanges::default();
    let permit = async || committer.reserve().await.unwrap().counted(Some(changes.clone()));
    drop(permit().await);
    permit()
        .await
        .stage(|commit| change("a", 2 * LARGEST, commit))
        .unwrap_err();
    assert_eq!((changes.count(), changes.site()), (0, None));
    for site in ["a", "b"] {
        permit().await.stage(|commit| change(site, 10, commit)).unwrap();
    }
    assert_eq!((changes.count(), changes.site()), (2, Some("a")));
}

#[tokio::test]
async fn who_waits_for_its_share_sees_the_writer_end() {
    let (committer, writer) = committer(Commit::NONE);
    let share = Share::default();
    let permit = committer.reserve_within(&share).await.unwrap();
    permit
        .stage(|commit| change("a", MAX_STAGED_BYTES, commit))
        .unwrap();
    let mut waits = Box::pin(committer.reserve_within(&share));
    assert!((&mut waits).now_or_never().is_none());
    drop(writer);
    assert!(matches!(waits.await, Err(Stopped)));
}
