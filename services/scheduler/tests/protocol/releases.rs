//! From held to free.

use placement::MemberState::{Bound, Claimed, Releasing};
use proto::inventory::v1 as wire;
use scheduler::{
    error::Error,
    record::{Record, ReleaseReason},
};

use crate::fixtures::{CALLER, SITE, Stage, cluster, host, labelled, members, observed, released, used};

#[tokio::test]
async fn a_host_is_free_once_confirmed_and_reported_free() {
    for (name, confirm_first) in [("confirmed, then shown", true), ("shown, then confirmed", false)] {
        let stage = Stage::empty();
        let session = stage.sync(&[host("h1")]).await;
        stage.apply("one", 1, 1).await.unwrap();
        stage.report(&session, &[labelled("h1", "one")]).await;
        let releasing = stage.release("one").await.unwrap();
        assert_eq!(members(&releasing), [("h1".to_owned(), Releasing)], "{name}");
        let shown = released("h1", releasing.revision);

        if confirm_first {
            assert!(stage.confirm(&releasing).await.is_some(), "{name}");
        } else {
            stage.report(&session, std::slice::from_ref(&shown)).await;
        }
        assert!(
            stage.record("one").await.is_some(),
            "{name}: one of the two is not enough"
        );
        assert!(
            stage.apply("two", 1, 1).await.unwrap().refusal.is_some(),
            "{name}: it is not free yet"
        );

        if confirm_first {
            stage.report(&session, &[shown]).await;
        } else {
            assert!(stage.confirm(&releasing).await.is_none(), "{name}");
        }
        assert!(stage.record("one").await.is_none(), "{name}");
        assert_eq!(
            members(&stage.apply("two", 2, 1).await.unwrap()),
            [("h1".to_owned(), Claimed)],
            "{name}"
        );
    }
}

#[tokio::test]
async fn older_marks_and_confirmations_free_nothing() {
    let stage = Stage::empty();
    let session = stage.sync(&[released("h1", 0)]).await;
    stage.apply("one", 1, 1).await.unwrap();
    let releasing = stage.release("one").await.unwrap();
    let mut older = Record::clone(&releasing);
    older.members.values_mut().for_each(|member| member.revision -= 1);

    stage.confirm(&older).await;
    stage
        .report(&session, &[released("h1", releasing.revision)])
        .await;
    assert!(
        stage.record("one").await.is_some(),
        "the confirmation was of another release"
    );

    stage
        .report(&session, &[released("h1", releasing.revision - 1)])
        .await;
    stage.confirm(&releasing).await;
    assert!(
        stage.record("one").await.is_some(),
        "the mark is of another release"
    );
}

#[tokio::test]
async fn a_deleted_releasing_host_is_released_once_confirmed() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.release("one").await.unwrap();

    let gone = wire::HostChanges {
        deleted_hosts: vec![host("h1").r#ref.unwrap()],
        ..wire::HostChanges::default()
    };
    stage
        .region
        .report(SITE, &session, scheduler::convert::changes(SITE, gone))
        .await
        .unwrap();

    let record = stage
        .record("one")
        .await
        .expect("a report may be older than the host");
    assert!(stage.confirm(&record).await.is_none());
}

#[tokio::test]
async fn a_host_that_is_made_again_is_another_host() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    let mut again = host("h1");
    again.r#ref.as_mut().unwrap().uid = "another".to_owned();

    stage.report(&session, &[again]).await;

    let record = stage.record("one").await.unwrap();
    let uids: Vec<_> = record
        .members
        .iter()
        .map(|(id, member)| (id.uid.to_string(), member.failed_since.is_some()))
        .collect();
    assert_eq!(
        uids,
        [("uid-h1".to_owned(), true)],
        "the old one is still the member, and has failed"
    );
}

#[tokio::test]
async fn shrinking_releases_exactly_the_surplus() {
    let stage = Stage::empty();
    stage
        .sync(&[host("h1"), host("h2"), host("h3"), host("h4")])
        .await;
    stage.apply("one", 1, 3).await.unwrap();

    let record = stage.apply("one", 2, 2).await.unwrap();

    let states: Vec<_> = members(&record).into_iter().map(|(_, state)| state).collect();
    assert_eq!(states.iter().filter(|state| **state == Releasing).count(), 1);
    assert_eq!(states.len(), 3);
}

