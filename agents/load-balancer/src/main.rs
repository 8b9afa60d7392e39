//! The load-balancer agent of a site.

use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    load_balancer_agent::run::run(load_balancer_agent::run::Args::parse()).await
}
