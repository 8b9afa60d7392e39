//! The command `host` of a jump host: power control of the cluster's own hosts, by `PowerService`.

mod arguments;
mod attempts;
mod commands;
mod connection;
mod failure;
mod output;
mod ssh_user;

use std::process::ExitCode;

use clap::Parser as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match commands::run(arguments::Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("host: {failure}");
            failure.exit_code()
        }
    }
}
