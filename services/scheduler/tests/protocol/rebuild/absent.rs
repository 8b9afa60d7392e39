//! Members whose hosts were not in the inventory when the ledger was lost.

use placement::MemberState::{Bound, Claimed, Releasing};
use scheduler::site::MISSING_LIMIT;

use super::{lost, seen};
use crate::{
    fixtures::{Stage, again, host, labelled, members, observed, with_status},
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
