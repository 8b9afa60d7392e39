//! The process: watches, reports, and the controller, each a supervised task.

use std::{collections::BTreeSet, convert::Infallible, pin::pin, sync::Arc, time::Duration};

use anyhow::Context as _;
use futures::StreamExt as _;
use kit::{
    clusters,
    config::ReservedNetworks,
    election::Election,
    events::{EventReason, Events},
    placement::{HeldHosts, ObjectKey},
    retries::{Retries, watch_pauses},
    scheduler::{Scheduler, WatchEvent, pauses},
    shares::{Shares, UNBOUNDED},
    start::{self, Agent, AgentArgs},
    tenant::destinations::Destinations,
};
use kube::{Client, runtime::controller};
use runtime::{readiness::Gate, resolver::Resolver};
use tokio::time::timeout;

use crate::{
    answered::Answered,
    host_events,
    inventory::{self, DroppedNamespace, FirstList, Inventory},
    late_claims::{self, LateClaims},
    reconcile::{self, Contests, Context, MANAGER, Orphans, PendingWrites},
    tenant_nodes::{self, TenantNodes, metrics::Polls},
    triggers::Triggers,
};

/// How long the elected replica checks the host namespaces at most.
const CHECK: Duration = Duration::from_mins(5);

/// The cluster agent of a site: it reports hosts, asks for placements and labels hosts.
#[derive(Debug, clap::Parser)]
#[command(name = "sip-cluster-agent", version)]
pub struct Args {
    #[command(flatten)]
    agent: AgentArgs,
}

/// Runs until a signal comes or a part fails.
///
/// # Errors
/// Why the process could not start, or what failed.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let agent = Agent::start("sip-cluster-agent", env!("CARGO_PKG_VERSION"), &args.agent).await?;
    let client = agent.kubernetes().await?;
    let api_server = start::api_server_address().await?;
    let events = Events::new(client.clone(), MANAGER.0);
    // Before it is elected, so that the replica with the former configuration goes on; and after, because hosts may be held since.
    // After a signal, `Agent::run` drains without an election.
    let checking = Box::pin(async {
        check_namespaces(&agent, &client, &events, None).await?;
        check_ledger_once(&Ledger::new(&agent, &client, &events)).await
    });
    if let Some(checked) = agent.process.shutdown.run_until_cancelled(checking).await {
        checked?;
    }
    agent
        .run(&client, async |agent: &mut Agent, election| {
            Box::pin(check_namespaces(agent, &client, &events, Some(CHECK))).await?;
            let reserved = agent.config.reserved_networks().clone().with(api_server);
            begin(agent, election, client.clone(), &reserved, events).await
        })
        .await
}

/// Starts what the replica that acts runs.
async fn begin(
    agent: &mut Agent,
    election: Election,
    client: Client,
    reserved: &ReservedNetworks,
    events: Events,
) -> anyhow::Result<()> {
    let inventory = Inventory::default();
    let triggers = Triggers::default();
    let listed = watch(agent, &client, reserved, &inventory, &triggers);

    let reported = agent.process.readiness.gate("inventory");
    let acknowledged = FirstList::default();
    let complete = {
        let (triggers, acknowledged) = (triggers.clone(), acknowledged.clone());
        move || {
            acknowledged.done();
            triggers.all();
        }
    };
    let answered = Answered::default();
    let report = inventory::report(
        agent.scheduler.clone(),
        election,
        inventory.clone(),
        answered.clone(),
        listed.clone(),
        reported,
        complete,
    );
    let ledger = Ledger::new(agent, &client, &events);
    agent.process.tasks.spawn_endless("report", async move {
        ledger.check(&ledger.placements().await).await?;
        Box::pin(report).await?;
        anyhow::Ok(())
    });

    let watching = agent.process.readiness.gate("placements");
    agent.process.tasks.spawn_endless(
        "placements",
        follow(agent.scheduler.clone(), triggers.clone(), watching),
    );

    let host_faults = inventory.host_faults().publish(events.clone(), listed.clone());
    agent.process.tasks.spawn_endless("host faults", host_faults);

    let late_claims = start_late_claims(agent, &client, &triggers);
    agent.process.tasks.spawn_endless(
        "refused hosts",
        reconcile::probe_refused_hosts(client.clone(), inventory.clone(), triggers.clone()),
    );

    let (host_events, publisher) = host_events::queue();
    agent
        .process
        .tasks
        .spawn_endless("host events", publisher.run(events.clone()));

    let tenant_nodes = poll_tenants(agent, &client, (&inventory, &triggers, &events)).await?;
    let context = Arc::new(Context {
        late_claims,
        contests: Contests::default(),
        client,
        tenant_nodes,
        drain_for: agent.config.tenant_drain(),
        scheduler: agent.scheduler.clone(),
        inventory,
        triggers,
        pending_writes: PendingWrites::default(),
        pending_statuses: PendingWrites::default(),
        answered,
        shares: Shares::new(&agent.metrics),
        retries: Retries::default(),
        metrics: reconcile::Metrics::registered(&agent.process.metrics),
        reconciles: agent.metrics.clone(),
        events,
        host_events,
        host_namespaces: agent.config.host_namespaces().clone(),
        not_installed: agent.config.not_installed().clone(),
    });
    let orphans = Orphans::default();
    let known = listed.into_iter().chain([acknowledged]).collect();
    agent.process.tasks.spawn_endless(
        "orphans",
        reconcile::reconcile_orphans(Arc::clone(&context), orphans.clone(), known),
    );
    let shutdown = agent.process.shutdown.clone();
    agent.process.tasks.spawn(
        "controller",
        control(context, orphans, shutdown.cancelled_owned()),
    );
    Ok(())
}

