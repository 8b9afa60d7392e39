//! When each tenant's API server is polled. One future, without tasks of its own.

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use kit::{events::Events, tenant::destinations::Destinations};
use kube::Client;
use tokio::time;

use super::{Problem, TenantNodes, clusters::Begun, metrics::Polls, poll};
use crate::{inventory::Inventory, triggers::Triggers};

/// Concurrent polls of all namespaces.
const MAX_CONCURRENT_POLLS: usize = 16;
/// Concurrent polls of one namespace.
const MAX_CONCURRENT_POLLS_PER_NAMESPACE: usize = 2;
/// Pause while no poll is due.
const IDLE_INTERVAL: Duration = Duration::from_mins(1);

/// What polls need besides what is wanted.
pub struct Dependencies {
    /// Client of the site's API server, for reading kubeconfigs.
    pub client: Client,
    /// Restricts the addresses to which polls connect.
    pub destinations: Destinations,
    /// Events on `SIPCluster`s.
    pub events: Events,
    /// Whether a `SIPCluster` still exists.
    pub inventory: Inventory,
    /// Triggers passes over clusters whose report has changed.
    pub triggers: Triggers,
    /// What is counted.
    pub polls: Polls,
}

/// Polls without end.
///
/// # Errors
/// Never; it polls until it is dropped.
pub async fn run(nodes: TenantNodes, dependencies: Dependencies) -> Result<(), Infallible> {
    let mut running = FuturesUnordered::new();
    loop {
        let now = Instant::now();
        let (begun, next) = nodes.begin(
            now,
            MAX_CONCURRENT_POLLS.saturating_sub(running.len()),
            MAX_CONCURRENT_POLLS_PER_NAMESPACE,
        );
        for begun in begun {
            // The `SIPCluster` may have been deleted without a pass over it.
            if dependencies.inventory.has_cluster(&begun.cluster) {
                running.push(run_poll(&nodes, &dependencies, begun));
            } else {
                nodes.is_gone(&begun);
            }
        }
        let pause = next.map_or(IDLE_INTERVAL, |next| {
            next.saturating_duration_since(Instant::now())
        });
        tokio::select! {
            Some(()) = running.next(), if !running.is_empty() => {}
            () = nodes.changed.notified() => {}
            () = time::sleep(pause) => {}
        }
    }
}

async fn run_poll(nodes: &TenantNodes, dependencies: &Dependencies, begun: Begun) {
    let began = Instant::now();
    let found = poll::poll(
        &begun.cluster,
        (&begun.wanted, begun.turn),
        nodes,
        (
            &dependencies.client,
            &dependencies.destinations,
            &dependencies.events,
        ),
    )
    .await;
    dependencies.polls.ended(found.as_ref().err());
    let cluster = &begun.cluster;
    if let Err(Problem { passes: _, message }) = &found {
        tracing::debug!(%cluster, why = message, "the Nodes of a tenant's cluster could not be read");
    }
    if nodes.end(&begun, (began, Instant::now()), found) {
        dependencies.triggers.cluster(begun.cluster);
    }
}
