//! A cluster grows no further than its members fit into the status of its SIPCluster.

use std::collections::BTreeMap;

use placement::MemberState;
use proto::inventory::v1 as wire;
use scheduler::{
    convert,
    error::Error,
    ledger::SitePosition,
    record::Record,
    site::{Apply, SessionId},
};
use vocabulary::labels::NODE_TYPE;

use crate::fixtures::{CALLER, SITE, Stage, cluster, host, labelled, observed, spec, used, with_status};

/// As many hosts of these tests as a cluster may have, nearly; and how many of them may be replaced at once.
pub(crate) const FULL: u32 = 1_960;
const LIMIT: u32 = FULL / 10;

#[tokio::test]
async fn a_cluster_does_not_outgrow_its_status() {
    let stage = Stage::empty();
    let hosts: Vec<_> = (0..2_300).map(|number| host(&format!("h{number:04}"))).collect();
    stage.sync(&hosts).await;

    let refused = stage.apply("huge", 1, 2_300).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge(_)), "{refused}");
    let text = refused.to_string();
    for part in [
        "tenant/huge in site \"a\" with 2300 hosts",
        "the status of its SIPCluster",
        "at most 1310720",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(stage.ledger.load().unwrap().records.is_empty());

    let placed = stage.apply("huge", 2, FULL).await.unwrap();
    assert_eq!(placed.members.len(), FULL as usize);
    let refused = stage.apply("huge", 3, 2_300).await.unwrap_err();
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
    let (stage, session) = placed(FULL + 2 * LIMIT, FULL).await;

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
        reports.any(|report| report.message.contains("has no space for more"))
    };
    assert!(waits(&record), "{:?}", record.reports);
    let refused = stage.apply("huge", 2, FULL + 10).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge(_)), "{refused}");
    let shrunk = stage.apply("huge", 3, FULL - 1).await.unwrap();
    assert!(waits(&shrunk), "{:?}", shrunk.reports);
}

pub(crate) fn releasing(record: &Record) -> usize {
    let members = record.members.values();
    members
        .filter(|member| member.state == MemberState::Releasing)
        .count()
}

/// A site with these hosts, of which a cluster has as many as it wants, bound and used.
async fn placed(hosts: u32, workers: u32) -> (Stage, SessionId) {
    let stage = Stage::empty();
    let free: Vec<_> = (0..hosts).map(|number| host(&name(number))).collect();
    let session = stage.sync_with(&free, &[observed("huge")], None).await;
    let record = stage.apply("huge", 1, workers).await.unwrap();
    stage.report(&session, &bound(&record)).await;
    (stage, session)
}

async fn size(stage: &Stage) -> usize {
    stage.record("huge").await.unwrap().members.len()
}

#[tokio::test]
async fn growth_that_is_withheld_does_not_begin_beside_a_move() {
    let (stage, session) = placed(110, 100).await;
    let waits = stage.apply("huge", 2, 2_300).await.unwrap();
    assert_eq!(waits.members.len(), 100);
    let moved = wire::Host {
        replace_requested: true,
        ..used(labelled(&name(0), "huge"))
    };
    stage.report(&session, &[moved]).await;
    stage.retry().await;
    assert_eq!(size(&stage).await, 101);

    // Now there are hosts for all that it wants, for which its status has no room.
    let more: Vec<_> = (110..2_500).map(|number| host(&name(number))).collect();
    stage.report(&session, &more).await;
    for retry in 1..4 {
        stage.retry().await;
        assert_eq!(size(&stage).await, 101, "retry {retry}: growth is all or nothing");
    }
}

#[tokio::test]
async fn growth_that_is_withheld_lowers_no_limit() {
    let (stage, session) = placed(110, 100).await;
    stage.apply("huge", 2, 2_300).await.unwrap();
    let failed = (0..12).map(|number| wire::Host {
        marked_failed: true,
        ..used(labelled(&name(number), "huge"))
    });
    let more = (110..2_500).map(|number| host(&name(number)));
    stage
        .report(&session, &failed.chain(more).collect::<Vec<_>>())
        .await;
    stage.retry().await;
    assert_eq!(size(&stage).await, 112, "a tenth of 2300 may be replaced at once");
}

