//! The process: watches, reports, and the controller, each a supervised task.

use std::{convert::Infallible, pin::pin, sync::Arc};

use anyhow::Context as _;
use futures::StreamExt as _;
use kit::{
    clusters,
    config::ReservedNetworks,
    election::Election,
    events::Events,
    placement::ObjectKey,
    retries::{Retries, watch_pauses},
    scheduler_client::{Scheduler, WatchEvent},
    shares::{Shares, UNBOUNDED},
    start::{self, Agent, AgentArgs},
    tenant::destinations::Destinations,
};
use kube::{Client, runtime::controller};
use runtime::{readiness::Gate, resolver::Resolver};

use crate::{
    answered::Answered,
    host_events,
    inventory::{self, FirstList, Inventory},
    late_claims::{self, LateClaims},
    namespace_checks::{self, Ledger},
    reconcile::{self, Contests, Context, MANAGER, Orphans, PendingWrites},
    tenant_nodes::{self, TenantNodes, metrics::Polls},
    triggers::Triggers,
};

/// The cluster agent of a site: it reports hosts, requests placements and labels hosts.
#[derive(Debug, clap::Parser)]
#[command(name = "sip-cluster-agent", version)]
pub struct Args {
    #[command(flatten)]
    agent: AgentArgs,
}

/// Runs until it receives a signal or a part fails.
///
/// # Errors
/// Why the process could not start, or what failed.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let agent = Agent::start("sip-cluster-agent", env!("CARGO_PKG_VERSION"), &args.agent).await?;
    let client = agent.kubernetes().await?;
    let api_server = start::api_server_address().await?;
    let events = Events::new(client.clone(), MANAGER.0);
    let ledger = Arc::new(Ledger::new(&agent, &client, &events));
    // Before it is elected, so that the replica with the former configuration continues to act; and after, because hosts may be held since.
    // After a signal, `Agent::run` drains without an election.
    let checking = Box::pin(async {
        namespace_checks::check_statuses(&agent, &client, &events, None).await?;
        ledger.check_once().await
    });
    let checked = agent.process.shutdown.run_until_cancelled(checking).await;
    let is_checked = checked.transpose()?.unwrap_or_default();
    // A replica that stands by is not ready before the scheduler has answered. The elected one checks the ledger itself.
    let standing_by = agent.process.shutdown.child_token();
    let checking = Box::pin(standing_by.run_until_cancelled(async {
        if is_checked {
            return Ok(());
        }
        ledger.check_when_answered(None).await
    }));
    let running = Box::pin(agent.run(&client, async |agent: &mut Agent, election| {
        standing_by.cancel();
        let limit = Some(namespace_checks::CHECK_TIMEOUT);
        Box::pin(namespace_checks::check_statuses(agent, &client, &events, limit)).await?;
        let reserved = agent.config.reserved_networks().clone().with(api_server);
        begin(
            agent,
            election,
            client.clone(),
            &reserved,
            events,
            Arc::clone(&ledger),
        )
        .await
    }));
    tokio::select! {
        ended = running => ended,
        Some(Err(dropped)) = checking => Err(dropped),
    }
}

/// Starts what the replica that acts runs.
async fn begin(
    agent: &mut Agent,
    election: Election,
    client: Client,
    reserved: &ReservedNetworks,
    events: Events,
    ledger: Arc<Ledger>,
) -> anyhow::Result<()> {
    let inventory = Inventory::default();
    let triggers = Triggers::default();
    let listed = watch(agent, &client, reserved, &inventory, &triggers);

    let reported = agent.process.readiness.gate("inventory");
    let acknowledged = FirstList::default();
    let complete = {
        let (triggers, acknowledged) = (triggers.clone(), acknowledged.clone());
        move || {
            acknowledged.set();
            triggers.trigger_all();
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
    let lists = listed.clone();
    agent.process.tasks.spawn_endless("report", async move {
        // As late as possible: a replica that acted before may still have been claiming hosts.
        for list in &lists {
            list.wait().await;
        }
        let limit = Some(namespace_checks::CHECK_TIMEOUT);
        ledger.check_when_answered(limit).await?;
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
            WatchEvent::Reset => triggers.trigger_all(),
            WatchEvent::Synced => {
                gate.ready();
                triggers.trigger_all();
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
    // The controller forgets the names of clusters that do not exist.
    let named = triggers.triggered().inspect(move |cluster| {
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
