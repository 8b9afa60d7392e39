//! The process: ledger, region, gRPC, each a supervised task.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::Context as _;
use futures::FutureExt as _;
use proto::{
    inventory::v1::inventory_service_server::InventoryServiceServer,
    placement::v1::placement_service_server::PlacementServiceServer,
};
use runtime::{Process, ProcessArgs, identity::RealmArgs, tls::ServerTlsArgs};
use tonic::service::Routes;

use crate::{
    api::{Inventory, Placements},
    ledger::{self, Ledger, commit, redb::Redb},
    policy,
    region::Region,
};

/// Largest message that a client may send: a snapshot comes in chunks of 1,000 hosts.
const MESSAGE: usize = 16 << 20;

/// The region's placement scheduler.
#[derive(Debug, clap::Parser)]
#[command(name = "sip-scheduler", version)]
pub struct Args {
    #[command(flatten)]
    process: ProcessArgs,
    #[command(flatten)]
    realm: RealmArgs,
    #[command(flatten)]
    tls: ServerTlsArgs,
    /// Address of the gRPC port.
    #[arg(long, env = "SIP_LISTEN", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// File of the ledger. It is made when missing.
    #[arg(long, env = "SIP_LEDGER", value_name = "FILE")]
    ledger: PathBuf,
    /// Policy of a site: topology hierarchy, cordoned domains, quotas, namespace preference (YAML). May be given once
    /// per site; `*` is every site without one of its own
    #[arg(long = "site-policy", env = "SIP_SITE_POLICY", value_name = "SITE=FILE", value_delimiter = ',', value_parser = policy::named)]
    site_policies: Vec<(String, PathBuf)>,
}

/// Runs until a signal comes or a part fails.
///
/// # Errors
/// Why the process could not start, or what failed.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args {
        process,
        realm,
        tls,
        listen,
        ledger,
        site_policies,
    } = args;
    let policies = policy::read(&site_policies)?;
    let mut process = Process::start("sip-scheduler", env!("CARGO_PKG_VERSION"), &process).await?;
    let opened = process.readiness.gate("ledger");
    let serving = process.readiness.gate("grpc");

    let path = ledger.display().to_string();
    let (ledger, contents) = tokio::task::spawn_blocking(move || {
        let ledger = Redb::open(&ledger)?;
        let contents = ledger.load()?;
        Ok::<_, ledger::Error>((Arc::new(ledger) as Arc<dyn Ledger>, contents))
    })
    .await?
    .with_context(|| format!("the ledger {path} cannot be opened"))?;
    tracing::info!(path, position = %contents.position, clusters = contents.records.len(), "the ledger is open");
    opened.ready();

    let (committer, writer) = commit::committer(contents.position);
    let region = Region::new(contents, policies, committer);
    let storage = Arc::clone(&ledger);
    process.tasks.spawn("ledger", async move {
        let ended = tokio::task::spawn_blocking(move || writer.run(&*storage)).await;
        opened.not_ready("the ledger has stopped");
        ended.map_err(anyhow::Error::from)?.map_err(anyhow::Error::from)
    });
    let retries = region.clone().run_retries();
    process.tasks.spawn(
        "retries",
        process
            .shutdown
            .clone()
            .run_until_cancelled_owned(retries)
            .map(|ended| ended.unwrap_or(Ok(()))),
    );

    let listener = process.bind(listen, &tls, &realm.realm()).await?;
    process.serve("grpc", listener, routes(region, ledger).await?);
    serving.ready();
    process.run().await?;
    Ok(())
}

/// Every service on the port: placement, inventory, health, reflection.
async fn routes(region: Region, ledger: Arc<dyn Ledger>) -> anyhow::Result<Routes> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<PlacementServiceServer<Placements>>().await;
    health.set_serving::<InventoryServiceServer<Inventory>>().await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // Errors carry these: without them grpcurl shows their details as raw bytes.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let inventory =
        InventoryServiceServer::new(Inventory::new(region.clone())).max_decoding_message_size(MESSAGE);
    let placements = PlacementServiceServer::new(Placements::new(region, ledger));
    Ok(Routes::new(placements)
        .add_service(inventory)
        .add_service(health_service)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?))
}
