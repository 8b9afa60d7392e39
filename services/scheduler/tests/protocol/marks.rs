//! What operators do by hand: marks on hosts and changes of the policy, seen by decisions and in their log.

use std::collections::BTreeMap;

use placement::MemberState::{Bound, Claimed};
use proto::{inventory::v1 as wire, placement::v1 as api};
use scheduler::{ledger::Commit, policy::Policies};

use crate::fixtures::{SITE, Stage, host, labelled, members};

fn cordoning(value: &str) -> Policies {
    let policy = format!("{{cordoned: [{{key: rack, value: {value}}}]}}");
    Policies::from([("*".to_owned(), serde_saphyr::from_str(&policy).unwrap())])
}

/// Entries of the log for an action, the newest first.
fn log(stage: &Stage, action: &str) -> Vec<api::Decision> {
    let entries = stage.ledger.decisions(Commit::MAX, 1000, &|_| true).unwrap();
    entries
        .into_iter()
        .filter(|entry| entry.action == action)
        .collect()
}

async fn follow(stage: &Stage, policies: Policies) {
    stage.region.set_policies(policies).await.unwrap();
    let staged = stage.region.committer().staged();
    stage.region.committer().durable(staged).await.unwrap();
}

#[tokio::test]
async fn a_cordoned_domain_gets_no_claim_and_loses_no_member() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1"), host("h2")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, &[labelled("h1", "one")]).await;

    follow(&stage, cordoning("rack-h1")).await;
    let one = stage.record("one").await.unwrap();
    assert_eq!(members(&one), [("h1".to_owned(), Bound)], "it stays");
    let kinds: Vec<&str> = one.reports.iter().map(|report| &*report.kind).collect();
    assert_eq!(kinds, ["cordoned-domain"], "and it is said, without being asked");

    follow(&stage, cordoning("rack-h2")).await;
    assert!(stage.record("one").await.unwrap().reports.is_empty());
    let two = stage.apply("two", 1, 1).await.unwrap();
    assert!(two.refusal.is_some(), "h2 is not taken");

    // Who waits is decided again when the domain may be used.
    follow(&stage, Policies::new()).await;
    stage.retry().await;
    let two = stage.record("two").await.unwrap();
    assert_eq!(members(&two), [("h2".to_owned(), Claimed)]);

    let said: Vec<String> = log(&stage, "policy")
        .into_iter()
        .map(|entry| entry.reason)
        .filter(|reason| !reason.is_empty())
        .collect();
    assert!(
        said.contains(&"rack=rack-h2 is cordoned; rack=rack-h1 is no longer cordoned".to_owned()),
        "{said:?}"
    );
    let seen = log(&stage, "policy");
    assert!(
        seen.iter()
            .any(|entry| entry.found.iter().any(|report| report.kind == "cordoned-domain")),
        "{seen:?}"
    );
}

#[tokio::test]
async fn marks_of_hosts_reach_clusters_declared_before_the_report() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1"), host("h2")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    let well = || labelled("h1", "one");
    stage.report(&session, &[well()]).await;
    let in_error = wire::OperationalStatus::Error.into();
    let cases: [(wire::Host, &[&str]); 6] = [
        (
            wire::Host {
                cordoned: true,
                ..well()
            },
            &["cordoned"],
        ),
        (
            wire::Host {
                paused: true,
                ..well()
            },
            &["paused"],
        ),
        (
            wire::Host {
                operational_status: in_error,
                ..well()
            },
            &["in-error"],
        ),
        (
            wire::Host {
                addresses: BTreeMap::new(),
                ..well()
            },
            &["no-address"],
        ),
        (elsewhere(well()), &["domain-changed"]),
        (well(), &[]),
    ];
    for (reported, kinds) in cases {
        // The agent is told of the host by the same watch that it reports from: its declaration may be the faster.
        let early = stage.apply("one", 1, 1).await.unwrap();
        stage.report(&session, std::slice::from_ref(&reported)).await;
        let said = stage.record("one").await.unwrap();
        let found: Vec<&str> = said.reports.iter().map(|report| &*report.kind).collect();
        assert_eq!(found, kinds, "{reported:?}");
        assert!(said.revision > early.revision, "watchers are told");
        assert_eq!(members(&said), [("h1".to_owned(), Bound)]);

        stage.report(&session, &[reported]).await;
        let again = stage.record("one").await.unwrap();
        assert_eq!(again.revision, said.revision, "nothing is new");
    }
}

