//! Readiness: named gates, each held by the code that can make it true.
//!
//! A process is ready when every gate is. A gate starts closed, and closes again when it is dropped: what
//! made it true has ended, however it ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// Why each closed gate is closed, by name. Open gates are not in it: empty means ready.
pub type Unready = BTreeMap<String, String>;

#[derive(Debug, Default)]
struct State {
    gates: BTreeMap<String, Result<(), String>>,
    stopping: bool,
}

/// All gates of a process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Readiness(Arc<watch::Sender<State>>);

impl Default for Readiness {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(State::default())))
    }
}

impl Readiness {
    /// A new closed gate. Each gate has one owner; of two with one name, the later replaces the earlier.
    #[must_use = "dropping the gate closes it for good"]
    pub fn gate(&self, name: impl Into<String>) -> Gate {
        let name = name.into();
        let gate = Gate {
            name,
            readiness: self.clone(),
        };
        gate.not_ready("has not started yet");
        gate
    }

    /// What is not ready, and why.
    #[must_use]
    pub fn unready(&self) -> Unready {
        self.0.borrow().unready()
    }

    /// A watch on [`Readiness::unready`], such as for the gRPC health service.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch {
            changes: self.0.subscribe(),
        }
    }

    /// From now on the process is unready, whatever its gates state.
    pub fn stopping(&self) {
        self.0
            .send_if_modified(|state| !std::mem::replace(&mut state.stopping, true));
    }

    fn set(&self, name: &str, to: Result<(), String>) {
        self.0.send_if_modified(|state| {
            if state.gates.get(name) == Some(&to) {
                return false;
            }
            match &to {
                Ok(()) => tracing::info!(gate = name, "ready"),
                Err(reason) => tracing::info!(gate = name, reason, "not ready"),
            }
            state.gates.insert(name.to_owned(), to);
            true
        });
    }
}

impl State {
    fn unready(&self) -> Unready {
        let Self { gates, stopping } = self;
        let closed = |(name, state): (&String, &Result<(), String>)| {
            state.as_ref().err().map(|reason| (name.clone(), reason.clone()))
        };
        let mut unready: Unready = gates.iter().filter_map(closed).collect();
        if *stopping {
            unready.insert("process".to_owned(), "is shutting down".to_owned());
        } else if gates.is_empty() {
            unready.insert("process".to_owned(), "is starting".to_owned());
        }
        unready
    }
}

/// One condition of readiness, held by the code that makes it true.
#[derive(Debug)]
pub struct Gate {
    name: String,
    readiness: Readiness,
}

impl Gate {
    /// Opens the gate.
    pub fn ready(&self) {
        self.readiness.set(&self.name, Ok(()));
    }

    /// Closes the gate; `reason` completes the sentence that the gate's name begins.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.readiness.set(&self.name, Err(reason.into()));
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.not_ready("has ended");
    }
}

/// A watch on what is unready.
#[derive(Debug)]
pub struct Watch {
    changes: watch::Receiver<State>,
}

impl Watch {
    /// Waits for a change, then says what is unready; `None` once nothing can change.
    pub async fn changed(&mut self) -> Option<Unready> {
        self.changes.changed().await.ok()?;
        Some(self.changes.borrow_and_update().unready())
    }

    /// What is unready now.
    #[must_use]
    pub fn unready(&self) -> Unready {
        self.changes.borrow().unready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unready(pairs: &[(&str, &str)]) -> Unready {
        pairs
            .iter()
            .map(|(gate, reason)| ((*gate).to_owned(), (*reason).to_owned()))
            .collect()
    }

    #[test]
    fn a_process_without_gates_is_starting() {
        assert_eq!(
            Readiness::default().unready(),
            unready(&[("process", "is starting")])
        );
    }

    #[test]
    fn it_is_ready_when_every_gate_is_and_names_those_that_are_not() {
        let readiness = Readiness::default();
        let (ledger, grpc) = (readiness.gate("ledger"), readiness.gate("grpc"));
        let closed = ("grpc", "has not started yet");
        assert_eq!(
            readiness.unready(),
            unready(&[closed, ("ledger", "has not started yet")])
        );
        ledger.ready();
        assert_eq!(readiness.unready(), unready(&[closed]));
        grpc.ready();
        assert_eq!(readiness.unready(), unready(&[]));
        ledger.not_ready("cannot write: disk full");
        assert_eq!(
            readiness.unready(),
            unready(&[("ledger", "cannot write: disk full")])
        );
    }

    #[tokio::test]
    async fn a_gate_closes_when_the_task_that_holds_it_panics() {
        let readiness = Readiness::default();
        let gate = readiness.gate("ledger");
        gate.ready();
        assert_eq!(readiness.unready(), unready(&[]));
        let task = tokio::spawn(async move {
            let disks: u32 = "none".parse().unwrap();
            gate.not_ready(format!("has lost {disks} disks"));
        });
        task.await.unwrap_err();
        assert_eq!(readiness.unready(), unready(&[("ledger", "has ended")]));
    }

    #[test]
    fn a_process_that_stops_is_unready_whatever_its_gates_say() {
        let readiness = Readiness::default();
        let gate = readiness.gate("grpc");
        gate.ready();
        readiness.stopping();
        gate.ready();
        assert_eq!(readiness.unready(), unready(&[("process", "is shutting down")]));
    }

    #[tokio::test]
    async fn a_watch_wakes_for_changes_only() {
        let readiness = Readiness::default();
        let gate = readiness.gate("grpc");
        let mut watch = readiness.watch();
        gate.ready();
        assert_eq!(watch.changed().await, Some(unready(&[])));
        gate.ready();
        let idle = tokio::time::timeout(std::time::Duration::from_millis(20), watch.changed()).await;
        assert!(idle.is_err(), "nothing changed, yet: {idle:?}");
        drop(gate);
        assert_eq!(watch.changed().await, Some(unready(&[("grpc", "has ended")])));
    }
}
