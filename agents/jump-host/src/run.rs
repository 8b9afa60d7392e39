//! The process.

use std::path::PathBuf;

use anyhow::Context as _;
use http::uri::Authority;
use kit::{
    service,
    start::{Agent, AgentArgs},
};

use crate::{
    identity::MANAGER,
    power_control::{PowerControl, PowerControlArgs},
    rendering::SiteSettings,
    service::{JumpHosts, PowerSettings},
};

/// The jump-host agent of a site: runs jump hosts, through which tenants reach their nodes by ssh.
#[derive(Debug, clap::Parser)]
#[command(name = "sip-jump-host-agent", version)]
pub struct Args {
    #[command(flatten)]
    agent: AgentArgs,
    /// Host and port at which pods of jump hosts reach `PowerService`
    #[arg(
        long,
        env = "SIP_POWER_ADDRESS",
        value_name = "HOST:PORT",
        default_value = "sip-jump-host-agent-power.sip-system.svc:8443"
    )]
    power_address: Authority,
    /// CA certificates (PEM) with which jump hosts verify the certificate of `PowerService`
    #[arg(long, env = "SIP_POWER_CA", value_name = "FILE")]
    power_ca: Option<PathBuf>,
    #[command(flatten)]
    power_control: PowerControlArgs,
}

/// Runs until it receives a signal or a part fails.
///
/// # Errors
/// Why the process could not start, or what failed.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let Args {
        agent,
        power_address,
        power_ca,
        power_control,
    } = args;
    let config = agent.site_config()?;
    let tools = config.jump_host_tools_image().cloned().context(
        "the site configuration names no jumpHostToolsImage: the image sip-jump-host-sidecar of this version",
    )?;
    let site = SiteSettings {
        tools,
        name_servers: config.name_servers().to_vec(),
    };
    let version = env!("CARGO_PKG_VERSION");
    let mut agent = Agent::start(MANAGER.0, version, &agent).await?;
    let power_control = PowerControl::start(&mut agent, &power_control).await?;
    service::run_started(agent, |agent, watches| {
        let serving = power_control.map(|power_control| power_control.lead(agent, watches));
        let power = PowerSettings {
            address: power_address,
            ca: power_ca,
            namespace: watches.namespace().to_owned(),
            serving,
        };
        JumpHosts::new(site, power, watches)
    })
    .await
}