fn elsewhere(mut host: wire::Host) -> wire::Host {
    host.labels.insert("rack".to_owned(), "another".to_owned());
    host
}

#[tokio::test]
async fn the_same_policy_again_is_nothing_new() {
    let stage = Stage::empty();
    stage.sync(&[host("h1")]).await;
    follow(&stage, cordoning("rack-h1")).await;
    let before = stage.region.committer().staged();
    follow(&stage, cordoning("rack-h1")).await;
    assert_eq!(stage.region.committer().staged(), before);
}

#[tokio::test]
async fn a_site_that_reports_for_the_first_time_has_the_policy_of_now() {
    let stage = Stage::empty();
    follow(&stage, cordoning("rack-h1")).await;
    stage.sync(&[host("h1")]).await;
    assert_eq!(stage.why_not("h1"), ["cordoned-domain"]);
}

/// The ledger may be an older one: the next revision that it would issue was issued before.
#[tokio::test]
async fn a_policy_settles_no_record_before_a_snapshot_ends() {
    let stage = Stage::empty();
    stage.sync(&[host("h1")]).await;
    let claimed = stage.apply("one", 1, 1).await.unwrap();
    let stage = stage.restart();
    let reporter = stage.open("lease", 1).await.unwrap();
    let session = &reporter.session().id;
    stage.report(session, &[labelled("h1", "one")]).await;

    follow(&stage, cordoning("rack-h1")).await;

    assert_eq!(stage.record("one").await.unwrap().revision, claimed.revision);
    stage.region.complete_snapshot(SITE, session).await.unwrap();
    let one = stage.record("one").await.unwrap();
    assert_eq!(
        members(&one),
        [("h1".to_owned(), Bound)],
        "the snapshot settles it"
    );
}

#[tokio::test]
async fn the_log_says_which_host_was_marked_and_whose_it_is() {
    let stage = Stage::empty();
    let session = stage.sync(&[host("h1"), host("h2")]).await;
    stage.apply("one", 1, 1).await.unwrap();
    stage.report(&session, &[labelled("h1", "one")]).await;
    let cordoned = |host: wire::Host| wire::Host {
        cordoned: true,
        ..host
    };
    stage
        .report(&session, &[cordoned(labelled("h1", "one")), cordoned(host("h2"))])
        .await;
    stage.report(&session, &[host("h2")]).await;
    stage.retry().await;

    let said: Vec<(String, Option<String>)> = log(&stage, "observe")
        .into_iter()
        .filter(|entry| !entry.reason.is_empty())
        .map(|entry| (entry.reason, entry.cluster.map(|cluster| cluster.name)))
        .collect();
    assert_eq!(
        said,
        [
            ("metal/h2: is no longer cordoned".to_owned(), None),
            ("metal/h2: is cordoned".to_owned(), None),
            ("metal/h1: is cordoned".to_owned(), Some("one".to_owned())),
        ]
    );

    // What was so already when it is told again is nothing new.
    let entries = log(&stage, "observe").len();
    stage.sync(&[cordoned(labelled("h1", "one")), host("h2")]).await;
    stage.retry().await;
    let again = log(&stage, "observe");
    let marks = again.iter().filter(|entry| entry.reason.contains("cordoned"));
    assert_eq!(marks.count(), 3, "{entries} entries before");
}
