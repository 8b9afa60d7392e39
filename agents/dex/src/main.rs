//! The Dex agent of a site.

use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    dex_agent::run::run(dex_agent::run::Args::parse()).await
}