/// Of a cluster with two roles a host, bound and used.
fn of_role(name: &str, role: &str) -> wire::Host {
    let mut host = used(labelled(name, "huge"));
    host.labels.insert(NODE_TYPE.to_owned(), role.to_owned());
    host
}

#[tokio::test]
async fn one_of_two_roles_replaces_where_there_is_room_for_one() {
    const SMALL: &str = "Small";
    let stage = Stage::empty();
    let hosts: Vec<_> = (0..2_600).map(|number| host(&name(number))).collect();
    let session = stage.sync_with(&hosts, &[observed("huge")], None).await;
    let mut spec = spec(FULL - 10);
    let mut small = spec.roles[0].clone();
    (small.name, small.active) = (SMALL.to_owned(), 9);
    spec.roles.push(small);
    let apply = Apply {
        cluster: cluster("huge"),
        uid: "uid".to_owned(),
        generation: 1,
        created: None,
        spec: convert::parse_spec(spec, "spec").unwrap(),
    };
    stage.region.apply(SITE, apply, CALLER).await.unwrap();
    // The hosts of the replaced ones stay in use, so that the room is used up: at first many at once, then by twos.
    for round in 0..LIMIT {
        let record = stage.record("huge").await.unwrap();
        let live = record.members.iter();
        let live: Vec<(&str, &str)> = live
            .filter(|(_, member)| member.state != MemberState::Releasing)
            .map(|(id, member)| (id.name.name(), member.role.as_str()))
            .collect();
        let bind: Vec<_> = live.iter().map(|(name, role)| of_role(name, role)).collect();
        stage.report(&session, &bind).await;
        let before = size(&stage).await;
        let failing = |role: &'static str, most: u32| {
            let of_role = live.iter().filter(move |(_, of)| *of == role);
            of_role.take(most as usize)
        };
        let failed = failing(SMALL, 1).chain(failing("Worker", if round == 0 { LIMIT - 11 } else { 1 }));
        let failed = failed.map(|(name, role)| wire::Host {
            marked_failed: true,
            ..of_role(name, role)
        });
        stage.report(&session, &failed.collect::<Vec<_>>()).await;
        stage.retry().await;
        let more = size(&stage).await - before;
        if more < 2 {
            // None would be right if they filled it exactly: with this number of hosts they do not.
            assert_eq!(more, 1, "round {round}, with {before} members");
            return;
        }
    }
    panic!("it is never full");
}

#[tokio::test]
async fn a_full_cluster_is_taken_over_by_a_ledger_that_knows_nothing() {
    let (stage, session) = placed(FULL + 2 * LIMIT, FULL).await;
    let mut hosts: BTreeMap<String, wire::Host> = (0..FULL + 2 * LIMIT)
        .map(|number| (name(number), host(&name(number))))
        .collect();
    let record = stage.record("huge").await.unwrap();
    for shown in bound(&record) {
        hosts.insert(shown.r#ref.clone().unwrap().name, shown);
    }
    for number in 0..LIMIT {
        hosts.get_mut(&name(number)).unwrap().marked_failed = true;
    }
    let shown = |hosts: &BTreeMap<String, wire::Host>| hosts.values().cloned().collect::<Vec<_>>();
    stage.report(&session, &shown(&hosts)).await;
    stage.retry().await;
    let record = stage.record("huge").await.unwrap();
    assert_eq!(record.members.len(), (FULL + LIMIT) as usize);
    // All but one have their labels: the status alone says that it is claimed for growth.
    let replacements = record.members.iter();
    let replacements = replacements.filter(|(_, member)| member.state == MemberState::Claimed);
    for (id, _) in replacements {
        hosts.insert(id.name.name().to_owned(), labelled(id.name.name(), "huge"));
    }
    hosts.insert(name(FULL - 1), host(&name(FULL - 1)));
    stage.report(&session, &shown(&hosts)).await;
    let record = stage.record("huge").await.unwrap();
    let mut status = with_status(&record, 1);
    let unlabelled = status.members.iter_mut();
    unlabelled
        .filter(|member| member.host.as_ref().unwrap().name == name(FULL - 1))
        .for_each(|member| member.set_state(wire::MemberState::Claimed));
    let clusters = [status];

    let stage = Stage::empty();
    let seen = clusters[0].revision.map(SitePosition::from);
    stage.sync_with(&shown(&hosts), &clusters, seen).await;
    let after = stage.apply("huge", 1, FULL).await.unwrap();
    let names = |record: &Record| record.members.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&after), names(&record));
}

