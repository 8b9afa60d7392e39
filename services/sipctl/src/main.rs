//! See the library.

use std::io::{stderr, stdout};
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use sipctl::cli::Cli;
use sipctl::command::run;
use sipctl::one_line;

/// Exit code: sipctl cannot read the input or the command line.
const EXIT_UNREADABLE: u8 = 1;
/// Maximum number of characters of an error.
const MAX_ERROR_CHARACTERS: usize = 4096;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => {
            let asked_for = matches!(usage.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // When even this cannot be written there is nobody to tell.
            let _ = usage.print();
            // Not clap's 2, which means here that a cluster is not placed.
            return if asked_for {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(EXIT_UNREADABLE)
            };
        }
    };
    match run(cli, &mut stdout().lock(), &mut stderr().lock()) {
        Ok(ending) => ending.exit_code(),
        Err(error) => {
            eprintln!("error: {}", one_line(&format!("{error:#}"), MAX_ERROR_CHARACTERS));
            ExitCode::from(EXIT_UNREADABLE)
        }
    }
}
