//! Members whose hosts were not in the inventory when the ledger was lost.

use std::sync::Arc;

use placement::MemberState::{Bound, Claimed, Releasing};
use proto::inventory::v1 as wire;
use scheduler::{ledger::Ledger, site::MISSING_LIMIT};

use super::{lost, restored, seen};
use crate::{
    fixtures::{Stage, again, host, labelled, members, observed, spec, with_status},
    replacement,
};

#[tokio::test]
async fn an_absent_members_place_is_kept_when_the_ledger_is_lost() {
    for state in [Claimed, Bound] {
        let stage = Stage::empty();
        let session = stage.sync(&["h1", "h2"].map(host)).await;
        let mut placed = stage.apply("one", 1, 2).await.unwrap();
        if state == Bound {
            let both = ["h1", "h2"].map(|name| labelled(name, "one"));
            stage.report(&session, &both).await;
            placed = stage.apply("one", 1, 2).await.unwrap();
        }
        let clusters = [with_status(&placed, 1)];

        let stage = Stage::on(lost());
        let present = [labelled("h1", "one"), host("h3")];
        stage.sync_with(&present, &clusters, seen(&clusters)).await;
        let rebuilt = stage.apply("one", 1, 2).await.unwrap();
        let kept = [("h1".to_owned(), Bound), ("h2".to_owned(), state)];
        assert_eq!(members(&rebuilt), kept, "h2 may be on its way, as in a pivot");

        stage.pass(MISSING_LIMIT);
        replacement::report(&stage).await;
        let replaced = stage.record("one").await.unwrap();
        let replaced = members(&replaced);
        assert!(replaced.contains(&("h2".to_owned(), Releasing)), "{replaced:?}");
        assert!(replaced.contains(&("h3".to_owned(), Claimed)), "{replaced:?}");
    }
}

/// A site without h2, with a free host in its rack.
async fn with_absent(ledger: Arc<dyn Ledger>, clusters: &[wire::ObservedCluster]) -> Stage {
    let stage = Stage::on(ledger);
    let same_rack = wire::Host {
        labels: host("h2").labels,
        ..host("h3")
    };
    let present = [labelled("h1", "one"), same_rack];
    stage.sync_with(&present, clusters, seen(clusters)).await;
    stage
}

#[tokio::test]
async fn an_absent_members_rack_is_kept_when_the_ledger_is_lost() {
    for releasing in [false, true] {
        let stage = Stage::empty();
        let session = stage.sync(&["h1", "h2"].map(host)).await;
        let mut spread = spec(2);
        spread.roles[0].topology_key = String::new();
        stage.apply_spec("one", "uid", 1, spread).await.unwrap();
        // Paused, as before a pivot: so h2 has not failed at once when it is away.
        let both = ["h1", "h2"].map(|name| wire::Host {
            paused: true,
            ..labelled(name, "one")
        });
        stage.report(&session, &both).await;
        stage.record("one").await.unwrap();
        let backup = stage.ledger.load().unwrap();
        let mut placed = stage.apply("one", 2, 2).await.unwrap();
        if releasing {
            placed = stage.apply("one", 3, 1).await.unwrap();
        }
        let state = if releasing { Releasing } else { Bound };
        assert!(members(&placed).contains(&("h2".to_owned(), state)), "{placed:?}");
        let clusters = [wire::ObservedCluster {
            generation: placed.generation,
            ..with_status(&placed, 1)
        }];

        for ledger in [lost(), restored(&backup)] {
            let stage = with_absent(ledger, &clusters).await;
            let wanted = if releasing { 2 } else { 3 };
            let rebuilt = stage.apply("one", 4, wanted).await.unwrap();
            let kept = [("h1".to_owned(), Bound), ("h2".to_owned(), state)];
            assert_eq!(members(&rebuilt), kept, "h3 is in the rack of h2");
        }
    }
}