#[tokio::test]
async fn a_cluster_on_its_way_out_takes_no_new_shape() {
    let stage = Stage::empty();
    stage.sync(&[host("h1")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.release("one").await.unwrap();

    assert!(matches!(
        stage.apply("one", 2, 1).await,
        Err(Error::Releasing { cluster: _ })
    ));
}

#[tokio::test]
async fn releasing_what_is_not_held_succeeds_and_says_so() {
    let stage = Stage::empty();
    stage.sync(&[host("h1")]).await;

    assert!(stage.release("never-seen").await.is_none());
}

#[tokio::test]
async fn a_lost_ledger_still_releases_a_deleted_clusters_hosts() {
    let stage = Stage::empty();
    stage.sync(&[labelled("h1", "one")]).await;

    let releasing = stage.release("one").await.unwrap();

    assert_eq!(members(&releasing), [("h1".to_owned(), Releasing)]);
}

#[tokio::test]
async fn a_sipcluster_recreated_and_deleted_releases_its_hosts() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1")]).await;
    stage.apply_as("one", "first", 1, 1).await.unwrap();
    let one = cluster("one");
    let release = |uid| stage.region.release(SITE, &one, uid, CALLER);
    let unknown = release("second").await;
    assert!(
        matches!(unknown, Err(Error::Superseded { what: _, by: _ })),
        "nobody has seen it: {unknown:?}"
    );

    stage.report_cluster(&session, "one", "second").await;
    let releasing = release("second").await.unwrap().record.unwrap();

    assert_eq!(members(&releasing), [("h1".to_owned(), Releasing)]);
    assert_eq!(releasing.uid, "second");
}

#[tokio::test]
async fn a_surplus_member_in_use_is_requested_not_taken() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1"), host("h2")]).await;
    stage.apply("one", 1, 2).await.unwrap();
    let in_use = |name: &str| used(labelled(name, "one"));
    stage.report(&session, &[in_use("h1"), in_use("h2")]).await;

    let asked = stage.apply("one", 2, 1).await.unwrap();
    let names = |record: &scheduler::record::Record, wanted| -> Vec<String> {
        let members = members(record).into_iter();
        members
            .filter(|(_, state)| *state == wanted)
            .map(|(name, _)| name)
            .collect()
    };
    let [first] = &*names(&asked, Releasing) else {
        panic!("{asked:?}")
    };
    let other = if first == "h1" { "h2" } else { "h1" };
    stage.retry().await;
    assert_eq!(
        stage.record("one").await.unwrap(),
        asked,
        "while nothing changes the same one is asked"
    );

    stage.report(&session, &[labelled(other, "one")]).await;
    stage.retry().await;

    let record = stage.record("one").await.unwrap();
    assert_eq!(names(&record, Releasing), [other]);
    assert_eq!(
        names(&record, Bound),
        std::slice::from_ref(first),
        "who is still in use stays"
    );
    stage.report(&session, &[labelled(first, "one")]).await;
    stage.retry().await;
    assert_eq!(
        names(&stage.record("one").await.unwrap(), Releasing),
        [other],
        "a release without a consumer stands"
    );
}

#[tokio::test]
async fn a_deletion_ends_what_was_only_requested() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1"), host("h2"), host("h3")]).await;
    stage.apply_as("one", "first", 1, 1).await.unwrap();
    stage.report_cluster(&session, "one", "first").await;
    stage.report(&session, &[used(labelled("h1", "one"))]).await;
    let requested = stage.apply_as("one", "first", 2, 0).await.unwrap();
    let reason = |record: &scheduler::record::Record| {
        let member = record.members.values().next().unwrap();
        (member.state, member.release_reason)
    };
    assert_eq!(reason(&requested), (Releasing, Some(ReleaseReason::Surplus)));

    let one = cluster("one");
    let deleted = stage.region.release(SITE, &one, "first", CALLER).await.unwrap();

    assert_eq!(
        reason(&deleted.record.unwrap()),
        (Releasing, Some(ReleaseReason::Deleted))
    );
    stage.report_cluster(&session, "one", "second").await;
    let second = stage.apply_as("one", "second", 1, 1).await.unwrap();
    let of_h1 = members(&second).into_iter().find(|(name, _)| name == "h1");
    assert_eq!(of_h1, Some(("h1".to_owned(), Releasing)), "it does not return");
}

#[tokio::test]
async fn a_report_of_many_hosts_is_one_step_for_each_cluster() {
    let stage = Stage::empty();
    let hosts: Vec<String> = (0..20).map(|index| format!("h{index}")).collect();
    let session = stage
        .sync(&hosts.iter().map(|name| host(name)).collect::<Vec<_>>())
        .await;
    let claimed = stage.apply("one", 1, 20).await.unwrap();

    let all: Vec<_> = hosts.iter().map(|name| labelled(name, "one")).collect();
    stage.report(&session, &all).await;

    let bound = stage.record("one").await.unwrap();
    assert!(members(&bound).iter().all(|(_, state)| *state == Bound));
    assert_eq!(bound.revision, claimed.revision + 1);
}

