//! The process: terms, gRPC, health, each a supervised task.

use std::{convert::Infallible, net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use proto::{
    inventory::v1::inventory_service_server::InventoryServiceServer,
    ledger::v1::ledger_service_server::LedgerServiceServer,
    placement::v1::placement_service_server::PlacementServiceServer,
};
use runtime::{Process, ProcessArgs, identity::RealmArgs, tls::ServerTlsArgs};
use tokio_util::sync::CancellationToken;
use tonic::{server::NamedService as _, service::Routes};
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{
    admission::{self, CallMetrics, LimitArgs, Limits},
    api::{Inventory, LedgerApi, Placements},
    backup::{BackupArgs, BackupMetrics, Backups},
    call_rules, policy, site,
    term::{LedgerArgs, Supervisor, TermCollector, TermMetrics, Terms},
};

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
    #[command(flatten)]
    ledger: LedgerArgs,
    #[command(flatten)]
    backup: BackupArgs,
    /// Address at which clients reach this gRPC port. While this replica is the leader, the other replicas give this address in their answers
    /// [default: that of --listen]
    #[arg(long, env = "SIP_ADVERTISE", value_name = "ADDRESS")]
    advertise: Option<String>,
    /// Policy of a site: topology hierarchy, cordoned domains, quotas, namespace preference (YAML). Repeat it
    /// for each site; `*` stands for every site that is not named
    #[arg(long = "site-policy", env = "SIP_SITE_POLICY", value_name = "SITE=FILE", value_delimiter = ',', value_parser = policy::named)]
    site_policies: Vec<(String, PathBuf)>,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    site_limits: site::LimitArgs,
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
        backup,
        advertise,
        site_policies,
        limits,
        site_limits,
    } = args;
    site_limits.require_memory()?;
    let (policies, following) = policy::follow(site_policies)?;
    let mut process = Process::start("sip-scheduler", env!("CARGO_PKG_VERSION"), &process).await?;
    let opened = process.readiness.gate("ledger");
    let serving = process.readiness.gate("grpc");

    let place = ledger.to_string();
    let backend = ledger.backend(advertise.unwrap_or_else(|| listen.to_string()));
    let (supervisor, terms) = Supervisor::new(backend, policies, opened);
    let supervisor = supervisor
        .measured(TermMetrics::registered(&process.metrics))
        .limited(site_limits.limits());
    process.metrics.collect(TermCollector::new(terms.clone()));
    let shutdown = process.shutdown.clone();
    process.tasks.spawn("ledger", async move {
        let ended = supervisor.run(shutdown).await;
        ended.with_context(|| format!("the ledger {place} cannot be opened"))
    });

    process.tasks.spawn_endless("policies", following);
    let metrics = BackupMetrics::registered(&process.metrics);
    if let Some(backups) =
        Backups::new(&backup, terms.clone(), metrics).context("backups cannot be written")?
    {
        process.tasks.spawn_endless("backups", backups.run());
    }
    let listener = process.bind(listen, &tls, &realm.realm()).await?;
    let listener = listener.limited(limits.connections());
    let calls = CallMetrics::registered(&process.metrics);
    let (health, routes) = guarded_routes(&terms, limits.limits(), calls)?;
    process.serve("grpc", listener, routes, terms.connection_rounds());
    let shutdown = process.shutdown.clone();
    process
        .tasks
        .spawn("health", report_health(health, terms, shutdown));
    serving.ready();
    process.run().await?;
    Ok(())
}

/// Every service on the port: placement, inventory, ledger, health, reflection; and what says how the first two are.
///
/// # Errors
/// When the descriptors of the services cannot be read.
pub fn routes(terms: &Terms) -> anyhow::Result<(HealthReporter, Routes)> {
    guarded_routes(terms, Limits::default(), CallMetrics::default())
}

/// The same with other limits, counted in these metrics.
///
/// # Errors
/// As [`routes`].
pub fn guarded_routes(
    terms: &Terms,
    limits: Limits,
    calls: CallMetrics,
) -> anyhow::Result<(HealthReporter, Routes)> {
    let (health, health_service) = tonic_health::server::health_reporter();
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // Errors carry these: without them grpcurl shows their details as raw bytes.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let inventory = InventoryServiceServer::new(Inventory::new(terms.clone()))
        .max_decoding_message_size(call_rules::MAX_MESSAGE_BYTES);
    let placements = PlacementServiceServer::new(Placements::new(terms.clone()))
        .max_decoding_message_size(call_rules::MAX_MESSAGE_BYTES);
    let routes = Routes::new(placements)
        .add_service(inventory)
        .add_service(LedgerServiceServer::new(LedgerApi::new(terms.clone())))
        .add_service(health_service)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?);
    Ok((health, admission::guarded(routes, limits, calls)))
}

/// Says by grpc.health.v1 whether there is a term, until the shutdown: when the ledger fails, that is what ends the process.
async fn report_health(
    health: HealthReporter,
    terms: Terms,
    shutdown: CancellationToken,
) -> Result<(), Infallible> {
    let mut standing = terms.watch();
    drop(terms);
    loop {
        let status = if standing.borrow_and_update().serves() {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        for service in [
            PlacementServiceServer::<Placements>::NAME,
            InventoryServiceServer::<Inventory>::NAME,
        ] {
            health.set_service_status(service, status).await;
        }
        match shutdown.run_until_cancelled(standing.changed()).await {
            None => return Ok(()),
            Some(Ok(())) => {}
            Some(Err(_)) => {
                shutdown.cancelled().await;
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use runtime::readiness::Readiness;
    use tokio::sync::watch;

    use super::*;
    use crate::{policy::Policies, term::File};

    #[tokio::test(start_paused = true)]
    async fn a_failed_ledger_does_not_end_what_tells_of_it() {
        let gate = Readiness::default().gate("ledger");
        let ledger = Arc::new(File::new(PathBuf::from("/none")));
        let (supervisor, terms) = Supervisor::new(ledger, watch::channel(Policies::new()).1, gate);
        let shutdown = CancellationToken::new();
        let (health, _service) = tonic_health::server::health_reporter();
        let reporting = tokio::spawn(report_health(health, terms, shutdown.clone()));
        drop(supervisor);
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(!reporting.is_finished());
        shutdown.cancel();
        reporting.await.unwrap().unwrap();
    }
}
