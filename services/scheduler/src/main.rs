//! The region's placement scheduler.

use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    scheduler::server::run(scheduler::server::Args::parse()).await
}
