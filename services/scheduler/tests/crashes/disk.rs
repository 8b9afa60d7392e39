//! A disk in memory that keeps what was synced, and of the rest whatever the seed says.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rand::{Rng as _, rngs::StdRng};
use redb::StorageBackend;

/// Disks write sectors; that one is whole is more than the ledger may rely on, so half of the tears are anywhere.
const SECTOR: usize = 512;

/// Where the power is cut: during the operation with this number, counted from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) at: u64,
}

/// What of the operations since the last sync reaches the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Survivors {
    /// Nothing.
    None,
    /// Everything, also the operation that was cut.
    All,
    /// The first of them, the last of those in part.
    Prefix,
    /// Any of them, in part or whole.
    Some,
}

impl Survivors {
    pub(crate) const ALL: [Self; 4] = [Self::None, Self::All, Self::Prefix, Self::Some];
}

/// A handle; clones share the disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    synced: Vec<u8>,
    /// What the process sees.
    seen: Vec<u8>,
    pending: Vec<Pending>,
    operations: u64,
    cut: Option<Cut>,
}

#[derive(Debug)]
enum Pending {
    Write { offset: usize, bytes: Vec<u8> },
    Resize(usize),
}

impl Disk {
    /// What is there after the power came back.
    pub(crate) fn holding(image: Vec<u8>) -> Self {
        Self::new(image, None)
    }

    pub(crate) fn holding_with_cut(image: Vec<u8>, cut: Cut) -> Self {
        Self::new(image, Some(cut))
    }

    fn new(image: Vec<u8>, cut: Option<Cut>) -> Self {
        Self(Arc::new(Mutex::new(State {
            synced: image.clone(),
            seen: image,
            cut,
            ..State::default()
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes, resizes and syncs so far.
    pub(crate) fn operations(&self) -> u64 {
        self.state().operations
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.state().is_cut()
    }

    /// What a process sees.
    pub(crate) fn seen(&self) -> Vec<u8> {
        self.state().seen.clone()
    }

    /// What is on the disk after the cut, and whether a write is there in part.
    pub(crate) fn image(&self, survivors: Survivors, rng: &mut StdRng) -> (Vec<u8>, bool) {
        let state = self.state();
        let mut image = state.synced.clone();
        let prefix = rng.random_range(0..=state.pending.len());
        let mut any_torn = false;
        for (index, pending) in state.pending.iter().enumerate() {
            let tear = match survivors {
                Survivors::None => continue,
                Survivors::All => None,
                Survivors::Prefix if index < prefix => None,
                Survivors::Prefix if index == prefix => Some(Tear::random(rng)),
                Survivors::Prefix => break,
                Survivors::Some => match rng.random_range(0..4) {
                    0 => continue,
                    1 => Some(Tear::random(rng)),
                    _ => None,
                },
            };
            any_torn |= tear.is_some() && matches!(pending, Pending::Write { .. });
            pending.reach(&mut image, tear);
        }
        (image, any_torn)
    }
}

/// Which bytes of a write reach the disk.
#[derive(Clone, Copy, Debug)]
enum Tear {
    /// Those before this part of it, of 1,000.
    Head(usize),
    /// Those from this part of it on.
    Tail(usize),
    /// The sectors whose number has this remainder by two.
    Sectors(usize),
}

impl Tear {
    fn random(rng: &mut StdRng) -> Self {
        match rng.random_range(0..4) {
            0 => Self::Head(rng.random_range(0..1000)),
            1 => Self::Tail(rng.random_range(0..1000)),
            _ => Self::Sectors(rng.random_range(0..2)),
        }
    }

    /// The parts of a write of this length at this place that reach the disk.
    fn spares(self, length: usize, offset: usize) -> Vec<(usize, usize)> {
        match self {
            Self::Head(part) => vec![(0, length * part / 1000)],
            Self::Tail(part) => vec![(length * part / 1000, length)],
            Self::Sectors(parity) => (offset / SECTOR..=(offset + length) / SECTOR)
                .filter(|sector| sector % 2 == parity)
                .map(|sector| {
                    let within = |at: usize| at.saturating_sub(offset).min(length);
                    (within(sector * SECTOR), within((sector + 1) * SECTOR))
                })
                .collect(),
        }
    }
}

impl Pending {
    fn reach(&self, image: &mut Vec<u8>, tear: Option<Tear>) {
        match self {
            Self::Write { offset, bytes } => {
                let whole = || vec![(0, bytes.len())];
                for (start, end) in tear.map_or_else(whole, |tear| tear.spares(bytes.len(), *offset)) {
                    let (from, to) = (offset + start, offset + end);
                    if image.len() < to {
                        image.resize(to, 0);
                    }
                    image[from..to].copy_from_slice(&bytes[start..end]);
                }
            }
            // A length is there or it is not.
            Self::Resize(length) if tear.is_none() => image.resize(*length, 0),
            Self::Resize(_) => {}
        }
    }
}

fn no_power() -> io::Error {
    io::Error::other("the power is cut")
}

fn place(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(io::Error::other)
}

impl State {
    fn is_cut(&self) -> bool {
        self.cut.is_some_and(|Cut { at }| self.operations >= at)
    }

    fn on(&self) -> io::Result<()> {
        if self.is_cut() { Err(no_power()) } else { Ok(()) }
    }

    /// Counts an operation; the one during which the power goes fails, and may have happened all the same.
    fn begin(&mut self) -> io::Result<()> {
        self.on()?;
        self.operations += 1;
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        let state = self.state();
        state.on()?;
        u64::try_from(state.seen.len()).map_err(io::Error::other)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        state.on()?;
        let from = place(offset)?;
        let bytes = state.seen.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state();
        state.begin()?;
        let length = place(len)?;
        state.pending.push(Pending::Resize(length));
        state.seen.resize(length, 0);
        state.on()
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.begin()?;
        // Cut here, the sync has reached any part of what is pending.
        state.on()?;
        let State { synced, pending, .. } = &mut *state;
        for pending in pending.drain(..) {
            pending.reach(synced, None);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.begin()?;
        let write = Pending::Write {
            offset: place(offset)?,
            bytes: data.to_vec(),
        };
        write.reach(&mut state.seen, None);
        state.pending.push(write);
        state.on()
    }
}