/// Watches the policy on consumers, and when releases may be confirmed.
fn start_late_claims(agent: &mut Agent, client: &Client, triggers: &Triggers) -> LateClaims {
    let late_claims = LateClaims::new(agent.config.claims_in_flight());
    let namespaces = agent.config.host_namespaces().clone();
    let watching = late_claims::watch_policy(client.clone(), namespaces, late_claims.clone());
    let tasks = &mut agent.process.tasks;
    tasks.spawn_endless("watch the policy on consumers", watching);
    tasks.spawn_endless("releases", late_claims.clone().run(triggers.clone()));
    late_claims
}

/// Polls the API servers of tenants for their Nodes.
async fn poll_tenants(
    agent: &mut Agent,
    client: &Client,
    (inventory, triggers, events): (&Inventory, &Triggers, &Events),
) -> anyhow::Result<TenantNodes> {
    let nodes = TenantNodes::default();
    let own = [start::api_server_uri().await?, agent.config.scheduler().clone()];
    let resolver = Resolver::from_system().context("host names cannot be resolved")?;
    let dependencies = tenant_nodes::run::Dependencies {
        client: client.clone(),
        destinations: Destinations::new(
            resolver,
            agent.config.identity_providers().allowed_networks(),
            own,
        ),
        events: events.clone(),
        inventory: inventory.clone(),
        triggers: triggers.clone(),
        polls: Polls::registered(&agent.process.metrics),
    };
    let polling = tenant_nodes::run::run(nodes.clone(), dependencies);
    agent.process.tasks.spawn_endless("Nodes of tenants", polling);
    Ok(nodes)
}

/// Checks that no namespace with held hosts was dropped from the configuration; each `SIPCluster` that holds some gets an Event. If the API server
/// does not answer within `limit`, the check fails.
async fn check_namespaces(
    agent: &Agent,
    client: &Client,
    events: &Events,
    limit: Option<Duration>,
) -> anyhow::Result<()> {
    let checking = inventory::no_held_hosts_outside(client, agent.config.host_namespaces());
    let checked = match limit {
        Some(limit) => in_time(limit, checking).await?,
        None => checking.await,
    };
    published(checked, events).await
}

/// Publishes an Event on each `SIPCluster` that holds hosts in a dropped namespace.
async fn published(checked: Result<(), DroppedNamespace>, events: &Events) -> anyhow::Result<()> {
    if let Err(dropped) = &checked {
        for cluster in dropped.holders() {
            let note = format!("the cluster agent does not start: {dropped}");
            events
                .publish(cluster, None, EventReason::HostNamespaceDropped, &note)
                .await;
        }
    }
    Ok(checked?)
}

/// The check of host namespaces by the scheduler's ledger.
struct Ledger {
    client: Client,
    scheduler: Scheduler,
    events: Events,
    configured: BTreeSet<String>,
}

impl Ledger {
    fn new(agent: &Agent, client: &Client, events: &Events) -> Self {
        Self {
            client: client.clone(),
            scheduler: agent.scheduler.clone(),
            events: events.clone(),
            configured: agent.config.host_namespaces().clone(),
        }
    }

    /// What the ledger holds of the site. The scheduler is asked again until it answers.
    async fn placements(&self) -> Vec<HeldHosts> {
        let mut pauses = pauses();
        loop {
            match self.scheduler.held_hosts().await {
                Ok(placements) => return placements,
                Err(status) => {
                    tracing::warn!(code = ?status.code(), message = status.message(), "the site's placements cannot be listed; retrying");
                    tokio::time::sleep(pauses.next().unwrap_or_default()).await;
                }
            }
        }
    }

