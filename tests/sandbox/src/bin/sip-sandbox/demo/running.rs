//! How the scheduler and the agents run: as pods where the site has a real node, otherwise as processes beside the site.

use std::path::Path;

use anyhow::Context as _;
use sandbox::{
    installation::{self, Installation},
    jump_host::PowerPort,
    region::{AGENTS_NAMESPACE, Agent, AgentProcess, Grpcurl, Region},
    site::Site,
};

/// Lines of each log that are printed after a failure.
pub(super) const LOG_LINES: usize = 15;

/// The scheduler and the agents of a site.
pub(super) enum Running {
    /// Pods of this project's images.
    Pods(Box<Installation>),
    /// Processes of their own.
    Processes(Box<Processes>),
}

/// The fields are dropped in this order: the agents first.
pub(super) struct Processes {
    _agents: Vec<AgentProcess>,
    region: Region,
    /// Where the jump-host agent serves power control.
    power: PowerPort,
}

impl Running {
    /// Starts them, and waits until all are ready. `archives`: a directory with the images, if pods run.
    pub(super) async fn start(site: &Site, archives: Option<&Path>) -> anyhow::Result<Self> {
        Ok(match archives {
            Some(archives) => Self::Pods(Box::new(Installation::start(site, archives).await?)),
            None => Self::Processes(Box::new(Processes::start(site).await?)),
        })
    }

    /// Calls of an operator to the scheduler.
    pub(super) fn grpcurl(&self) -> Grpcurl {
        match self {
            Self::Pods(installation) => installation.grpcurl(),
            Self::Processes(processes) => {
                let region = &processes.region;
                Grpcurl::new(region.address(), region.operator().clone())
            }
        }
    }

    /// Where power control is served, if jump hosts do not run.
    pub(super) fn power(&self) -> Option<&PowerPort> {
        match self {
            Self::Pods(_) => None,
            Self::Processes(processes) => Some(&processes.power),
        }
    }

    /// The ends of the logs of processes.
    pub(super) fn log_tails(&self) -> String {
        match self {
            Self::Pods(_) => String::new(),
            Self::Processes(processes) => processes.region.log_tails(LOG_LINES),
        }
    }

    /// Lines that show a reader where the logs are.
    pub(super) fn log_lines(&self, site: &Site, kubectl: &str) -> Vec<String> {
        let logs = site.directory().join("logs");
        match self {
            Self::Pods(_) => {
                let ours = format!("-n {AGENTS_NAMESPACE} -l app.kubernetes.io/part-of=sip");
                vec![
                    format!("  {kubectl} get pods {ours}"),
                    format!("  {kubectl} logs {ours} --prefix --tail=-1"),
                    format!("  # logs of the control plane and the node: {}", logs.display()),
                ]
            }
            Self::Processes(processes) => vec![format!(
                "  # logs: {} {}/logs",
                logs.display(),
                processes.region.directory().display()
            )],
        }
    }
}

impl Processes {
    async fn start(site: &Site) -> anyhow::Result<Self> {
        let region = Region::start(installation::REGION).await?;
        let power = region.power_port(site)?;
        let agents = start_agents(site, &region, &power).await;
        // The region's directory is removed with it.
        let agents = agents.with_context(|| format!("start the agents\n{}", region.log_tails(LOG_LINES)))?;
        Ok(Self {
            _agents: agents,
            region,
            power,
        })
    }
}

/// Jump hosts are served everywhere, identity providers only where pods run.
async fn start_agents(site: &Site, region: &Region, power: &PowerPort) -> anyhow::Result<Vec<AgentProcess>> {
    site.prepare_for_agents().await?;
    let mut config = region.site_config(site);
    config.not_installed = vec!["auth".to_owned()];
    let mut agents = Vec::new();
    for agent in [Agent::Cluster, Agent::LoadBalancer] {
        agents.push(region.start_agent(site, agent, &config).await?);
    }
    let variables = power.variables(None);
    let jump_host = region.start_agent_with(site, Agent::JumpHost, &config, &variables);
    agents.push(jump_host.await?);
    for agent in &mut agents {
        agent.is_ready().await?;
    }
    Ok(agents)
}
