//! The container beside HAProxy.

use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    haproxy_sidecar::run::run(haproxy_sidecar::run::Args::parse()).await
}
