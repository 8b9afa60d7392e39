//! The run loop of a service agent: concurrent passes, until shutdown.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, future::join_all};
use kube::runtime::controller::Config;
use tokio::sync::watch;

use super::{
    context::Context,
    definition::Service,
    label_priority::LabelPriority,
    last_members::LastMembers,
    ownerless,
    parsed_ports::ParsedPorts,
    reconcile,
    site::Site,
    watches::{Running, Watches},
};
use crate::{
    config::ServiceOverrides,
    events::Events,
    metrics::AgentMetrics,
    retries::{Retries, watch_pauses},
    scheduler_client::Scheduler,
    shares::{Shares, UNBOUNDED},
};

/// What the site's configuration says for service agents.
#[derive(Debug)]
pub struct Settings {
    /// What an entry may override.
    pub overrides: ServiceOverrides,
    /// For how long services are kept that a cluster that is gone has left without an owner.
    pub ownerless: Duration,
}

/// Reconciles every cluster of the site until `shutdown`, which passes that have begun outlast. Calls `ready` when every watch of the
/// whole site has shown a complete list; no cluster is reconciled before, nor before the watches in its namespace have shown one.
pub async fn run<S: Service>(
    service: S,
    watches: Watches,
    scheduler: Scheduler,
    settings: Settings,
    metrics: AgentMetrics,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let client = watches.client().clone();
    let Running {
        controller,
        tenants,
        stores,
        last_applied,
        added,
    } = watches.into_running();
    let (all_listed, listed) = watch::channel(false);
    let shares = Shares::new(&metrics);
    let context = Arc::new(Context {
        service,
        site: Site {
            client: client.clone(),
            identity: S::IDENTITY,
            stores: stores.clone(),
            last_applied,
            node_ports: S::node_ports,
            parsed_ports: ParsedPorts::default(),
            overrides: settings.overrides,
        },
        scheduler,
        listed: listed.clone(),
        label_priority: LabelPriority::default(),
        shares: shares.clone(),
        last_members: LastMembers::default(),
        retries: Retries::default(),
        unplaced: Retries::default(),
        metrics,
        events: Events::new(client, S::IDENTITY.manager.0),
    });
    let passes = controller
        .with_config(Config::default().concurrency(UNBOUNDED))
        .trigger_backoff(watch_pauses())
        .graceful_shutdown_on(async move {
            shutdown.await;
            shares.close();
        })
        .run(
            reconcile::reconcile::<S>,
            reconcile::retry::<S>,
            Arc::clone(&context),
        )
        .for_each(|_| async {});
    let listing = async {
        // A watch ends only with the controller, and so with the other branch.
        if stores.listed().await.is_ok() && join_all(added).await.into_iter().all(|listed| listed) {
            all_listed.send_replace(true);
            ready();
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = passes => {}
        () = listing => {}
        never = tenants.run() => match never {},
        never = ownerless::delete_all(&context.site, settings.ownerless, listed) => match never {},
    }
}
