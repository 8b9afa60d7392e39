//! The disk fails while the scheduler runs.

use proto::{
    inventory::v1::{self as inventory, ListHostsRequest, ListSitesRequest, ResetSiteFenceRequest},
    placement::v1::{
        ConfirmHostsRequest, ListDecisionsRequest, ListPlacementsRequest, PlanClusterRequest,
        ReleaseClusterRequest,
    },
};
use runtime::serving::ConnectionAge;
use scheduler::term::Standing;
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::{
    disk::{Disk, Fault},
    fixtures::{PATIENCE, SITE, Stage, cluster, reason, until},
};

/// Clusters enough that a full disk must have been asked for more.
const CLUSTERS: usize = 2000;

/// A scheduler with one cluster, on a disk that then failed under another one.
async fn failed(fault: Fault) -> Stage {
    let stage = Stage::start(Disk::default()).await;
    let reports = stage.report(CLUSTERS).await.unwrap();
    stage.apply("first").await.unwrap();
    let (_, mut watch) = stage.watch().await;

    stage.disk.fault(Some(fault));
    let mut refused = None;
    for index in 0..CLUSTERS {
        if let Err(status) = stage.apply(&format!("more-{index}")).await {
            refused = Some(status);
            break;
        }
    }

    let status = refused.expect("the disk takes nothing more");
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(
        ["LEDGER_STOPPED", "LEDGER_READ_ONLY"].contains(&&*reason(&status)),
        "{status:?}"
    );
    assert_eq!(reports.ended().await.code(), Code::Unavailable);
    let watch_ended = loop {
        if let Err(status) = watch.message().await {
            break status;
        }
    };
    assert_eq!(watch_ended.code(), Code::Unavailable);
    stage.read_only().await;
    stage
}

fn assert_read_only(call: &str, status: &Status, cause: &str) {
    assert_eq!(
        (status.code(), &*reason(status)),
        (Code::Unavailable, "LEDGER_READ_ONLY"),
        "{call}: {status:?}"
    );
    assert!(status.message().contains(cause), "{call}: {}", status.message());
    let retry = status.get_details_retry_info().and_then(|info| info.retry_delay);
    assert!(retry.is_some(), "{call}: {status:?}");
}

#[tokio::test]
async fn durable_state_is_served_while_the_disk_fails() {
    for (fault, cause) in [
        (Fault::Full, "No space left on device"),
        (Fault::Sync, "Input/output error"),
    ] {
        let stage = failed(fault).await;

        let one = stage.placement("first").await.unwrap();
        assert_eq!(one.members.len(), 1);
        let (told, _watch) = stage.watch().await;
        assert!(told.contains(&one), "{fault:?}");
        let list = ListPlacementsRequest::default();
        let listed = stage
            .placements()
            .list_placements(list)
            .await
            .unwrap()
            .into_inner();
        assert!(listed.placements.contains(&one), "{fault:?}");
        let sites = stage
            .inventory()
            .list_sites(ListSitesRequest::default())
            .await
            .unwrap();
        assert!(!sites.into_inner().sites[0].synced, "{fault:?}");
        let unready = stage.unready().unwrap();
        assert!(
            unready.starts_with("cannot be written: ") && unready.contains(cause),
            "{unready}"
        );

        stage.disk.fault(None);
        stage.reach(Standing::serves).await;

        assert_eq!(stage.unready(), None);
        let _reports = stage.report(CLUSTERS).await.unwrap();
        assert_eq!(
            stage.apply("first").await.unwrap().members,
            one.members,
            "{fault:?}: nothing is lost"
        );
        stage.apply("second").await.unwrap();
    }
}

#[tokio::test]
async fn connections_end_with_each_region() {
    let stage = failed(Fault::Full).await;
    let mut rounds = Box::pin(stage.terms.connection_rounds());
    let mut reached = async |number: u64| {
        while rounds.next().await.unwrap().number < number {}
        let round = stage.terms.connection_round();
        assert_eq!((round.age, round.number), (ConnectionAge::Long, number));
    };
    // That of the term; a client that does not read keeps it.
    tokio::time::timeout(PATIENCE, reached(1)).await.unwrap();
    stage.disk.fault(None);
    stage.reach(Standing::serves).await;
    // That which could only be read.
    tokio::time::timeout(PATIENCE, reached(2)).await.unwrap();
}

#[tokio::test]
async fn every_call_that_writes_or_needs_hosts_says_why_it_cannot() {
    let stage = failed(Fault::Full).await;
    let cause = "No space left on device";

    let (mut placements, mut inventory) = (stage.placements(), stage.inventory());
    assert_read_only("ApplyCluster", &stage.apply("second").await.unwrap_err(), cause);
    assert_read_only("ReportHosts", &stage.report(1).await.err().unwrap(), cause);
    let release = ReleaseClusterRequest {
        site: SITE.to_owned(),
        cluster: Some(cluster("first")),
    };
    let status = placements.release_cluster(release).await.unwrap_err();
    assert_read_only("ReleaseCluster", &status, cause);
    let confirm = ConfirmHostsRequest {
        site: SITE.to_owned(),
        cluster: Some(cluster("first")),
        released: Vec::new(),
    };
    let status = placements.confirm_hosts(confirm).await.unwrap_err();
    assert_read_only("ConfirmHosts", &status, cause);
    let plan = PlanClusterRequest {
        site: SITE.to_owned(),
        cluster: Some(cluster("first")),
        spec: Some(inventory::ClusterSpec::default()),
    };
    let status = placements.plan_cluster(plan).await.unwrap_err();
    assert_read_only("PlanCluster", &status, cause);
    let hosts = ListHostsRequest {
        site: SITE.to_owned(),
        ..ListHostsRequest::default()
    };
    let status = inventory.list_hosts(hosts).await.unwrap_err();
    assert_read_only("ListHosts", &status, cause);
    let reset = ResetSiteFenceRequest {
        site: SITE.to_owned(),
    };
    let status = inventory.reset_site_fence(reset).await.unwrap_err();
    assert_read_only("ResetSiteFence", &status, cause);
}

#[tokio::test]
async fn the_log_is_served_if_readable_or_the_cause() {
    let stage = failed(Fault::Full).await;
    let log = || async {
        stage
            .placements()
            .list_decisions(ListDecisionsRequest::default())
            .await
    };
    let read = until(log, Result::is_ok).await.unwrap().into_inner();
    assert!(!read.decisions.is_empty());

    stage.disk.fault(Some(Fault::Dead));

    let status = until(log, Result::is_err).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    let one = stage.placement("first").await.unwrap();
    assert_eq!(one.members.len(), 1, "that needs no disk");
}
