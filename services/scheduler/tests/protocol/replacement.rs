//! When a member has failed, and what comes in its place. Time is the stage's own clock.

use std::{sync::Arc, time::Duration};

use placement::MemberState::{self, Bound, Claimed, Releasing};
use proto::inventory::v1 as wire;
use scheduler::{
    record::{Record, ReleaseReason},
    site::{Apply, Author, MISSING_LIMIT, SessionId},
};

use crate::fixtures::{
    CALLER, SITE, Stage, again, cluster, host, labelled, members, observed, released, spec,
};

pub(crate) const GRACE: Duration = Duration::from_mins(10);
pub(crate) const SHORT: Duration = Duration::from_mins(4);

/// Declares the cluster `one`, whose workers may be in error for [`GRACE`].
pub(crate) async fn declare(stage: &Stage, workers: u32, grace: Option<Duration>) -> Arc<Record> {
    let mut spec = spec(workers);
    spec.roles[0].replace_after_error = grace.map(|grace| grace.try_into().unwrap());
    let apply = Apply {
        cluster: cluster("one"),
        uid: "uid".to_owned(),
        generation: 1,
        created: None,
        spec: scheduler::convert::parse_spec(spec, "spec").unwrap(),
    };
    let told = stage.region.apply(SITE, apply, CALLER).await.unwrap();
    told.record.unwrap()
}

/// What the scheduler does by itself when time has gone by.
pub(crate) async fn report(stage: &Stage) {
    let site = stage.region.site(SITE).unwrap();
    let now = stage.now();
    let failed = site.read().failed_meanwhile(now);
    for cluster in failed {
        let permit = stage.region.committer().reserve().await.unwrap();
        let author = Author {
            caller: "scheduler",
            action: "observe",
            now,
        };
        site.lock().settle(&cluster, &author, permit);
    }
    stage.retry().await;
}

/// A site with a worker in each of some racks, the first of them bound to the cluster.
pub(crate) async fn placed(hosts: &[&str], workers: u32, grace: Option<Duration>) -> (Stage, SessionId) {
    let stage = Stage::empty();
    let free: Vec<wire::Host> = hosts.iter().map(|name| host(name)).collect();
    let session = stage.sync(&free).await;
    declare(&stage, workers, grace).await;
    for name in hosts.iter().take(usize::try_from(workers).unwrap()) {
        stage.report(&session, &[labelled(name, "one")]).await;
    }
    let held = now(&stage).await;
    assert!(held.iter().all(|(_, state)| *state == Bound), "{held:?}");
    (stage, session)
}

pub(crate) async fn now(stage: &Stage) -> Vec<(String, MemberState)> {
    members(&stage.record("one").await.unwrap())
}

pub(crate) fn in_state(name: &str, state: MemberState) -> (String, MemberState) {
    (name.to_owned(), state)
}

pub(crate) fn in_error(host: wire::Host, since: Option<std::time::SystemTime>) -> wire::Host {
    wire::Host {
        operational_status: wire::OperationalStatus::Error.into(),
        error_since: since.map(Into::into),
        ..host
    }
}

pub(crate) fn paused(host: wire::Host) -> wire::Host {
    wire::Host { paused: true, ..host }
}

#[tokio::test]
async fn a_member_in_error_is_replaced_after_its_time() {
    let (stage, session) = placed(&["h1", "h2"], 1, Some(GRACE)).await;
    stage
        .report(&session, &[in_error(labelled("h1", "one"), None)])
        .await;
    report(&stage).await;
    stage.pass(GRACE.checked_sub(Duration::from_secs(1)).unwrap());
    report(&stage).await;
    assert_eq!(now(&stage).await, [in_state("h1", Bound)], "it is too early");

    stage.pass(Duration::from_secs(1));
    report(&stage).await;

    assert_eq!(
        now(&stage).await,
        [in_state("h1", Releasing), in_state("h2", Claimed)]
    );
    let record = stage.record("one").await.unwrap();
    let new = record.members.values().find(|member| member.state == Claimed);
    assert_eq!(new.unwrap().replaces.as_ref().unwrap().host().name.name(), "h1");
    let old = record.members.values().find(|member| member.state == Releasing);
    let old = old.unwrap();
    assert_eq!(old.release_reason, Some(ReleaseReason::Failed));
    assert_eq!(old.failed_since, Some(stage.now()), "it is said since when");
}

