//! A disk in memory that can fail.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use redb::StorageBackend;
use scheduler::{
    ledger::redb::Redb,
    term::{Backend, Refused, Tenure, Waiting, proven},
};

/// What a disk does not do at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is full: it does not grow, and what is there can be overwritten.
    Full,
    /// Syncs fail.
    Sync,
    /// Nothing works.
    Dead,
}

/// A handle; clones share the disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    fault: Option<Fault>,
    held: bool,
}

impl Disk {
    /// From now on it does, or it does not.
    pub(crate) fn fault(&self, fault: Option<Fault>) {
        self.state().fault = fault;
    }

    /// Syncs wait until they are let go.
    pub(crate) fn hold_syncs(&self, held: bool) {
        self.state().held = held;
        self.0.1.notify_all();
    }

    /// Who has it: clones of this, those of opened ledgers too.
    pub(crate) fn users(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn working(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state();
        match state.fault {
            // EIO
            Some(Fault::Dead) => Err(io::Error::from_raw_os_error(5)),
            Some(Fault::Full | Fault::Sync) | None => Ok(state),
        }
    }
}

fn place(number: u64) -> io::Result<usize> {
    usize::try_from(number).map_err(io::Error::other)
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        u64::try_from(self.working()?.bytes.len()).map_err(io::Error::other)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.working()?;
        let at = place(offset)?;
        let bytes = state.bytes.get(at..at + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.working()?;
        let length = place(len)?;
        if length > state.bytes.len() && state.fault == Some(Fault::Full) {
            // ENOSPC
            return Err(io::Error::from_raw_os_error(28));
        }
        state.bytes.resize(length, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.working()?;
        while state.held {
            state = self.0.1.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match state.fault {
            Some(Fault::Sync) => Err(io::Error::from_raw_os_error(5)),
            Some(Fault::Full | Fault::Dead) | None => Ok(()),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.working()?;
        let at = place(offset)?;
        let bytes = state.bytes.get_mut(at..at + data.len());
        bytes.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(data);
        Ok(())
    }
}

#[tonic::async_trait]
impl Backend for Disk {
    async fn begin(&self, _: &Waiting<'_>) -> Result<Tenure, Refused> {
        proven(|| Redb::on(self.clone()))
    }

    async fn end(&self) {}

    fn sole_owner(&self) -> bool {
        true
    }
}
