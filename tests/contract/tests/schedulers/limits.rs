//! A cluster that is larger than etcd takes.

use proto::inventory::v1 as inventory;
use tokio::task::JoinSet;
use tonic_types::StatusExt as _;

use crate::{
    client::{host, hosts, reason},
    region::{Region, assert_kept},
};

#[tokio::test]
async fn a_too_large_cluster_is_refused_and_the_term_continues() {
    let region = Region::start(1, 2).await;
    let leader = region.leader(None).await;
    let scheduler = &region.schedulers[leader];
    let client = &scheduler.client;
    let large = |index| inventory::Host {
        bmc_address: format!("redfish+https://{}/redfish/v1/Systems/1", "a".repeat(900)),
        ..host(index)
    };
    let large: Vec<_> = (0..6_000).map(large).collect();
    let reported = client.report_these(&large, None).await;
    let _reports = reported.unwrap();
    let mut others = JoinSet::new();
    for number in 0..8 {
        let client = client.clone();
        others.spawn(async move {
            let name = format!("other-{number}");
            let placement = client.apply(&name, 3).await.unwrap();
            (name, placement)
        });
    }

    let refused = client.apply("huge", 1_480).await.unwrap_err();

    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
    assert_eq!(reason(&refused).0, "TOO_LARGE");
    let violations = refused.get_details_bad_request().unwrap().field_violations;
    assert_eq!(violations[0].field, "spec");
    let said = refused.message();
    println!("{said}");
    assert!(
        said.contains("tenant/huge") && said.contains("1480 hosts") && said.contains("1556480"),
        "{said}"
    );
    let mut promised: std::collections::BTreeMap<_, _> = others.join_all().await.into_iter().collect();
    let large = client.apply("huge", 1_000).await.unwrap();
    assert_eq!(hosts(&large).len(), 1_000);
    promised.insert("huge".to_owned(), large);
    assert_kept(&promised, &client.list().await.unwrap());
    let log = scheduler.process.log_tail(10_000);
    assert_eq!(log.matches("a term begins").count(), 1, "{log}");
}
