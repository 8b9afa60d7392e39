//! The process's metrics, in the `OpenMetrics` text format.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// A handle to the process's one registry. Cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// Lets `register` add metrics.
    ///
    /// ```
    /// # let metrics = runtime::metrics::Metrics::default();
    /// let commits = prometheus_client::metrics::counter::Counter::<u64>::default();
    /// metrics.register(|registry| registry.register("ledger_commits", "Commits made", commits.clone()));
    /// commits.inc();
    /// ```
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        // A registry is only ever appended to, so one that a panic left behind is still whole.
        register(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// All metrics as `OpenMetrics` text.
    ///
    /// # Errors
    /// When a registered metric fails to encode itself.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
