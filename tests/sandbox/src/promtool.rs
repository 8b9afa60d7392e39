//! Prometheus's own checks of metrics and alerts: `promtool`.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::tools;

/// Why a check did not pass.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// promtool is missing.
    #[error(transparent)]
    Tool(#[from] tools::Error),
    /// It could not be run.
    #[error("promtool did not run")]
    Run(#[from] std::io::Error),
    /// It found faults.
    #[error("promtool: {0}")]
    Found(String),
}

/// Lints what a process serves at `/metrics` in the text format.
///
/// # Errors
/// What promtool finds.
pub fn check_metrics(text: &str) -> Result<(), Error> {
    let mut promtool = Command::new(tools::path("promtool")?)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // It reads all of it before it writes.
    if let Some(mut input) = promtool.stdin.take() {
        input.write_all(text.as_bytes())?;
    }
    found(&promtool.wait_with_output()?)
}

/// Runs the unit tests of alerts in a file, which names the files of the rules relative to itself.
///
/// # Errors
/// What promtool finds.
pub fn test_rules(tests: &Path) -> Result<(), Error> {
    let mut promtool = Command::new(tools::path("promtool")?);
    found(&promtool.args(["test", "rules"]).arg(tests).output()?)
}

fn found(output: &Output) -> Result<(), Error> {
    if output.status.success() {
        return Ok(());
    }
    let text = [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy);
    Err(Error::Found(text.concat().trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_a_metric_is_named() {
        check_metrics("# HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total 1\n").unwrap();
        let error = check_metrics("# HELP calls Calls.\n# TYPE calls counter\ncalls 1\n").unwrap_err();
        assert!(error.to_string().contains("_total"), "{error}");
    }
}