    /// Checks that the ledger gives no host away in a namespace that the configuration lacks.
    async fn check(&self, placements: &[HeldHosts]) -> anyhow::Result<()> {
        let checked = inventory::no_recorded_hosts_outside(&self.client, placements, &self.configured);
        published(checked.await, &self.events).await
    }
}

/// Checks the ledger if the scheduler answers now, so that the replica with the former configuration goes on. The elected replica checks it in any
/// case, before it reports: until then it does what needs no scheduler.
async fn check_ledger_once(ledger: &Ledger) -> anyhow::Result<()> {
    match ledger.scheduler.held_hosts().await {
        Ok(placements) => ledger.check(&placements).await,
        Err(status) => {
            tracing::warn!(code = ?status.code(), message = status.message(), "the site's placements cannot be listed; they are checked before hosts are reported");
            Ok(())
        }
    }
}

/// A replica that is not answered ends, so that another one acts, which may have the former configuration and need no such check.
async fn in_time<T>(limit: Duration, check: impl Future<Output = T>) -> anyhow::Result<T> {
    timeout(limit, check).await.with_context(|| {
        let limit = limit.as_secs();
        format!(
            "the API server has not listed within {limit} s which hosts are held in namespaces that hostNamespaces lacks"
        )
    })
}

/// Starts the watches; the returned are set when each has listed everything.
fn watch(
    agent: &mut Agent,
    client: &Client,
    reserved: &ReservedNetworks,
    inventory: &Inventory,
    triggers: &Triggers,
) -> Vec<FirstList> {
    let clusters = FirstList::default();
    let mut listed = vec![clusters.clone()];
    let tasks = &mut agent.process.tasks;
    tasks.spawn_endless(
        "watch SIPClusters",
        inventory::watch_clusters(client.clone(), inventory.clone(), clusters),
    );
    for namespace in agent.config.host_namespaces() {
        let (hosts, secrets) = (FirstList::default(), FirstList::default());
        listed.extend([hosts.clone(), secrets.clone()]);
        let triggers = triggers.clone();
        let changed = move |host: ObjectKey| triggers.host(&host);
        let hosts = inventory::watch_hosts(
            client.clone(),
            namespace.clone(),
            inventory.clone(),
            hosts,
            changed,
        );
        tasks.spawn_endless(format!("watch BareMetalHosts in {namespace}"), hosts);
        let secrets = inventory::watch_network_data(
            client.clone(),
            namespace.clone(),
            reserved.clone(),
            inventory.clone(),
            secrets,
        );
        tasks.spawn_endless(format!("watch Secrets in {namespace}"), secrets);
    }
    listed
}

/// Names the clusters whose placement changes.
async fn follow(scheduler: Scheduler, triggers: Triggers, gate: Gate) -> Result<(), Infallible> {
    let mut events = pin!(scheduler.watch());
    while let Some(event) = events.next().await {
        match event {
            WatchEvent::Changed(cluster) => triggers.cluster(cluster),
            WatchEvent::Reset => triggers.all(),
            WatchEvent::Synced => {
                gate.ready();
                triggers.all();
            }
            WatchEvent::Disconnected(status) => {
                gate.not_ready(format!("is interrupted: {}", status.message()));
            }
        }
    }
    Ok(())
}

async fn control(
    context: Arc<Context>,
    orphans: Orphans,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) -> Result<(), Infallible> {
    let triggers = context.triggers.clone();
    // The controller lets go of the names of clusters that do not exist.
    let named = triggers.named().inspect(move |cluster| {
        orphans.add(ObjectKey {
            namespace: cluster.namespace.clone().unwrap_or_default(),
            name: cluster.name.clone(),
        });
    });
    let controller = clusters::controller(&context.client, &context.reconciles);
    let (clusters, shares) = (controller.store(), context.shares.clone());
    let reconcile = move |object, context| reconcile::reconcile(clusters.clone(), object, context);
    controller
        .with_config(controller::Config::default().concurrency(UNBOUNDED))
        .trigger_backoff(watch_pauses())
        .reconcile_on(named)
        .reconcile_all_on(triggers.everything())
        .graceful_shutdown_on(async move {
            shutdown.await;
            shares.close();
        })
        .run(reconcile, reconcile::error_policy, context)
        .for_each(|outcome| async move {
            if let Err(error) = outcome {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "a pass over a cluster ended early"
                );
            }
        })
        .await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_elected_replica_does_not_check_for_ever() {
        assert!(in_time(CHECK, std::future::ready(())).await.is_ok());
        let never = std::future::pending::<()>();
        let ended = in_time(CHECK, never).await.unwrap_err().to_string();
        assert!(ended.contains("within 300 s"), "{ended}");
    }
}
