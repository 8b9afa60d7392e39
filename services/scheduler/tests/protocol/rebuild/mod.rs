//! A ledger that is lost, or older than the site: nothing that a status says is promised to somebody else.

mod absent;
mod ending;
mod moves;
mod people;
mod steps;
mod world;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use placement::MemberState::{Bound, Claimed, Releasing};
use proto::inventory::v1 as wire;
use redb::backends::InMemoryBackend;
use scheduler::ledger::{Change, Contents, Ledger, RecordKey, SitePosition, redb::Redb};

use crate::fixtures::{
    SITE, Stage, again, cluster, host, labelled, members, observed, released, with_status,
};

/// A ledger as it was when its contents were read: a backup that was restored.
fn restored(contents: &Contents) -> Arc<dyn Ledger> {
    let Contents {
        commit,
        histories,
        records,
        removals,
        fences,
    } = contents.clone();
    let ledger = Redb::on(InMemoryBackend::new()).unwrap();
    let removals = removals.into_iter().map(|(site, removed)| Change::Record {
        key: RecordKey {
            site,
            cluster: cluster("gone"),
        },
        record: None,
        decision: Box::default(),
        commit: removed,
    });
    let records = records.into_iter().map(|(key, record)| Change::Record {
        key,
        record: Some(record),
        decision: Box::default(),
        commit,
    });
    let fences = fences.into_iter().map(|(site, fence)| Change::Fence {
        site,
        fence: Some(fence),
        decision: Box::default(),
        commit,
    });
    let histories = histories.into_iter().map(|(site, history)| Change::Raise {
        site,
        history,
        decision: Box::default(),
        commit,
    });
    let batch: Vec<_> = removals.chain(histories).chain(records).chain(fences).collect();
    ledger.commit(&batch).unwrap();
    assert_eq!(ledger.load().unwrap(), *contents);
    Arc::new(ledger)
}

fn lost() -> Arc<dyn Ledger> {
    Arc::new(Redb::on(InMemoryBackend::new()).unwrap())
}

fn seen(clusters: &[wire::ObservedCluster]) -> Option<SitePosition> {
    let revisions = clusters.iter().filter_map(|cluster| cluster.revision);
    revisions
        .max_by_key(|at| (at.epoch, at.revision))
        .map(SitePosition::from)
}

fn at(seconds: u64) -> prost_types::Timestamp {
    (SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).into()
}

#[tokio::test]
async fn a_host_in_a_status_stays_claimed_when_the_ledger_is_lost() {
    let stage = Stage::empty();
    stage.sync(&[host("h1"), host("h2")]).await;
    let promised = stage.apply("one", 1, 1).await.unwrap();
    let clusters = [with_status(&promised, 1), observed("two")];

    let stage = Stage::on(lost());
    stage
        .sync_with(&[host("h1"), host("h2")], &clusters, seen(&clusters))
        .await;

    let two = stage.apply("two", 1, 2).await.unwrap();
    assert_eq!(members(&two), [], "h1 is promised to the other one");
    let one = stage.apply("one", 1, 1).await.unwrap();
    assert_eq!(members(&one), [("h1".to_owned(), Claimed)]);
    assert!(one.revision > promised.revision);
}

#[tokio::test]
async fn another_sites_commits_do_not_hide_that_the_ledger_was_lost() {
    let stage = Stage::empty();
    stage.sync(&[host("h1")]).await;
    let promised = stage.apply("one", 1, 1).await.unwrap();
    let clusters = [with_status(&promised, 1), observed("two")];

    let stage = Stage::on(lost());
    for transitions in 0..10 {
        let fence = scheduler::ledger::Fence {
            lease: "lease".to_owned(),
            transitions,
        };
        stage
            .region
            .open_session("elsewhere", &fence, None, "site/elsewhere/agent/cluster")
            .await
            .unwrap();
    }
    let before = stage.ledger.load().unwrap();
    assert!(before.commit.number() > promised.revision);
    assert!(before.histories.is_empty());
    stage.sync_with(&[host("h1")], &clusters, seen(&clusters)).await;

    assert!(stage.ledger.load().unwrap().histories[SITE].epoch() > 1);
    assert_eq!(members(&stage.apply("two", 1, 1).await.unwrap()), []);
}

