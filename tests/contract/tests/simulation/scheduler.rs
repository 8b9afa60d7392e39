//! The scheduler's process: the real services on the real region, and the ledger's work in the same task.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use proto::{
    inventory::v1::inventory_service_server::InventoryServiceServer,
    placement::v1::placement_service_server::PlacementServiceServer,
};
use redb::backends::InMemoryBackend;
use scheduler::{
    api::{Inventory, Placements},
    ledger::{
        self, Contents, Ledger,
        commit::{self, Writer},
        redb::Redb,
    },
    policy::Policies,
    region::{Region, Undo},
    term::{Standing, Term, Terms},
};
use tokio::sync::watch;
use tonic::transport::Server;

use crate::network;

/// How long the disk takes for a batch.
const SYNC: Duration = Duration::from_millis(15);

/// What a crash of the process leaves.
#[derive(Clone)]
pub(crate) struct Disk(Arc<Redb>);

impl Disk {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Redb::on(InMemoryBackend::new()).unwrap()))
    }

    pub(crate) fn contents(&self) -> Contents {
        self.0.load().unwrap()
    }
}

fn now() -> SystemTime {
    let elapsed = turmoil::sim_elapsed().unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_hours(500_000) + elapsed
}

/// A sync takes longer than a message: a crash finds changes that are decided and not written.
async fn write(
    mut writer: Writer,
    ledger: &Redb,
    mut durable: Contents,
    undo: &Undo,
) -> Result<(), ledger::Error> {
    while let Some(batch) = writer.receive().await {
        tokio::time::sleep(SYNC).await;
        writer.store(ledger, batch, &mut durable, &|refusal| undo.reset(refusal))?;
    }
    Ok(())
}

pub(crate) async fn serve(Disk(ledger): Disk) -> turmoil::Result {
    let contents = ledger.load()?;
    let (committer, writer) = commit::committer(contents.commit);
    let region = Region::with_clock(contents.clone(), Policies::new(), committer, now);
    let storage: Arc<dyn Ledger> = Arc::clone(&ledger) as _;
    let terms = Terms::new(watch::channel(Standing::Serving(Term::new(region.clone(), storage, None))).1);
    let server = Server::builder()
        .http2_keepalive_interval(Some(Duration::from_millis(500)))
        .http2_keepalive_timeout(Some(Duration::from_millis(500)))
        .add_service(PlacementServiceServer::new(Placements::new(terms.clone())))
        .add_service(InventoryServiceServer::new(Inventory::new(terms)))
        .serve_with_incoming(network::listen().await?);
    let undo = region.undo();
    tokio::select! {
        ended = write(writer, &ledger, contents, &undo) => ended?,
        ended = region.run_retries() => ended?,
        ended = server => ended?,
    }
    Ok(())
}