/// The spec is newer than the status, so that the agent does not know the key; or somebody has written into the status.
#[tokio::test]
async fn a_domain_that_is_not_known_holds_no_rack() {
    let invalid = "not a label/".repeat(100);
    for (key, value) in [
        (None, "rack-h2"),
        (Some("zone"), "rack-h2"),
        (Some(&*invalid), "rack-h2"),
        (Some("rack"), &*invalid),
    ] {
        let stage = Stage::empty();
        let session = stage.sync(&["h1", "h2"].map(host)).await;
        stage.apply("one", 1, 2).await.unwrap();
        let both = ["h1", "h2"].map(|name| labelled(name, "one"));
        stage.report(&session, &both).await;
        let mut known = with_status(&stage.record("one").await.unwrap(), 1);
        known.topology_keys = key
            .map(|key| ("Worker".to_owned(), key.to_owned()))
            .into_iter()
            .collect();
        known.members[1].domain = Some(value.to_owned());

        let stage = with_absent(lost(), &[known]).await;
        let rebuilt = stage.apply("one", 2, 3).await.unwrap();
        assert_eq!(rebuilt.members.len(), 3, "{key:?} {value}");
    }
}

/// A host was away when the ledger was lost, and is made again without labels: load balancers may route to its machine.
#[tokio::test]
async fn a_remade_host_in_a_status_is_for_no_other_cluster() {
    for (state, wanted) in [(Bound, 1), (Releasing, 0)] {
        let stage = Stage::empty();
        let session = stage.sync(&[host("h1")]).await;
        stage.apply("one", 1, 1).await.unwrap();
        stage.report(&session, &[labelled("h1", "one")]).await;
        let placed = stage.apply("one", 2, wanted).await.unwrap();
        assert_eq!(members(&placed), [("h1".to_owned(), state)]);
        let clusters = [with_status(&placed, 1), observed("two")];

        let stage = Stage::on(lost());
        let session = stage.sync_with(&[], &clusters, seen(&clusters)).await;
        stage.report(&session, &[again(host("h1"))]).await;
        assert_eq!(stage.why_not("h1"), ["former-member"], "{state:?}");
        assert_eq!(members(&stage.apply("two", 1, 1).await.unwrap()), []);
        let rebuilt = stage.apply("one", 2, wanted).await.unwrap();
        assert!(
            members(&rebuilt).contains(&("h1".to_owned(), state)),
            "{rebuilt:?}"
        );
        assert_eq!(stage.why_not("h1"), ["former-member"], "{state:?}");

        let releasing = stage.release("one").await.unwrap();
        stage.confirm(&releasing).await;
        stage.retry().await;
        let two = stage.record("two").await.unwrap();
        assert_eq!(members(&two), [("h1".to_owned(), Claimed)], "{state:?}");
    }
}

/// Its claim is in the status under the former uid. The agent has not labelled it, so nothing but its name makes it the same host.
#[tokio::test]
async fn a_claimed_host_made_again_replaces_itself_after_a_while() {
    let stage = Stage::empty();
    stage.sync(&[host("h1")]).await;
    let placed = stage.apply("one", 1, 1).await.unwrap();
    let clusters = [with_status(&placed, 1), observed("two")];

    let stage = Stage::on(lost());
    stage
        .sync_with(&[again(host("h1"))], &clusters, seen(&clusters))
        .await;
    let rebuilt = stage.apply("one", 1, 1).await.unwrap();
    assert_eq!(members(&rebuilt), [("h1".to_owned(), Claimed)]);
    assert_eq!(members(&stage.apply("two", 1, 1).await.unwrap()), []);

    stage.pass(MISSING_LIMIT);
    replacement::report(&stage).await;
    let replaced = members(&stage.record("one").await.unwrap());
    let both = [("h1".to_owned(), Claimed), ("h1".to_owned(), Releasing)];
    assert!(
        both.iter().all(|member| replaced.contains(member)),
        "{replaced:?}"
    );
    assert_eq!(members(&stage.record("two").await.unwrap()), []);
}
