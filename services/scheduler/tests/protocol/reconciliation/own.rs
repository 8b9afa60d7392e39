//! The rows of hosts that our cluster holds.

use placement::MemberState::{Bound, Claimed, Releasing};
use scheduler::ledger::Commit;

use super::{bound, claimed, releasing};
use crate::fixtures::{again, half_labelled, host, labelled, members, released, used};

#[tokio::test]
async fn claimed_and_unlabelled() {
    let (stage, session, before) = claimed().await;

    stage.report(&session, &[host("h1")]).await;
    assert_eq!(stage.record("one").await.unwrap(), before, "the claim stands");
    assert_eq!(stage.conflicts("one").await, [""; 0], "it waits to be labelled");

    // Somebody was quicker: it stands until there is another host, and is released then.
    stage.report(&session, &[used(host("h1"))]).await;
    let taken = stage.record("one").await.unwrap();
    assert_eq!(members(&taken), members(&before));
    assert!(taken.members.values().all(|member| member.failed_since.is_some()));
    stage.report(&session, &[host("h2")]).await;
    let replaced = stage.apply("one", 1, 2).await.unwrap();
    assert_eq!(
        members(&replaced),
        [("h1".to_owned(), Releasing), ("h2".to_owned(), Claimed)]
    );
}

#[tokio::test]
async fn a_claimed_host_that_is_let_go_again_has_not_failed() {
    let (stage, session, before) = claimed().await;
    stage.report(&session, &[used(host("h1"))]).await;
    stage.report(&session, &[host("h1")]).await;
    let after = stage.record("one").await.unwrap();
    assert_eq!(members(&after), members(&before));
    assert!(after.members.values().all(|member| member.failed_since.is_none()));
}

#[tokio::test]
async fn claimed_and_ours() {
    let (stage, session, _) = claimed().await;

    let mut other_role = labelled("h1", "one");
    let role = vocabulary::labels::NODE_TYPE.to_owned();
    other_role.labels.insert(role, "ControlPlane".to_owned());
    stage.report(&session, &[other_role]).await;
    assert_eq!(
        members(&stage.record("one").await.unwrap()),
        [("h1".to_owned(), Claimed)]
    );
    assert_eq!(stage.conflicts("one").await, ["labels-of-another-role"]);

    stage.report(&session, &[labelled("h1", "one")]).await;
    assert_eq!(
        members(&stage.record("one").await.unwrap()),
        [("h1".to_owned(), Bound)]
    );
    assert_eq!(stage.conflicts("one").await, [""; 0]);
}

#[tokio::test]
async fn claimed_and_foreign() {
    let (stage, session, _) = claimed().await;

    stage.report(&session, &[labelled("h1", "two")]).await;

    let one = stage.record("one").await.unwrap();
    assert_eq!(members(&one), [("h1".to_owned(), Claimed)], "the claim stands");
    assert_eq!(stage.conflicts("one").await, ["labels-of-another"]);
    let two = stage.apply("two", 1, 1).await.unwrap();
    assert_eq!(members(&two), [], "labels alone take nothing from a cluster");
    assert_eq!(stage.conflicts("two").await, ["held-by-another"]);
}

#[tokio::test]
async fn a_report_names_no_cluster_of_another_namespace() {
    let (stage, session, _) = claimed().await;
    let near = labelled("h1", "two");
    let mut far = near.clone();
    let namespace = vocabulary::labels::CLUSTER_NAMESPACE.to_owned();
    far.labels.insert(namespace, "bank".to_owned());
    for (reported, expected) in [(near, "tenant/two"), (far, "a SIPCluster of another namespace")] {
        stage.report(&session, &[reported]).await;
        let one = stage.record("one").await.unwrap();
        let messages: Vec<&str> = one.conflicts.iter().map(|report| &*report.message).collect();
        let expected = format!("is held by this cluster, and its labels name {expected}");
        assert!(
            matches!(messages[..], [message] if message.ends_with(&expected)),
            "{messages:?}"
        );
    }
}

#[tokio::test]
async fn claimed_and_partial_labels() {
    let (stage, session, _) = claimed().await;

    stage.report(&session, &[half_labelled("h1", "one")]).await;

    let one = stage.record("one").await.unwrap();
    assert_eq!(members(&one), [("h1".to_owned(), Claimed)]);
    assert_eq!(stage.conflicts("one").await, ["labels-partial"]);
}

#[tokio::test]
async fn claimed_and_uid_gone() {
    let (stage, session, _) = claimed().await;

    stage.report_gone(&session, &["h1"]).await;
    assert_eq!(stage.conflicts("one").await, ["host-missing"]);
    stage.report(&session, &[host("h2")]).await;
    stage.retry().await;
    stage.report(&session, &[]).await;

    let one = stage.record("one").await.unwrap();
    assert!(one.refusal.is_none());
    let claimed = members(&one).into_iter().filter(|(_, state)| *state == Claimed);
    assert_eq!(claimed.collect::<Vec<_>>(), [("h2".to_owned(), Claimed)]);
}

#[tokio::test]
async fn bound_and_unlabelled() {
    let (stage, session, before) = bound().await;

    stage.report(&session, &[used(host("h1"))]).await;

    let one = stage.record("one").await.unwrap();
    assert_eq!(one.members, before.members, "the claim stands");
    assert_eq!(stage.conflicts("one").await, ["labels-missing"]);
    stage.report(&session, &[used(labelled("h1", "one"))]).await;
    assert_eq!(stage.conflicts("one").await, [""; 0]);
    let log = stage.ledger.decisions(Commit::MAX, 1, &|_| true).unwrap();
    assert_eq!(log[0].resolved.len(), 1, "that it is over is in the log");
}

