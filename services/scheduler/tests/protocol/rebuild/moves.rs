//! A ledger that is lost while members are replaced: what the statuses say of that is taken over.

use placement::{
    MemberState::{Bound, Claimed, Releasing},
    Replaces,
};
use proto::inventory::v1 as wire;
use scheduler::record::{Record, ReleaseReason};

use super::{lost, restored, seen};
use crate::fixtures::{SITE, Stage, again, host, labelled, members, observed, released, used, with_status};

fn requested(name: &str) -> wire::Host {
    wire::Host {
        replace_requested: true,
        ..labelled(name, "one")
    }
}

/// The epoch of the site.
fn epoch(stage: &Stage) -> u64 {
    stage.region.site(SITE).unwrap().read().history().epoch()
}

#[tokio::test]
async fn a_lost_ledger_forgets_no_move() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1"), host("h2")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, &[requested("h1")]).await;
    stage.retry().await;
    let before = stage.record("one").await.unwrap();
    let pair = [("h1".to_owned(), Bound), ("h2".to_owned(), Claimed)];
    assert_eq!(members(&before), pair);
    let clusters = [with_status(&before, 1)];

    let stage = Stage::on(lost());
    let hosts = [requested("h1"), host("h2")];
    let session = stage.sync_with(&hosts, &clusters, seen(&clusters)).await;
    let after = stage.apply("one", 1, 1).await.unwrap();

    assert_eq!(members(&after), pair, "h1 stays until h2 is bound");
    let new = after
        .members
        .values()
        .find(|member| member.state == Claimed)
        .unwrap();
    assert!(matches!(&new.replaces, Some(Replaces::Beside(old)) if old.name.name() == "h1"));
    stage.report(&session, &[labelled("h2", "one")]).await;
    stage.retry().await;
    let done = stage.record("one").await.unwrap();
    assert_eq!(
        members(&done),
        [("h1".to_owned(), Releasing), ("h2".to_owned(), Bound)]
    );
}

/// The numbers of the live members, by host.
fn ordinals(record: &Record) -> Vec<(&str, Option<u32>)> {
    let live = record
        .members
        .iter()
        .filter(|(_, member)| member.state != Releasing);
    live.map(|(id, member)| (id.name.name(), member.ordinal))
        .collect()
}

#[tokio::test]
async fn a_replacement_inherits_its_number_though_the_ledger_is_lost() {
    let stage = Stage::empty();
    let session = stage.sync(&["h1", "h2", "h3"].map(host)).await;
    let record = stage.apply("one", 1, 2).await.unwrap();
    assert_eq!(ordinals(&record), [("h1", Some(0)), ("h2", Some(1))]);
    let hosts = [requested("h1"), labelled("h2", "one"), host("h3")];
    stage.report(&session, &hosts).await;
    stage.retry().await;
    let record = stage.record("one").await.unwrap();
    assert_eq!(
        ordinals(&record),
        [("h1", Some(0)), ("h2", Some(1)), ("h3", Some(0))]
    );
    let clusters = [with_status(&record, 1)];

    let stage = Stage::on(lost());
    let session = stage.sync_with(&hosts, &clusters, seen(&clusters)).await;
    stage.apply("one", 1, 2).await.unwrap();
    stage.report(&session, &[labelled("h3", "one")]).await;
    stage.retry().await;
    let record = stage.record("one").await.unwrap();
    assert_eq!(ordinals(&record), [("h2", Some(1)), ("h3", Some(0))]);
}

#[tokio::test]
async fn a_lost_ledger_forgets_no_replacement_under_way_and_no_reason() {
    let stage = Stage::empty();
    let hosts = ["h1", "h2", "h3", "h4"].map(host);
    let session = stage.sync(&hosts).await;
    stage.apply("one", 1, 2).await.unwrap();
    let bound = ["h1", "h2"].map(|name| labelled(name, "one"));
    stage.report(&session, &bound).await;
    let failed = ["h1", "h2"].map(|name| wire::Host {
        marked_failed: true,
        ..labelled(name, "one")
    });
    stage.report(&session, &failed).await;
    stage.retry().await;
    let before = stage.record("one").await.unwrap();
    let states =
        [("h1", Releasing), ("h2", Bound), ("h3", Claimed)].map(|(name, state)| (name.to_owned(), state));
    assert_eq!(members(&before), states);
    let clusters = [with_status(&before, 1)];

    let stage = Stage::on(lost());
    let [h1, h2] = failed;
    stage
        .sync_with(&[h1, h2, host("h3"), host("h4")], &clusters, seen(&clusters))
        .await;
    let after = stage.apply("one", 1, 2).await.unwrap();

    assert_eq!(members(&after), states, "h2 waits until h3 is bound");
    let old = after
        .members
        .values()
        .find(|member| member.state == Releasing)
        .unwrap();
    assert_eq!(old.release_reason, Some(ReleaseReason::Failed));
}

