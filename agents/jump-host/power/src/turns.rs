//! One action at a time on each BMC, however many systems it serves.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::OwnedMutexGuard;

use crate::error::Error;

/// How long an action waits for others on the same BMC.
const WAIT: Duration = Duration::from_mins(1);

type Gate = Arc<tokio::sync::Mutex<()>>;

/// The BMCs that actions are being sent to, by host and port.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<String, Gate>>);

/// The right to send an action to a BMC, until it is dropped.
pub(crate) type Turn = OwnedMutexGuard<()>;

impl Turns {
    /// Waits until no other action is being sent to the BMC.
    ///
    /// # Errors
    /// [`Error::Overloaded`] after [`WAIT`].
    pub(crate) async fn take(&self, bmc: &str) -> Result<Turn, Error> {
        let gate = {
            let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            gates.retain(|_, gate| Arc::strong_count(gate) > 1);
            Arc::clone(gates.entry(bmc.to_owned()).or_default())
        };
        let turn = tokio::time::timeout(WAIT, gate.lock_owned()).await;
        turn.map_err(|_elapsed| Error::Overloaded {
            what: format!("other actions on the BMC {bmc} take more than {WAIT:?}"),
            limit: "actions-on-bmc",
            again: WAIT,
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_bmc_takes_one_action_at_a_time() {
        let turns = Turns::default();
        let first = turns.take("a").await.unwrap();
        assert!(turns.take("a").now_or_never().is_none());
        turns.take("b").await.unwrap();
        drop(first);
        turns.take("a").await.unwrap();
    }
}
