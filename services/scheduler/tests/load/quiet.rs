//! An agent that is not heard of any more, though its connection was never closed: a cable that was pulled, a machine that hangs.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use proto::inventory::v1::{ListSitesRequest, ReportHostsRequest};
use scheduler::site::KEEPALIVE;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::fixtures::{SITE, Stage, apply, channel, hello, host, report};

/// A network that can be cut: nothing arrives then, and nobody is told.
struct Network {
    address: SocketAddr,
    cut: watch::Sender<bool>,
    _passing: JoinSet<()>,
}

impl Network {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, seen) = watch::channel(false);
        let mut passing = JoinSet::new();
        passing.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let mut cut = seen.clone();
                connections.spawn(async move {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    let cut_off = async { _ = cut.wait_for(|cut| *cut).await.unwrap() };
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => return,
                        () = cut_off => {}
                    }
                    // The sockets stay open, and whatever is sent stays in their buffers.
                    std::future::pending::<()>().await;
                });
            }
        });
        Self {
            address,
            cut,
            _passing: passing,
        }
    }
}

async fn is_synced(stage: &Stage) -> bool {
    let sites = stage.inventory().list_sites(ListSitesRequest::default()).await;
    let sites = sites.unwrap().into_inner().sites;
    let site = sites.iter().find(|site| site.name == SITE).unwrap();
    site.synced
}

#[tokio::test]
async fn a_silent_agent_is_disconnected_and_its_site_unsynced() {
    let stage = Stage::served().await;
    let network = Network::to(stage.address).await;
    let mut reports = report(&channel(network.address), &[host("h1")]).await;
    assert!(is_synced(&stage).await);

    network.cut.send_replace(true);
    let since = Instant::now();
    let mut pace = tokio::time::interval(Duration::from_millis(100));
    while is_synced(&stage).await {
        pace.tick().await;
        assert!(since.elapsed() < KEEPALIVE * 2, "it still counts as reporting");
    }
    println!("cut off after {:.1} s of silence", since.elapsed().as_secs_f64());

    let refused = stage
        .placements()
        .apply_cluster(apply("one", 1))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert_eq!(
        refused.get_details_error_info().unwrap().reason,
        "SITE_NOT_SYNCED"
    );
    // Of another Lease nobody is believed yet: this one may come back.
    let first = ReportHostsRequest {
        sequence: 1,
        message: Some(hello("another")),
    };
    let other = stage.inventory().report_hosts(tokio_stream::iter([first])).await;
    let early = other.unwrap_err();
    assert_eq!(early.code(), Code::Aborted, "{early}");
    assert!(early.message().contains("which may still run"), "{early}");
    // Of the same election it is let in at once.
    let again = report(&channel(stage.address), &[host("h1")]).await;
    stage.placements().apply_cluster(apply("one", 1)).await.unwrap();

    // What it had opened before is over, whenever it is heard of again.
    drop(network);
    assert!(reports.message().await.is_err());
    assert!(is_synced(&stage).await);
    drop(again);
}