#[tokio::test]
async fn of_two_incarnations_the_live_one_follows_its_host() {
    let named = |uid: &str, mut host: wire::Host| {
        host.r#ref.as_mut().unwrap().uid = uid.to_owned();
        host
    };
    let stage = Stage::empty();
    let session = stage
        .sync_with(&[named("a", host("h1"))], &[observed("one")], None)
        .await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, &[named("a", labelled("h1", "one"))]).await;
    // Deleted, made again and taken: the first is releasing, the second is claimed.
    stage.report(&session, &[named("b", host("h1"))]).await;
    stage.retry().await;
    let record = stage.record("one").await.unwrap();
    let states: Vec<_> = record.members.values().map(|member| member.state).collect();
    assert_eq!(states, [Releasing, Claimed]);

    // A restore makes it a third time, with the labels that it had.
    stage.report(&session, &[named("c", labelled("h1", "one"))]).await;

    let record = stage.record("one").await.unwrap();
    let now: Vec<_> = record
        .members
        .iter()
        .map(|(id, member)| (id.uid.as_str(), member.state))
        .collect();
    assert_eq!(now, [("a", Releasing), ("c", Bound)]);
}

#[tokio::test]
async fn a_lost_ledger_forgets_no_move_of_a_host_that_was_made_again() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1"), host("h2")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, &[requested("h1")]).await;
    stage.retry().await;
    stage.report(&session, &[again(requested("h1"))]).await;
    stage.retry().await;
    let before = stage.record("one").await.unwrap();
    let pair = [("h1".to_owned(), Bound), ("h2".to_owned(), Claimed)];
    assert_eq!(members(&before), pair);
    let clusters = [with_status(&before, 1)];

    let stage = Stage::on(lost());
    let hosts = [again(requested("h1")), host("h2")];
    stage.sync_with(&hosts, &clusters, seen(&clusters)).await;
    let after = stage.apply("one", 1, 1).await.unwrap();
    assert_eq!(members(&after), pair, "h1 stays until h2 is bound");
}

#[tokio::test]
async fn a_lost_ledger_forgets_no_move_of_a_host_that_is_away() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1"), host("h2")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, &[requested("h1")]).await;
    stage.retry().await;
    let before = stage.record("one").await.unwrap();
    let pair = [("h1".to_owned(), Bound), ("h2".to_owned(), Claimed)];
    assert_eq!(members(&before), pair);
    let clusters = [with_status(&before, 1)];

    // h1 was deleted to be moved when the ledger was lost, and is recreated before h2 is labelled.
    let stage = Stage::on(lost());
    let session = stage.sync_with(&[host("h2")], &clusters, seen(&clusters)).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, &[again(requested("h1"))]).await;
    stage.retry().await;
    assert_eq!(
        members(&stage.record("one").await.unwrap()),
        pair,
        "h1 stays until h2 is bound"
    );
    stage.report(&session, &[labelled("h2", "one")]).await;
    stage.retry().await;
    let after = [("h1".to_owned(), Releasing), ("h2".to_owned(), Bound)];
    assert_eq!(members(&stage.record("one").await.unwrap()), after);
}

