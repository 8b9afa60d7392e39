//! See the library.

use std::io::{stderr, stdout};
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use sipctl::cli::Cli;
use sipctl::command::{Ending, run};
use sipctl::one_line;

/// The input or the command line cannot be read.
const UNREADABLE: u8 = 1;
/// A cluster is refused, partial or invalid; a role would lose its majority; a site has conflicts; something is wrong with a ledger; the scheduler
/// refuses.
const NOT_PLACED: u8 = 2;
/// Most characters of an error.
const SHOWN: usize = 4096;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => {
            let asked_for = matches!(usage.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // When even this cannot be written there is nobody to tell.
            let _ = usage.print();
            // Not clap's 2, which says here that a cluster is not placed.
            return if asked_for {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(UNREADABLE)
            };
        }
    };
    match run(cli, &mut stdout().lock(), &mut stderr().lock()) {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Ran(code)) => ExitCode::from(code),
        Ok(
            Ending::NotPlaced
            | Ending::InConflict
            | Ending::MajorityLost
            | Ending::Damaged
            | Ending::CertificatesDue
            | Ending::Refused,
        ) => ExitCode::from(NOT_PLACED),
        Err(error) => {
            eprintln!("error: {}", one_line(&format!("{error:#}"), SHOWN));
            ExitCode::from(UNREADABLE)
        }
    }
}
