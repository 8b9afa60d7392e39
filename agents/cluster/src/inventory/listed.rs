//! That what there is has been listed once.

use std::sync::Arc;

use tokio::sync::SetOnce;

/// Set once a watch has listed everything that there is. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Listed(Arc<SetOnce<()>>);

impl Listed {
    /// The first list is complete. Saying it again changes nothing.
    pub fn done(&self) {
        // Fails only when it is set already.
        let _ = self.0.set(());
    }

    /// Waits for it.
    pub async fn wait(&self) {
        self.0.wait().await;
    }
}
