//! kubectl's plugin `oidc-login`, as [`sandbox::kubelogin`] plays it.

use clap::Parser as _;
use sandbox::kubelogin::{self, Command};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    println!("{}", kubelogin::run(Command::parse()).await?);
    Ok(())
}