#[tokio::test]
async fn of_two_statuses_labels_then_claims_then_age_decide() {
    let claim = |name: &str, created: u64, state: wire::MemberState| wire::ObservedCluster {
        members: vec![wire::ObservedMember {
            host: host("h1").r#ref,
            role: "Worker".to_owned(),
            state: state.into(),
            revision: 5,
            ..wire::ObservedMember::default()
        }],
        revision: Some(wire::Revision {
            epoch: 1,
            revision: 9,
        }),
        created: Some(at(created)),
        ..observed(name)
    };
    let (claimed, releasing) = (wire::MemberState::Claimed, wire::MemberState::Releasing);
    let cases = [
        (
            "labels",
            labelled("h1", "b"),
            claim("a", 1, claimed),
            claim("b", 2, claimed),
            "b",
        ),
        (
            "a claim",
            host("h1"),
            claim("a", 1, releasing),
            claim("b", 2, claimed),
            "b",
        ),
        (
            "the older",
            host("h1"),
            claim("a", 2, claimed),
            claim("b", 1, claimed),
            "b",
        ),
        (
            "the name",
            host("h1"),
            claim("a", 1, claimed),
            claim("b", 1, claimed),
            "a",
        ),
    ];
    for (why, shown, a, b, winner) in cases {
        let stage = Stage::empty();
        let clusters = [a, b];
        stage.sync_with(&[shown], &clusters, seen(&clusters)).await;
        for name in ["a", "b"] {
            let record = stage.apply(name, 1, 1).await.unwrap();
            assert_eq!(record.members.len(), usize::from(name == winner), "{why}: {name}");
            if name != winner && why != "a claim" {
                let kinds: Vec<_> = record.conflicts.iter().map(|report| &*report.kind).collect();
                assert_eq!(kinds, ["promised-to-another"], "{why}: {name}");
            }
        }
    }
}

#[tokio::test]
async fn a_host_released_after_the_backup_needs_its_release_mark() {
    for marked in [false, true] {
        let stage = Stage::empty();
        let session = stage.sync(&[host("h1"), host("h2")]).await;
        let backup = stage.apply("one", 1, 1).await.unwrap();
        let contents = stage.ledger.load().unwrap();
        let releasing = stage.apply("one", 2, 0).await.unwrap();
        let mark = if marked {
            releasing.revision
        } else {
            backup.revision
        };
        stage
            .report(&session, &[released("h1", releasing.revision)])
            .await;
        stage.confirm(&releasing).await;
        let after = stage.record("one").await.unwrap();
        assert_eq!(members(&after), []);
        let clusters = [with_status(&after, 1), observed("two")];

        let stage = Stage::on(restored(&contents));
        stage
            .sync_with(&[released("h1", mark)], &clusters, seen(&clusters))
            .await;

        let two = stage.apply("two", 1, 1).await.unwrap();
        assert_eq!(two.members.len(), usize::from(marked), "marked: {marked}");
        assert_eq!(
            stage.record("one").await.unwrap().members.len(),
            usize::from(!marked)
        );
    }
}

/// A release was confirmed to a ledger that is lost, and its `SIPCluster` has gone since.
#[tokio::test]
async fn a_release_confirmed_after_the_backup_ends() {
    let stage = Stage::empty();
    let clusters = [observed("one"), observed("two")];
    let session = stage.sync_with(&[host("h1")], &clusters, None).await;
    stage.apply("one", 1, 1).await.unwrap();
    let releasing = stage.release("one").await.unwrap();
    let contents = stage.ledger.load().unwrap();
    let marked = released("h1", releasing.revision);
    stage.report(&session, std::slice::from_ref(&marked)).await;
    stage.confirm(&releasing).await;
    let later = stage.apply("two", 1, 0).await.unwrap();
    let clusters = [with_status(&later, 1)];

    let stage = Stage::on(restored(&contents));
    stage.sync_with(&[marked], &clusters, seen(&clusters)).await;
    assert_eq!(stage.why_not("h1"), [""; 0]);
}