#[tokio::test]
async fn the_time_of_an_error_survives_restarts_not_recovery() {
    // What the agent says the second time, and whether the time has gone on.
    let cases = [
        ("an agent that has started again knows no time", None, true),
        (
            "an agent that has seen it fall again",
            Some(Duration::from_mins(3)),
            false,
        ),
    ];
    for (case, fell, goes_on) in cases {
        let (stage, session) = placed(&["h1", "h2"], 1, Some(GRACE)).await;
        stage
            .report(&session, &[in_error(labelled("h1", "one"), Some(stage.now()))])
            .await;
        stage.pass(SHORT);
        let stage = stage.restart_at();
        let since = fell.map(|ago| stage.now() - ago);
        let hosts = [in_error(labelled("h1", "one"), since), host("h2")];
        stage.sync_with(&hosts, &[observed("one")], None).await;
        report(&stage).await;
        assert_eq!(now(&stage).await, [in_state("h1", Bound)], "{case}");

        stage.pass(GRACE.checked_sub(SHORT).unwrap());
        report(&stage).await;

        let replaced = now(&stage).await.contains(&in_state("h2", Claimed));
        assert_eq!(replaced, goes_on, "{case}");
    }
}

#[tokio::test]
async fn an_error_fails_a_member_only_where_the_role_opts_in() {
    let bad = |host| in_error(host, None);
    let detached = |host| wire::Host {
        detached: true,
        ..bad(host)
    };
    let servicing = |host| wire::Host {
        operational_status: wire::OperationalStatus::Servicing.into(),
        ..host
    };
    let cases: [(Option<Duration>, wire::Host); 5] = [
        (None, bad(labelled("h1", "one"))),
        (Some(GRACE), paused(bad(labelled("h1", "one")))),
        (Some(GRACE), detached(labelled("h1", "one"))),
        (Some(GRACE), servicing(labelled("h1", "one"))),
        (Some(GRACE), paused(labelled("h1", "one"))),
    ];
    for (grace, shown) in cases {
        let (stage, session) = placed(&["h1", "h2"], 1, grace).await;
        stage.report(&session, std::slice::from_ref(&shown)).await;
        stage.pass(10 * GRACE);
        stage.report(&session, std::slice::from_ref(&shown)).await;
        report(&stage).await;
        assert_eq!(now(&stage).await, [in_state("h1", Bound)], "{shown:?}");
    }
}

#[tokio::test]
async fn a_deleted_host_is_replaced_if_another_is_free() {
    let (stage, session) = placed(&["h1", "h2"], 1, None).await;
    stage.report_gone(&session, &["h1"]).await;
    report(&stage).await;
    assert_eq!(
        now(&stage).await,
        [in_state("h1", Releasing), in_state("h2", Claimed)]
    );

    let (stage, session) = placed(&["h1"], 1, None).await;
    stage.report_gone(&session, &["h1"]).await;
    report(&stage).await;
    let record = stage.record("one").await.unwrap();
    assert_eq!(members(&record), [in_state("h1", Bound)]);
    assert_eq!(record.conflicts[0].kind, "host-missing");
    assert!(record.refusal.is_some(), "and it is said what is missing");
    assert!(
        record
            .reports
            .iter()
            .any(|report| report.kind == "no-replacement")
    );

    // A host that comes takes its place, without being asked.
    stage.report(&session, &[host("h9")]).await;
    stage.retry().await;
    assert_eq!(
        now(&stage).await,
        [in_state("h1", Releasing), in_state("h9", Claimed)]
    );
}

#[tokio::test]
async fn moved_hosts_keep_their_places_under_new_uids() {
    let (stage, session) = placed(&["h1", "h2"], 1, None).await;
    stage.report(&session, &[paused(labelled("h1", "one"))]).await;
    stage.report_gone(&session, &["h1"]).await;
    report(&stage).await;
    assert_eq!(
        now(&stage).await,
        [in_state("h1", Bound)],
        "it was paused when it went"
    );
    // Nor does a restart forget how it was.
    let stage = stage.restart_at();
    let session = stage.sync_with(&[host("h2")], &[observed("one")], None).await;
    stage.pass(MISSING_LIMIT.checked_sub(Duration::from_secs(1)).unwrap());
    report(&stage).await;
    assert_eq!(now(&stage).await, [in_state("h1", Bound)]);

    stage
        .report(&session, &[paused(again(labelled("h1", "one")))])
        .await;
    stage.pass(2 * MISSING_LIMIT);
    report(&stage).await;

    let record = stage.record("one").await.unwrap();
    assert_eq!(members(&record), [in_state("h1", Bound)]);
    let (id, member) = record.members.first_key_value().unwrap();
    assert_eq!((id.uid.as_str(), member.failed_since), ("uid-h1-again", None));
}

#[tokio::test]
async fn a_host_missing_after_a_move_has_failed() {
    let (stage, session) = placed(&["h1", "h2"], 1, None).await;
    stage.report(&session, &[paused(labelled("h1", "one"))]).await;
    stage.report_gone(&session, &["h1"]).await;
    stage.pass(MISSING_LIMIT);
    report(&stage).await;
    assert_eq!(
        now(&stage).await,
        [in_state("h1", Releasing), in_state("h2", Claimed)]
    );
}

