//! A file whose syncs are counted, and take longer or nothing.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redb::{StorageBackend, backends::FileBackend};

/// What a sync is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sync {
    /// The disk's, and so much longer.
    Disk(Duration),
    /// Nothing.
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Storage {
    file: FileBackend,
    sync: Sync,
    syncs: Arc<AtomicU64>,
}

impl Storage {
    /// A new file, which is gone with the last handle to it, and the count of its syncs.
    pub(crate) fn new(sync: Sync) -> (Self, Arc<AtomicU64>) {
        let syncs = Arc::default();
        let storage = Self {
            file: FileBackend::new(tempfile::tempfile().unwrap()).unwrap(),
            sync,
            syncs: Arc::clone(&syncs),
        };
        (storage, syncs)
    }
}

impl StorageBackend for Storage {
    fn len(&self) -> Result<u64, io::Error> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        match self.sync {
            Sync::Disk(longer) => {
                std::thread::sleep(longer);
                self.file.sync_data()
            }
            Sync::Nothing => Ok(()),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.file.write(offset, data)
    }
}
