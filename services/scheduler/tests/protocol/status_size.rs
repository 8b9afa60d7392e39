//! A cluster grows no further than its members fit into the status of its SIPCluster.

use scheduler::error::Error;

use crate::fixtures::{Stage, host};

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

    let placed = stage.apply("huge", 2, 2_000).await.unwrap();
    assert_eq!(placed.members.len(), 2_000);
    let refused = stage.apply("huge", 3, 2_500).await.unwrap_err();
    assert!(matches!(refused, Error::TooLarge(_)), "{refused}");
    let shrunk = stage.apply("huge", 4, 1).await.unwrap();
    let releasing = shrunk
        .members
        .values()
        .filter(|member| member.release_reason.is_some());
    assert_eq!(releasing.count(), 1_999);
}