#[tokio::test]
async fn members_move_one_at_a_time_after_their_replacement() {
    let (stage, session) = placed(&["h1", "h2", "h3", "h4"], 2, None).await;
    let asked = |name| wire::Host {
        replace_requested: true,
        ..labelled(name, "one")
    };
    stage.report(&session, &[asked("h1"), asked("h2")]).await;
    stage.retry().await;
    assert_eq!(
        now(&stage).await,
        [
            in_state("h1", Bound),
            in_state("h2", Bound),
            in_state("h3", Claimed)
        ],
        "both stay, and one gets a replacement"
    );

    stage.report(&session, &[labelled("h3", "one")]).await;
    stage.retry().await;
    let record = stage.record("one").await.unwrap();
    let releasing = record
        .members
        .iter()
        .find(|(_, member)| member.state == Releasing);
    let (id, member) = releasing.unwrap();
    assert_eq!(id.name.name(), "h1");
    assert_eq!(
        now(&stage).await,
        [
            in_state("h1", Releasing),
            in_state("h2", Bound),
            in_state("h3", Bound),
            in_state("h4", Claimed)
        ]
    );

    // It is not free for others while it is to be left alone.
    let mut given_back = released("h1", member.revision);
    given_back.replace_requested = true;
    stage.report(&session, &[given_back]).await;
    stage.confirm(&record).await;
    assert_eq!(stage.why_not("h1"), ["replace-requested"]);
}

#[tokio::test]
async fn the_scheduler_notices_an_expired_error_by_itself() {
    let (stage, session) = placed(&["h1", "h2"], 1, Some(GRACE)).await;
    stage
        .report(&session, &[in_error(labelled("h1", "one"), None)])
        .await;
    stage.pass(GRACE.mul_f64(0.9999));
    let retries = tokio::spawn(stage.region.clone().run_retries());
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(now(&stage).await, [in_state("h1", Bound)]);
    stage.pass(GRACE);

    let mut durable = stage.region.committer().watch();
    let replaced = async {
        while now(&stage).await != [in_state("h1", Releasing), in_state("h2", Claimed)] {
            durable.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(10), replaced)
        .await
        .unwrap();
    retries.abort();
}

#[tokio::test]
async fn a_new_topology_key_gives_members_its_domain() {
    let in_room = |mut host: wire::Host, room: &str| {
        host.labels.insert("room".to_owned(), room.to_owned());
        host
    };
    let stage = Stage::empty();
    // By name h2 comes before h3.
    let hosts =
        [("h1", "east"), ("h2", "east"), ("h3", "west")].map(|(name, room)| in_room(host(name), room));
    let session = stage.sync(&hosts).await;
    stage.apply("one", 1, 1).await.unwrap();
    let h1 = in_room(labelled("h1", "one"), "east");
    stage.report(&session, std::slice::from_ref(&h1)).await;

    let by_room = async |generation, workers| {
        let mut spec = spec(workers);
        "room".clone_into(&mut spec.roles[0].topology_key);
        let apply = Apply {
            cluster: cluster("one"),
            uid: "uid".to_owned(),
            generation,
            created: None,
            spec: scheduler::convert::parse_spec(spec, "spec").unwrap(),
        };
        stage.region.apply(SITE, apply, CALLER).await.unwrap();
        stage.record("one").await.unwrap()
    };
    let record = by_room(2, 1).await;
    let domains: Vec<_> = record.members.values().map(|member| &member.domain).collect();
    let east = placement::Domain {
        key: "room".parse().unwrap(),
        value: "east".parse().unwrap(),
    };
    assert_eq!(domains, [&Some(east)]);

    // While its host is not there, its record tells in which room it is.
    stage.report(&session, &[paused(h1)]).await;
    stage.report_gone(&session, &["h1"]).await;
    by_room(3, 2).await;
    assert_eq!(
        now(&stage).await,
        [in_state("h1", Bound), in_state("h3", Claimed)]
    );
}

#[tokio::test]
async fn a_host_that_was_relabelled_holds_its_rack_while_it_is_away() {
    let (stage, session) = placed(&["h1", "h2"], 1, None).await;
    let mut h1 = paused(labelled("h1", "one"));
    h1.labels.insert("rack".to_owned(), "rack-h2".to_owned());
    stage.report(&session, std::slice::from_ref(&h1)).await;
    stage.report_gone(&session, &["h1"]).await;

    stage.apply("one", 2, 2).await.unwrap();
    assert_eq!(now(&stage).await, [in_state("h1", Bound)], "h2 is in its rack");

    // Nor does a restart forget that.
    let stage = stage.restart_at();
    let session = stage.sync_with(&[host("h2")], &[observed("one")], None).await;
    stage.retry().await;
    assert_eq!(now(&stage).await, [in_state("h1", Bound)]);
    stage.report(&session, &[h1, host("h3")]).await;
    stage.retry().await;
    assert_eq!(
        now(&stage).await,
        [in_state("h1", Bound), in_state("h3", Claimed)]
    );
}
