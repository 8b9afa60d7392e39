//! A cluster grows no further than its members fit into the status of its SIPCluster.

use placement::MemberState;
use proto::inventory::v1 as wire;
use scheduler::{error::Error, record::Record};

use crate::fixtures::{Stage, host, labelled, observed, used};

/// As many hosts of these tests as a cluster may have, nearly; and how many of them may be replaced at once.
const FULL: u32 = 1_960;
const LIMIT: u32 = FULL / 10;

#[tokio::test]
async fn a_cluster_does_not_outgrow_its_status() {
    let stage = Stage::empty();
    let hosts: Vec<_> = (0..2_500).map(|number| host(&format!("h{number:04}"))).collect();
    stage.sync(&hosts).await;

    let refused = stage.apply("huge", 1, 2_500).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge(_)), "{refused}");
    let text = refused.to_string();
    for part in [
        "tenant/huge in site \"a\" with 2500 hosts",
        "the status of its SIPCluster",
        "at most 1310720",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(stage.ledger.load().unwrap().records.is_empty());

    let placed = stage.apply("huge", 2, FULL).await.unwrap();
    assert_eq!(placed.members.len(), FULL as usize);
    let refused = stage.apply("huge", 3, 2_500).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge(_)), "{refused}");
    let shrunk = stage.apply("huge", 4, 1).await.unwrap();
    let releasing = shrunk
        .members
        .values()
        .filter(|member| member.release_reason.is_some());
    assert_eq!(releasing.count(), FULL as usize - 1);
}

#[tokio::test]
async fn a_full_cluster_replaces_as_many_as_there_is_room() {
    let stage = Stage::empty();
    let name = |number: u32| format!("h{number:04}");
    let hosts: Vec<_> = (0..FULL + 2 * LIMIT).map(|number| host(&name(number))).collect();
    let session = stage.sync_with(&hosts, &[observed("huge")], None).await;
    stage.apply("huge", 1, FULL).await.unwrap();
    let bound = |record: &Record| -> Vec<_> {
        let live = record.members.iter();
        let live = live.filter(|(_, member)| member.state != MemberState::Releasing);
        live.map(|(id, _)| used(labelled(id.name.name(), "huge")))
            .collect()
    };
    let record = stage.record("huge").await.unwrap();
    stage.report(&session, &bound(&record)).await;

    // One fails, then as many as may be replaced at once: there is room for all of them.
    let fail = |from: u32, to: u32| -> Vec<_> {
        let failed = |number| wire::Host {
            marked_failed: true,
            ..used(labelled(&name(number), "huge"))
        };
        (from..to).map(failed).collect()
    };
    stage.report(&session, &fail(0, LIMIT)).await;
    let record = stage.apply("huge", 1, FULL).await.unwrap();
    assert_eq!(record.members.len(), (FULL + LIMIT) as usize);
    assert_eq!(releasing(&record), LIMIT as usize);
    stage.report(&session, &bound(&record)).await;

    // Their hosts are still used. The next ones that fail are replaced as far as there is room, and no step fails.
    stage.report(&session, &fail(LIMIT, 2 * LIMIT)).await;
    let record = stage.apply("huge", 1, FULL).await.unwrap();
    let more = releasing(&record) - LIMIT as usize;
    assert!(0 < more && more < LIMIT as usize, "{more} more are replaced");
    let waits = |record: &Record| {
        let mut reports = record.reports.iter();
        reports.any(|report| report.message.contains("there is no room for more"))
    };
    assert!(waits(&record), "{:?}", record.reports);
    let refused = stage.apply("huge", 2, FULL + 10).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge(_)), "{refused}");
    let shrunk = stage.apply("huge", 3, FULL - 1).await.unwrap();
    assert!(waits(&shrunk), "{:?}", shrunk.reports);
}

fn releasing(record: &Record) -> usize {
    let members = record.members.values();
    members
        .filter(|member| member.state == MemberState::Releasing)
        .count()
}
