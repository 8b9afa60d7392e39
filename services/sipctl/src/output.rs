//! The forms in which a result is printed.

use std::io::{self, Write};

use anyhow::Context as _;
use clap::ValueEnum;

/// How a plan is printed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// A table
    Table,
    /// JSON in a stable format
    Json,
    /// The JSON output as YAML
    Yaml,
}

/// Writes a result. A reader that has seen enough (`| head`) is no error.
pub(crate) fn write(out: &mut dyn Write, bytes: &[u8]) -> anyhow::Result<()> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write the result"),
    }
}
