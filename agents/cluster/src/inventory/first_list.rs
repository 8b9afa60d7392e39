//! A flag that a watch sets once its first list is complete.

use std::sync::Arc;

use tokio::sync::SetOnce;

/// Set once a watch has shown a complete list. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct FirstList(Arc<SetOnce<()>>);

impl FirstList {
    /// Sets the flag; no effect if it is set already.
    pub fn set(&self) {
        // Fails only when it is set already.
        let _ = self.0.set(());
    }

    /// Waits until the flag is set.
    pub async fn wait(&self) {
        self.0.wait().await;
    }
}