/// A consumer in a namespace.
fn used_in(namespace: &str, host: wire::Host) -> wire::Host {
    let mut host = used(host);
    namespace.clone_into(&mut host.consumer.as_mut().unwrap().namespace);
    host
}

#[tokio::test]
async fn a_released_host_in_use_is_reported_and_given_to_none() {
    // Its own tenant's machine controller was late; or another tenant's took a host that is nobody's.
    for (tenant, who) in [
        ("tenant", "Metal3Machine tenant/m-0"),
        ("another", "a consumer of another namespace"),
    ] {
        let stage = Stage::empty();
        let clusters = [observed("one"), observed("two")];
        let session = stage.sync_with(&[host("h1")], &clusters, None).await;
        stage.apply("one", 1, 1).await.unwrap();
        stage.report(&session, &[labelled("h1", "one")]).await;
        let releasing = stage.apply("one", 2, 0).await.unwrap();
        let revision = releasing.revision;
        let two = stage.apply("two", 1, 1).await.unwrap();
        assert!(two.refusal.is_some());

        // Unlabelled, marked, and used before the agent has confirmed it.
        stage
            .report(&session, &[used_in(tenant, released("h1", revision))])
            .await;
        let reported = stage.record("one").await.unwrap();
        assert_eq!(reported.conflicts[0].kind, "used-after-release");
        assert!(reported.conflicts[0].message.ends_with(who), "{reported:?}");
        assert_eq!(stage.why_not("h1"), ["consumed", "held"]);

        // Released, and still not to be had: not by the one that released it, not by another, not after a restart.
        let left = stage.confirm(&reported).await.unwrap();
        assert_eq!(members(&left), []);
        stage.retry().await;
        assert_eq!(members(&stage.record("two").await.unwrap()), []);
        assert_eq!(members(&stage.apply("one", 3, 1).await.unwrap()), []);
        let stage = stage.restart();
        let session = stage
            .sync_with(&[used_in(tenant, released("h1", revision))], &clusters, None)
            .await;
        stage.retry().await;
        assert_eq!(stage.why_not("h1"), ["consumed"]);
        assert_eq!(members(&stage.record("two").await.unwrap()), []);

        // Until its user has let go.
        stage.report(&session, &[released("h1", revision)]).await;
        stage.retry().await;
        let held: Vec<_> = [
            stage.record("one").await.unwrap(),
            stage.record("two").await.unwrap(),
        ]
        .iter()
        .flat_map(|record| members(record))
        .collect();
        assert_eq!(held, [("h1".to_owned(), Claimed)], "{tenant}");
    }
}

#[tokio::test]
async fn a_host_used_before_its_release_is_no_late_claim() {
    let stage = Stage::empty();
    let session = stage.sync_with(&[host("h1")], &[observed("one")], None).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, &[used(labelled("h1", "one"))]).await;

    let releasing = stage.apply("one", 2, 0).await.unwrap();

    assert_eq!(members(&releasing), [("h1".to_owned(), Releasing)]);
    assert_eq!(stage.conflicts("one").await, [""; 0]);
    assert_eq!(stage.why_not("h1"), ["consumed", "held"]);
}

#[tokio::test]
async fn a_requested_member_that_is_replaced_does_not_return() {
    let stage = Stage::empty();
    let hosts = [host("h1"), host("h2"), host("h3"), host("h4")];
    let session = stage.sync(&hosts).await;
    let claimed = stage.apply("one", 1, 2).await.unwrap();
    let in_use = |name: &str| used(labelled(name, "one"));
    for (name, _) in members(&claimed) {
        stage.report(&session, &[in_use(&name)]).await;
    }
    let asked = stage.apply("one", 2, 1).await.unwrap();
    let mut states = members(&asked).into_iter();
    let (name, _) = states.find(|(_, state)| *state == Releasing).unwrap();
    let failed = wire::Host {
        marked_failed: true,
        ..in_use(&name)
    };
    stage.report(&session, &[failed]).await;

    let replaced = stage.apply("one", 3, 2).await.unwrap();
    assert_eq!(replaced.members.len(), 3, "{replaced:?}");
    stage.retry().await;

    let again = stage.apply("one", 4, 3).await.unwrap();
    assert_eq!(again.members.len(), 4, "the role grows by one: {again:?}");
    let gone = again.members.iter().find(|(id, _)| id.name.name() == name);
    assert_eq!(gone.unwrap().1.release_reason, Some(ReleaseReason::Failed));
}