#[tokio::test]
async fn a_restored_ledger_takes_over_why_a_member_is_released() {
    let stage = Stage::empty();
    let session = stage.sync(&["h1", "h2"].map(host)).await;
    stage.apply("one", 1, 2).await.unwrap();
    let [h1, h2] = ["h1", "h2"].map(|name| used(labelled(name, "one")));
    stage.report(&session, &[h1.clone(), h2.clone()]).await;
    let shrunk = stage.apply("one", 2, 1).await.unwrap();
    assert_eq!(
        members(&shrunk),
        [("h1".to_owned(), Bound), ("h2".to_owned(), Releasing)]
    );
    let backup = stage.ledger.load().unwrap();

    stage.apply("one", 3, 2).await.unwrap();
    let failed = wire::Host {
        marked_failed: true,
        ..h2.clone()
    };
    stage.report(&session, &[failed, host("h3")]).await;
    stage.retry().await;
    stage.report(&session, &[labelled("h3", "one"), h2.clone()]).await;
    stage.retry().await;
    let before = stage.record("one").await.unwrap();
    let states =
        [("h1", Bound), ("h2", Releasing), ("h3", Bound)].map(|(name, state)| (name.to_owned(), state));
    assert_eq!(members(&before), states);
    let reason = |record: &Record| {
        let old = record.members.values().find(|member| member.state == Releasing);
        old.unwrap().release_reason
    };
    assert_eq!(reason(&before), Some(ReleaseReason::Failed));
    let clusters = [wire::ObservedCluster {
        generation: 3,
        ..with_status(&before, 1)
    }];

    let stage = Stage::on(restored(&backup));
    stage
        .sync_with(&[h1, h2, labelled("h3", "one")], &clusters, seen(&clusters))
        .await;
    let after = stage.apply("one", 3, 2).await.unwrap();
    assert_eq!(members(&after), states, "the bound replacement stays");
    assert_eq!(reason(&after), Some(ReleaseReason::Failed));
}

#[tokio::test]
async fn a_host_made_again_while_the_ledger_is_lost_stays() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1"), host("h2")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, &[requested("h1")]).await;
    stage.retry().await;
    let before = stage.record("one").await.unwrap();
    let pair = [("h1".to_owned(), Bound), ("h2".to_owned(), Claimed)];
    assert_eq!(members(&before), pair);
    let clusters = [with_status(&before, 1)];

    let stage = Stage::on(lost());
    let hosts = [again(requested("h1")), host("h2")];
    stage.sync_with(&hosts, &clusters, seen(&clusters)).await;
    let after = stage.apply("one", 1, 1).await.unwrap();
    assert_eq!(members(&after), pair, "h1 stays until h2 is bound");
}

/// A backup knows a pair; the replacement was released since, and the host beside it was made again.
#[tokio::test]
async fn a_lost_release_ends_a_claim_beside_a_host_made_again() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1"), host("h2")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, &[requested("h1")]).await;
    stage.retry().await;
    let pair = [("h1".to_owned(), Bound), ("h2".to_owned(), Claimed)];
    assert_eq!(members(&stage.record("one").await.unwrap()), pair);
    let backup = stage.ledger.load().unwrap();

    // The move is taken back.
    stage.report(&session, &[labelled("h1", "one")]).await;
    stage.retry().await;
    let record = stage.record("one").await.unwrap();
    assert_eq!(
        members(&record),
        [("h1".to_owned(), Bound), ("h2".to_owned(), Releasing)]
    );
    let given_back = released("h2", record.revision);
    stage.report(&session, std::slice::from_ref(&given_back)).await;
    stage.confirm(&record).await;
    let record = stage.record("one").await.unwrap();
    assert_eq!(members(&record), [("h1".to_owned(), Bound)]);
    let mut clusters = [with_status(&record, 1)];
    let known = clusters[0].members[0].host.as_mut().unwrap();
    known.uid = again(host("h1")).r#ref.unwrap().uid;

    let stage = Stage::on(restored(&backup));
    let hosts = [again(requested("h1")), given_back];
    stage.sync_with(&hosts, &clusters, seen(&clusters)).await;
    let one = stage.record("one").await.unwrap();
    assert_eq!(members(&one), [("h1".to_owned(), Bound)]);
}

