//! Power control in the agent's process: the port is open on every replica, and the Lease holder serves.

use std::convert::Infallible;

use api::SIPCluster;
use futures::{SinkExt as _, stream};
use kit::{placement::ClusterId, scheduler_client::Scheduler, service::Watches, start::Agent};
use kube::runtime::reflector::ObjectRef;
use power::{
    Answers, Config, EffectPolling, Power, PowerMetrics, Replica, ServeArgs, ServedCertificate, Server,
    redfish::{Network, NetworkArgs, Timeouts},
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
    replica: Replica<Scheduler>,
    network: Network,
    metrics: PowerMetrics,
    certificate: ServedCertificate,
}

/// Power control that this replica serves.
#[derive(Clone, Debug)]
pub(crate) struct Serving {
    /// How BMCs answered it.
    pub(crate) answers: Answers,
    /// The certificate of its port.
    pub(crate) certificate: ServedCertificate,
}

impl PowerControl {
    /// Opens the port, as a task of the agent's process; `None` without `--power-listen`.
    ///
    /// # Errors
    /// When the port, its certificate or the CA certificates of BMCs cannot be used.
    pub(crate) async fn start(agent: &mut Agent, args: &PowerControlArgs) -> anyhow::Result<Option<Self>> {
        let PowerControlArgs { serve, network } = args;
        let network = Network::new(network, Timeouts::default())?;
        let Some((server, replica)) = Server::bind(serve).await? else {
            tracing::info!("power control is not served: there is no --power-listen");
            return Ok(None);
        };
        let certificate = server.served_certificate();
        let metrics = PowerMetrics::registered(&agent.process.metrics);
        let stop = agent.process.shutdown.clone();
        agent.process.tasks.spawn("power", server.serve(stop));
        Ok(Some(Self {
            replica,
            network,
            metrics,
            certificate,
        }))
    }

    /// Serves from now on: this replica is the Lease holder. How BMCs answer triggers passes over the clusters that it concerns.
    pub(crate) fn lead(self, agent: &mut Agent, watches: &Watches) -> Serving {
        let Self {
            replica,
            network,
            metrics,
            certificate,
        } = self;
        let (answers, mut changed) = Answers::new();
        let (mut triggers, stop) = (watches.triggers(), agent.process.shutdown.clone());
        agent.process.tasks.spawn("bmc-answers", async move {
            while let Some(clusters) = stop.run_until_cancelled(changed.next()).await {
                let mut objects = stream::iter(clusters.into_iter().map(|cluster| Ok(object(&cluster))));
                if triggers.send_all(&mut objects).await.is_err() {
                    break;
                }
            }
            stop.cancelled().await;
            Ok::<_, Infallible>(())
        });
        let config = Config {
            host_namespaces: agent.config.host_namespaces().clone(),
            network,
            effect_polling: EffectPolling::default(),
            metrics,
            answers: answers.clone(),
            stop: agent.process.shutdown.clone(),
        };
        replica.lead(Power::new(
            watches.client().clone(),
            agent.scheduler.clone(),
            config,
        ));
        Serving { answers, certificate }
    }
}

fn object(cluster: &ClusterId) -> ObjectRef<SIPCluster> {
    ObjectRef::new(cluster.name()).within(cluster.namespace())
}
