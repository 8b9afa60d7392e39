//! The jump-host agent of a site.

use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    jump_host_agent::run::run(jump_host_agent::run::Args::parse()).await
}