#[tokio::test]
async fn hosts_claimed_after_the_backup_are_read_back() {
    let stage = Stage::empty();
    stage.sync(&[host("h1"), host("h2"), host("h3")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    let contents = stage.ledger.load().unwrap();
    let after = stage.apply("one", 2, 3).await.unwrap();
    let clusters = [with_status(&after, 1)];

    let stage = Stage::on(restored(&contents));
    let hosts = [host("h1"), labelled("h2", "one"), host("h3")];
    stage.sync_with(&hosts, &clusters, seen(&clusters)).await;

    let one = stage.record("one").await.unwrap();
    assert_eq!(
        members(&one),
        [
            ("h1".to_owned(), Claimed),
            ("h2".to_owned(), Bound),
            ("h3".to_owned(), Claimed)
        ]
    );
}

#[tokio::test]
async fn a_pivot_changes_uids_and_loses_nothing() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1"), host("h2")]).await;
    stage.apply_as("one", "first", 3, 2).await.unwrap();
    let both = [labelled("h1", "one"), labelled("h2", "one")];
    stage.report(&session, &both).await;
    let shrunk = stage.apply_as("one", "first", 4, 1).await.unwrap();
    let states = members(&shrunk);
    assert_eq!(states.iter().filter(|(_, state)| *state == Releasing).count(), 1);

    stage.sync(&both.map(again)).await;
    let moved = stage.apply_as("one", "second", 1, 1).await.unwrap();

    assert_eq!(members(&moved), states, "who stays stays, who goes goes on going");
    assert!(moved.members.keys().all(|id| id.uid.as_str().ends_with("-again")));
    let late = stage.region.release(SITE, &cluster("one"), "first", "x").await;
    assert!(late.is_err(), "the earlier SIPCluster has no say any more");
}

#[tokio::test]
async fn a_deletion_takes_over_the_record_of_an_earlier_uid() {
    let stage = Stage::empty();
    stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    stage.apply_as("one", "earlier", 1, 1).await.unwrap();

    let releasing = stage.release("one").await.unwrap();

    assert_eq!(members(&releasing), [("h1".to_owned(), Releasing)]);
    assert_eq!(releasing.uid, "uid");
}

#[tokio::test]
async fn first_snapshot_raises_above_its_marks() {
    let stage = Stage::empty();
    let session = stage.sync(&[released("h1", 500)]).await;
    let one = stage.apply("one", 1, 1).await.unwrap();
    assert!((500..520).contains(&one.revision), "{}", one.revision);

    // From then on the ledger is known to be whole.
    stage
        .report(&session, &[released("h2", 900), released("h3", u64::MAX)])
        .await;
    assert_eq!(stage.why_not("h2"), ["problem"]);
    assert_eq!(stage.why_not("h3"), ["problem"]);
    stage.report(&session, &[host("h2")]).await;
    let two = stage.apply("two", 1, 1).await.unwrap();
    assert_eq!(members(&two), [("h2".to_owned(), Claimed)]);
    assert!(two.revision < 520, "{}", two.revision);
}

#[tokio::test]
async fn a_backups_spec_decides_nothing_for_a_recreated_cluster() {
    let stage = Stage::empty();
    stage.sync(&[host("h1")]).await;
    let waits = stage.apply("one", 1, 2).await.unwrap();
    assert!(waits.refusal.is_some(), "there is one host for two");
    let backup = stage.ledger.load().unwrap();
    let hosts = ["h1", "h2", "h3"];
    stage.sync(&hosts.map(host)).await;
    let grown = stage.apply("one", 2, 3).await.unwrap();
    assert_eq!(grown.members.len(), 3);

    let changed = wire::ObservedCluster {
        generation: 2,
        ..with_status(&grown, 1)
    };
    let mut made_again = with_status(&grown, 1);
    made_again.r#ref.as_mut().unwrap().uid = "uid-again".to_owned();
    for now in [changed, made_again] {
        let (uid, generation) = (now.r#ref.clone().unwrap().uid, now.generation);
        let stage = Stage::on(restored(&backup));
        let clusters = [now];
        let labelled = hosts.map(|name| labelled(name, "one"));
        stage.sync_with(&labelled, &clusters, seen(&clusters)).await;
        stage.retry().await;
        let one = stage.apply_as("one", &uid, generation, 3).await.unwrap();
        assert_eq!(members(&one), hosts.map(|name| (name.to_owned(), Bound)), "{uid}");
    }
}

#[tokio::test]
async fn a_deletion_in_a_backup_spares_the_recreated_sipcluster() {
    let stage = Stage::empty();
    stage.sync(&["h1", "h2"].map(host)).await;
    stage.apply("one", 1, 1).await.unwrap();
    let releasing = stage.release("one").await.unwrap();
    let backup = stage.ledger.load().unwrap();
    let freed = [released("h1", releasing.revision), host("h2")];
    stage.sync(&freed).await;
    assert!(stage.confirm(&releasing).await.is_none(), "it is gone");
    let again = stage.apply_as("one", "uid-again", 1, 2).await.unwrap();
    assert_eq!(again.members.len(), 2);

    let marked = wire::Host {
        release_mark: releasing.revision,
        ..labelled("h1", "one")
    };
    let hosts = [marked, labelled("h2", "one")];
    let claimed = freed.clone();
    for (what, hosts, state) in [("labelled", hosts, Bound), ("claimed", claimed, Claimed)] {
        let stage = Stage::on(restored(&backup));
        let clusters = [with_status(&again, 1)];
        stage.sync_with(&hosts, &clusters, seen(&clusters)).await;
        stage.retry().await;
        let one = stage.apply_as("one", "uid-again", 1, 2).await.unwrap();
        assert_eq!(
            members(&one),
            ["h1", "h2"].map(|name| (name.to_owned(), state)),
            "{what}"
        );
    }
}

#[tokio::test]
async fn promises_of_a_recreated_sipcluster_outlive_the_old_record() {
    let stage = Stage::empty();
    stage.sync(&["h1", "h2"].map(host)).await;
    stage.apply("one", 1, 1).await.unwrap();
    let releasing = stage.release("one").await.unwrap();
    let backup = stage.ledger.load().unwrap();
    let given = wire::Host {
        release_mark: releasing.revision,
        ..labelled("h1", "two")
    };
    stage
        .sync(&[released("h1", releasing.revision), host("h2")])
        .await;
    stage.confirm(&releasing).await;
    let two = stage.apply("two", 1, 1).await.unwrap();
    stage.sync(&[given.clone(), host("h2")]).await;
    let again = stage.apply_as("one", "uid-again", 1, 1).await.unwrap();
    assert_eq!(members(&again), [("h2".to_owned(), Claimed)]);

    let stage = Stage::on(restored(&backup));
    let clusters = [with_status(&again, 1), with_status(&two, 1)];
    stage
        .sync_with(&[given, host("h2")], &clusters, seen(&clusters))
        .await;
    assert_eq!(stage.record("one").await, None, "what it had is somebody else's");
    assert_eq!(members(&stage.apply("thief", 1, 1).await.unwrap()), []);
    let one = stage.apply_as("one", "uid-again", 1, 1).await.unwrap();
    assert_eq!(members(&one), [("h2".to_owned(), Claimed)]);
}
