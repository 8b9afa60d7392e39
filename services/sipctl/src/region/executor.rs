//! Runs asynchronous work from a command.

use anyhow::Context as _;

/// Runs the work of one command to its end.
///
/// # Errors
/// When no runtime can be started; what the work returns.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Runtime::new().context("the runtime cannot start")?;
    runtime.block_on(work)
}