pub(crate) fn name(number: u32) -> String {
    format!("h{number:04}")
}

/// The members that stay, each with its labels and in use.
pub(crate) fn bound(record: &Record) -> Vec<wire::Host> {
    let live = record.members.iter();
    let live = live.filter(|(_, member)| member.state != MemberState::Releasing);
    live.map(|(id, _)| used(labelled(id.name.name(), "huge")))
        .collect()
}

/// Declares the cluster with so many workers, and so many bytes besides its members.
async fn declare(
    stage: &Stage,
    generation: i64,
    workers: u32,
    other_bytes: u32,
) -> Result<std::sync::Arc<Record>, Error> {
    let spec = wire::ClusterSpec {
        other_bytes,
        ..spec(workers)
    };
    let apply = Apply {
        cluster: cluster("huge"),
        uid: "uid".to_owned(),
        generation,
        created: None,
        spec: convert::parse_spec(spec, "spec").unwrap(),
    };
    stage.region.apply(SITE, apply, CALLER).await?;
    Ok(stage.record("huge").await.unwrap())
}

/// What an agent declares at most, and about how many hosts fit beside it.
const MOST_BESIDES: u32 = 1 << 20;
const FEW: u32 = 770;

#[tokio::test]
async fn a_large_spec_leaves_room_for_fewer_members() {
    let stage = Stage::empty();
    let hosts: Vec<_> = (0..2_500).map(|number| host(&name(number))).collect();
    stage.sync(&hosts).await;
    let refused = declare(&stage, 1, FEW + 20, MOST_BESIDES).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge(_)), "{refused}");
    for part in [
        "1048576 bytes of spec",
        "the status of its SIPCluster",
        "at most 520192",
    ] {
        assert!(refused.to_string().contains(part), "{refused}");
    }
    assert!(stage.ledger.load().unwrap().records.is_empty());

    let placed = declare(&stage, 2, FEW, MOST_BESIDES).await.unwrap();
    assert_eq!(placed.members.len(), FEW as usize);
    // What is known of the object is in the ledger: a decision that no agent asks for has the same room.
    let reloaded = stage.ledger.load().unwrap().records;
    assert!(
        reloaded
            .values()
            .all(|record| record.spec.other_bytes() == MOST_BESIDES)
    );
    declare(&stage, 3, FEW + 20, 0).await.unwrap();
}

#[tokio::test]
async fn a_spec_grows_only_beside_members_that_still_fit() {
    let (stage, _) = placed(FULL, FULL - 100).await;
    let refused = declare(&stage, 2, FULL - 100, MOST_BESIDES).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge(_)), "{refused}");
    assert_eq!(stage.record("huge").await.unwrap().generation, 1);
    // An agent that knows the size of a cluster that is there, as after an upgrade, takes nothing from it.
    let kept = declare(&stage, 1, FULL - 100, MOST_BESIDES).await.unwrap();
    assert_eq!(kept.members.len(), (FULL - 100) as usize);
    let refused = declare(&stage, 2, FULL - 99, MOST_BESIDES).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge(_)), "{refused}");
    declare(&stage, 3, 1, MOST_BESIDES).await.unwrap();
}
