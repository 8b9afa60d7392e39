//! What tests of several modules need.

use clap::{Args, Command};

/// Options as a program parses them that has no others.
pub(crate) fn parse_options<A: Args>(options: &[&str]) -> A {
    let command = A::augment_args(Command::new("program").no_binary_name(true));
    let matches = command.try_get_matches_from(options).unwrap();
    A::from_arg_matches(&matches).unwrap()
}
