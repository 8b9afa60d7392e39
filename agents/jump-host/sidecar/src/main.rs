//! What runs in every pod of a jump host besides sshd.

use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    jump_host_sidecar::command::run(jump_host_sidecar::command::Args::parse()).await
}