/// A backup knows a pair whose replacement is away when the backup is restored; the ledger is lost again after that.
#[tokio::test]
async fn a_ledger_lost_twice_forgets_no_move() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1"), host("h2")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, &[requested("h1")]).await;
    stage.retry().await;
    let h2 = wire::Host {
        paused: true,
        ..host("h2")
    };
    stage.report(&session, std::slice::from_ref(&h2)).await;
    let pair = [("h1".to_owned(), Bound), ("h2".to_owned(), Claimed)];
    assert_eq!(members(&stage.record("one").await.unwrap()), pair);
    let backup = stage.ledger.load().unwrap();
    // Another address of its BMC changes the record, so that the status is newer than the backup.
    let h1 = wire::Host {
        bmc_address: "redfish://192.0.2.1".to_owned(),
        ..requested("h1")
    };
    stage.report(&session, std::slice::from_ref(&h1)).await;
    let clusters = [with_status(&stage.record("one").await.unwrap(), 1)];

    let stage = Stage::on(restored(&backup));
    let session = stage
        .sync_with(std::slice::from_ref(&h1), &clusters, seen(&clusters))
        .await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, std::slice::from_ref(&h2)).await;
    let record = stage.apply("one", 1, 1).await.unwrap();
    assert_eq!(members(&record), pair);
    let clusters = [with_status(&record, epoch(&stage))];

    let stage = Stage::on(lost());
    stage.sync_with(&[h1, h2], &clusters, seen(&clusters)).await;
    let after = stage.apply("one", 1, 1).await.unwrap();
    assert_eq!(members(&after), pair, "h1 stays until h2 is bound");
}

/// h1 replaces h2, which was freed, repaired and claimed again before h1 was labelled: the status tells that by revisions, and by numbers
/// once a rebuilt ledger has given both one revision.
#[tokio::test]
async fn a_host_claimed_again_is_not_beside_its_replacement() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h2")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    let failed = wire::Host {
        marked_failed: true,
        ..labelled("h2", "one")
    };
    stage.report(&session, &[failed, host("h1")]).await;
    stage.retry().await;
    let record = stage.record("one").await.unwrap();
    let replaced = [("h1".to_owned(), Claimed), ("h2".to_owned(), Releasing)];
    assert_eq!(members(&record), replaced);
    let repaired = released("h2", record.revision);
    stage.report(&session, std::slice::from_ref(&repaired)).await;
    stage.confirm(&record).await;
    let before = stage.apply("one", 2, 2).await.unwrap();
    let both = ["h1", "h2"].map(|name| (name.to_owned(), Claimed));
    assert_eq!(members(&before), both);
    let hosts = [host("h1"), repaired, host("h3")];
    let status = |record: &Record, epoch: u64| wire::ObservedCluster {
        generation: 2,
        ..with_status(record, epoch)
    };
    let mut clusters = [status(&before, 1)];
    for loss in ["first", "second", "third"] {
        let stage = Stage::on(lost());
        stage.sync_with(&hosts, &clusters, seen(&clusters)).await;
        let rebuilt = stage.apply("one", 2, 2).await.unwrap();
        assert_eq!(members(&rebuilt), both, "{loss} loss: each has a place");
        clusters = [status(&rebuilt, epoch(&stage))];
        stage.retry().await;
        let after = stage.record("one").await.unwrap();
        assert_eq!(members(&after), both, "{loss} loss, decided again");
    }
}

/// A backup has h1, which replaces h2 that was gone; h2 comes back with its labels, so h1 is beside it from then on.
#[tokio::test]
async fn a_pair_that_was_restored_is_one_after_two_losses() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, &[labelled("h1", "one"), host("h2")]).await;
    stage.report_gone(&session, &["h1"]).await;
    stage.retry().await;
    let gone = stage.record("one").await.unwrap();
    let replaced = [("h1".to_owned(), Releasing), ("h2".to_owned(), Claimed)];
    assert_eq!(members(&gone), replaced);
    stage.confirm(&gone).await;
    assert_eq!(members(&stage.record("one").await.unwrap()), replaced[1..]);
    let hosts = [requested("h1"), host("h2")];
    stage.report(&session, &hosts[..1]).await;
    let pair = [("h1".to_owned(), Bound), ("h2".to_owned(), Claimed)];
    let mut record = stage.record("one").await.unwrap();
    assert_eq!(members(&record), pair);
    let mut last = epoch(&stage);
    for loss in ["first", "second"] {
        let clusters = [with_status(&record, last)];
        let stage = Stage::on(lost());
        stage.sync_with(&hosts, &clusters, seen(&clusters)).await;
        record = stage.apply("one", 1, 1).await.unwrap();
        assert_eq!(members(&record), pair, "{loss} loss: h1 stays until h2 is bound");
        last = epoch(&stage);
    }
}
