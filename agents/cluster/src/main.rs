//! The cluster agent of a site.

use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    cluster_agent::run::run(cluster_agent::run::Args::parse()).await
}
