//! An export that nobody reads keeps nothing open.

use std::time::Duration;

use proto::ledger::v1::{ExportLedgerRequest, ledger_service_client::LedgerServiceClient};
use scheduler::term::Standing;

use crate::{
    disk::{Disk, Fault},
    fixtures::{Stage, until},
};

/// Clusters enough for more than connections and queues hold.
const CLUSTERS: usize = 3000;

#[tokio::test]
async fn an_unread_export_does_not_outlast_its_term() {
    let stage = Stage::start(Disk::default()).await;
    let _reports = stage.report(CLUSTERS).await.unwrap();
    for thousand in 0..CLUSTERS / 1000 {
        let mut applying = tokio::task::JoinSet::new();
        for number in 0..1000 {
            let name = format!("{thousand}-{number}-{}", "x".repeat(200));
            let apply = stage.applying(&name);
            applying.spawn(async move { apply.await.map(drop) });
        }
        for applied in applying.join_all().await {
            applied.unwrap();
        }
    }
    let idle = stage.disk.users();
    let mut client = LedgerServiceClient::new(stage.channel());
    let export = client
        .export_ledger(ExportLedgerRequest {})
        .await
        .unwrap()
        .into_inner();
    tokio::time::sleep(Duration::from_millis(500)).await;

    stage.disk.fault(Some(Fault::Sync));
    stage.apply("last").await.unwrap_err();
    stage.read_only().await;

    // Neither the ledger of the term nor the one for reading is open: another can be opened.
    let begun = std::time::Instant::now();
    let closed = until(|| async { stage.disk.users() }, |users| *users < idle).await;
    println!(
        "{closed} users after {:?}, {idle} during the term",
        begun.elapsed()
    );
    stage.disk.fault(None);
    stage.reach(Standing::serves).await;
    drop(export);
}
