//! Power control in the agent's process: the port is open on every replica, and the Lease holder serves.

use kit::{scheduler::Scheduler, start::Agent};
use kube::Client;
use power::{
    Config, Pace, Power, PowerMetrics, ServeArgs, Server, Standing,
    redfish::{Network, NetworkArgs, Patience},
};

/// Options of power control.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PowerControlArgs {
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    network: NetworkArgs,
}

/// Power control of this replica, on standby.
pub(crate) struct PowerControl {
    standing: Standing<Scheduler>,
    network: Network,
    metrics: PowerMetrics,
}

impl PowerControl {
    /// Opens the port, as a task of the agent's process; `None` where none is asked for.
    ///
    /// # Errors
    /// When the port, its certificate or the CA certificates of BMCs cannot be used.
    pub(crate) async fn start(agent: &mut Agent, args: &PowerControlArgs) -> anyhow::Result<Option<Self>> {
        let PowerControlArgs { serve, network } = args;
        let network = Network::new(network, Patience::default())?;
        let Some((server, standing)) = Server::bind(serve).await? else {
            tracing::info!("power control is not served: there is no --power-listen");
            return Ok(None);
        };
        let metrics = PowerMetrics::registered(&agent.process.metrics);
        let stop = agent.process.shutdown.clone();
        agent.process.tasks.spawn("power", server.serve(stop));
        Ok(Some(Self {
            standing,
            network,
            metrics,
        }))
    }

    /// Serves from now on: this replica is the Lease holder.
    pub(crate) fn lead(self, agent: &Agent, client: Client) {
        let Self {
            standing,
            network,
            metrics,
        } = self;
        let config = Config {
            host_namespaces: agent.config.host_namespaces().clone(),
            network,
            pace: Pace::default(),
            metrics,
            stop: agent.process.shutdown.clone(),
        };
        standing.lead(Power::new(client, agent.scheduler.clone(), config));
    }
}