#[tokio::test]
async fn bound_and_ours() {
    let (stage, session, before) = bound().await;

    stage.report(&session, &[used(labelled("h1", "one"))]).await;

    assert_eq!(stage.record("one").await.unwrap(), before);
    assert_eq!(stage.conflicts("one").await, [""; 0]);
}

#[tokio::test]
async fn bound_and_foreign() {
    let (stage, session, before) = bound().await;

    stage.report(&session, &[labelled("h1", "two")]).await;

    let one = stage.record("one").await.unwrap();
    assert_eq!(one.members, before.members, "the claim stands");
    assert_eq!(stage.conflicts("one").await, ["labels-of-another"]);
    assert_eq!(members(&stage.apply("two", 1, 1).await.unwrap()), []);
}

#[tokio::test]
async fn bound_and_partial_labels() {
    let (stage, session, before) = bound().await;

    stage.report(&session, &[half_labelled("h1", "one")]).await;

    assert_eq!(stage.record("one").await.unwrap().members, before.members);
    assert_eq!(stage.conflicts("one").await, ["labels-partial"]);
}

#[tokio::test]
async fn bound_and_uid_gone() {
    let (stage, session, _) = bound().await;

    stage.report(&session, &[again(host("h1"))]).await;
    assert_eq!(stage.conflicts("one").await, ["host-missing"]);
    stage.retry().await;
    let uids: Vec<_> = stage
        .record("one")
        .await
        .unwrap()
        .members
        .iter()
        .map(|(id, member)| (id.uid.to_string(), member.state))
        .collect();
    assert!(
        uids.contains(&("uid-h1-again".to_owned(), Claimed)),
        "the new host may replace it: {uids:?}"
    );

    let (stage, session, before) = bound().await;
    stage.report(&session, &[again(labelled("h1", "one"))]).await;
    let one = stage.record("one").await.unwrap();
    let kept: Vec<_> = one
        .members
        .iter()
        .map(|(id, member)| (id.uid.as_str(), member))
        .collect();
    let mut followed = before.members.values().next().unwrap().clone();
    followed.revision = one.revision;
    assert_eq!(
        kept,
        [("uid-h1-again", &followed)],
        "made again with its labels it goes on as the member, by a claim of its own"
    );
}

#[tokio::test]
async fn releasing_and_unlabelled() {
    let (stage, session, record) = releasing().await;

    stage.report(&session, &[host("h1")]).await;
    stage.confirm(&record).await;
    assert_eq!(stage.why_not("h1"), ["held"], "the mark is not there");
    stage
        .report(&session, &[used(released("h1", record.revision))])
        .await;

    assert!(stage.record("one").await.is_none());
    assert_eq!(
        stage.why_not("h1"),
        ["consumed"],
        "who uses it after its release blocks its reuse"
    );
}

#[tokio::test]
async fn releasing_and_ours() {
    let (stage, session, record) = releasing().await;
    assert_eq!(stage.conflicts("one").await, [""; 0], "it waits to be unlabelled");

    stage.confirm(&record).await;
    let mut back = labelled("h1", "one");
    back.release_mark = record.revision;
    stage.report(&session, &[back]).await;

    let one = stage.record("one").await.unwrap();
    assert_eq!(members(&one), [("h1".to_owned(), Releasing)], "it is not free");
    assert_eq!(stage.conflicts("one").await, ["labels-back"]);
    stage.report(&session, &[released("h1", record.revision)]).await;
    assert!(stage.record("one").await.is_none());
}

#[tokio::test]
async fn releasing_and_foreign() {
    let (stage, session, record) = releasing().await;

    stage.report(&session, &[labelled("h1", "two")]).await;

    assert_eq!(stage.conflicts("one").await, ["labels-of-another"]);
    assert_eq!(
        members(&stage.apply("two", 1, 1).await.unwrap()),
        [],
        "its release is not written"
    );
    let mut given_away = labelled("h1", "two");
    given_away.release_mark = record.revision;
    stage.report(&session, &[given_away]).await;
    assert!(
        stage.record("one").await.is_none(),
        "the mark says that its release was written"
    );
    let two = stage.apply("two", 2, 1).await.unwrap();
    assert_eq!(members(&two), [("h1".to_owned(), Bound)]);
}

#[tokio::test]
async fn releasing_and_partial_labels() {
    let (stage, session, record) = releasing().await;

    stage.confirm(&record).await;
    let mut half = half_labelled("h1", "one");
    half.release_mark = record.revision;
    stage.report(&session, &[half]).await;

    let one = stage.record("one").await.unwrap();
    assert_eq!(members(&one), [("h1".to_owned(), Releasing)], "it is not free");
    assert_eq!(stage.conflicts("one").await, ["labels-partial"]);
}

#[tokio::test]
async fn releasing_and_uid_gone() {
    let (stage, session, before) = releasing().await;
    stage.report(&session, &[again(labelled("h1", "one"))]).await;
    let one = stage.record("one").await.unwrap();
    let ids: Vec<_> = one
        .members
        .iter()
        .map(|(id, member)| (id.uid.as_str(), member.state))
        .collect();
    assert_eq!(
        ids,
        [("uid-h1-again", Releasing)],
        "made again with its labels it goes on releasing"
    );
    assert_eq!(
        one.members.values().next().unwrap().revision,
        before.members.values().next().unwrap().revision
    );

    stage.report(&session, &[again(again(host("h1")))]).await;

    let gone = stage
        .record("one")
        .await
        .expect("a report may be older than the host");
    assert!(
        stage.confirm(&gone).await.is_none(),
        "it is released, and another host has its name"
    );
    assert_eq!(stage.why_not("h1"), [""; 0]);
}
