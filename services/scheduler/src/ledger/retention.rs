//! How long the log of decisions is kept: so much of each site, whatever other sites write and whatever clocks state.
//!
//! Every site has a share of its own. An entry goes when its site's share is full and it is the site's oldest, or when it is
//! too old. How much is removed and read for that after one commit is bounded: meanwhile no change of any site is stored.
//!
//! Age is counted by a clock of the ledger's own, which runs while a scheduler does and never jumps: the time in an entry is for
//! people. Each slot of time begins at a commit, so the number of an entry's commit says its age.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use prost::Message as _;
use proto::placement::v1 as api;

/// Number of entries that one commit removes besides one for each that it adds: the log shrinks.
pub(crate) const TRIMMED_ENTRIES: usize = 32;
/// Bytes that one commit removes besides those that it adds.
const TRIMMED_BYTES: u64 = 64 << 10;
/// Maximum number of entries that one commit removes, so that none takes long: as many small ones as make place for large ones.
const MAX_TRIMMED_ENTRIES: usize = 16 << 10;
/// Maximum number of bytes that one commit removes besides, if a site has exceeded its share while the scan had not found its oldest
/// entries.
const MAX_TRIMMED_EXCESS_BYTES: u64 = 16 << 20;
/// Maximum number of entries that one commit reads to trim the log, besides the last one.
const MAX_READ_ENTRIES: usize = 8192;
/// Maximum size of these entries, in bytes.
const MAX_READ_BYTES: u64 = 64 << 20;
/// Number of slots of time in the maximum age of an entry: how exact that age is.
const AGE_SLOTS: u32 = 90;

/// How much of the log of decisions is kept: the newest entries of each site within both limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Age of the oldest entry, in time that a scheduler has run.
    pub age: Duration,
    /// Bytes of a site's entries as they are stored: its share, which no other site uses.
    pub bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            age: Duration::from_hours(90 * 24),
            bytes: 64 << 20,
        }
    }
}

/// What one commit may still remove: more than it adds, by number and by bytes, whatever the size of what it adds and of what it
/// removes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removal {
    entries: usize,
    bytes: u64,
    most: usize,
}

impl Removal {
    /// For a commit that adds so many entries of so many bytes together.
    pub(crate) fn beside(entries: usize, bytes: u64) -> Self {
        Self {
            entries: entries + TRIMMED_ENTRIES,
            bytes: bytes + TRIMMED_BYTES,
            most: MAX_TRIMMED_ENTRIES,
        }
    }

    /// How many more entries it may remove, if these are of no size.
    pub(crate) fn entries(&self) -> usize {
        if self.entries > 0 || self.bytes > 0 {
            self.most
        } else {
            0
        }
    }

    /// It removes one of this size.
    pub(crate) fn count(&mut self, size: u64) {
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(size);
        self.most = self.most.saturating_sub(1);
    }
}

/// What the trimming after one commit may still do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trim {
    /// Removal of entries that are too old.
    pub(crate) old: Removal,
    /// Removal of the oldest entries of sites whose share is full. However many entries are too old, it continues: otherwise such a site would grow.
    pub(crate) full: Removal,
    entries: usize,
    bytes: u64,
}

impl Trim {
    /// After so many entries of so many bytes together were added since the last trimming.
    pub(crate) fn beside(entries: usize, bytes: u64, shares: &Shares) -> Self {
        let excess = shares.excess().min(MAX_TRIMMED_EXCESS_BYTES);
        Self {
            old: Removal::beside(entries, bytes),
            full: Removal::beside(entries, bytes + excess),
            entries: MAX_READ_ENTRIES,
            bytes: MAX_READ_BYTES,
        }
    }

    /// How many more entries it may read, if these are of no size.
    pub(crate) fn readable(&self) -> usize {
        if self.bytes > 0 { self.entries } else { 0 }
    }

    /// It reads one of this size.
    pub(crate) fn read(&mut self, size: u64) {
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(size);
    }

    /// Whether it may remove more.
    pub(crate) fn may_remove_more(&self) -> bool {
        self.old.entries() > 0 || self.full.entries() > 0
    }
}

/// How long this process has run.
#[derive(Clone)]
pub(crate) struct Uptime(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Default for Uptime {
    fn default() -> Self {
        let begun = Instant::now();
        Self::new(move || begun.elapsed())
    }
}

impl Uptime {
    pub(crate) fn new(uptime: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(uptime))
    }
}

impl fmt::Debug for Uptime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Uptime").field(&(self.0)()).finish()
    }
}

/// What is kept of the log, and which entries go next.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    pub(crate) retention: Retention,
    uptime: Uptime,
    /// The ledger's clock when the storage was opened.
    base: Duration,
    /// Bytes of each site's entries.
    bytes: BTreeMap<String, u64>,
    /// When slots of time began, in seconds of the ledger's clock, with the first commit that was written in each.
    slots: BTreeMap<u64, u64>,
    /// The oldest entries of each site, as far as the log is scanned: commit and size.
    oldest: BTreeMap<String, VecDeque<(u64, u64)>>,
    scanned: Scanned,
}

/// How far the log is scanned, from its oldest entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scanned {
    /// All entries below this commit.
    Below(u64),
    /// Every entry.
    All,
}

impl Shares {
    /// What the storage states of its log.
    pub(crate) fn new(base: Duration, bytes: BTreeMap<String, u64>, slots: BTreeMap<u64, u64>) -> Self {
        let scanned = if bytes.values().all(|bytes| *bytes == 0) {
            Scanned::All
        } else {
            Scanned::Below(0)
        };
        Self {
            retention: Retention::default(),
            uptime: Uptime::default(),
            base,
            bytes,
            slots,
            oldest: BTreeMap::new(),
            scanned,
        }
    }

    pub(crate) fn clocked(&mut self, uptime: Uptime) {
        self.uptime = uptime;
    }

    /// The log was replaced by another one.
    pub(crate) fn recounted(&mut self, counted: &Self) {
        self.bytes.clone_from(&counted.bytes);
        self.oldest.clear();
        self.scanned = counted.scanned;
    }

    /// What it counts is this.
    pub(crate) fn count(&mut self, bytes: BTreeMap<String, u64>) {
        self.bytes = bytes;
    }

    /// The ledger's clock.
    pub(crate) fn now(&self) -> Duration {
        self.base + (self.uptime.0)()
    }

    /// Bytes of each site's entries.
    pub(crate) fn bytes(&self) -> &BTreeMap<String, u64> {
        &self.bytes
    }

    /// The slot that a change of this commit begins, if it is time for one.
    pub(crate) fn due_slot(&self, commit: u64) -> Option<(u64, u64)> {
        let now = self.now();
        let last = self.slots.last_key_value().map(|(at, _)| *at);
        let due = last.is_none_or(|last| {
            now.as_secs() > last && now >= Duration::from_secs(last) + self.retention.age / AGE_SLOTS
        });
        due.then_some((now.as_secs(), commit))
    }

    /// A slot has begun.
    pub(crate) fn begin_slot(&mut self, (at, commit): (u64, u64)) {
        self.slots.insert(at, commit);
    }

    /// Some slots that began before the one that limits the age: they no longer count.
    pub(crate) fn take_past_slots(&mut self) -> Vec<u64> {
        let Some(limit) = self.limit() else {
            return Vec::new();
        };
        let past: Vec<u64> = self
            .slots
            .range(..limit)
            .take(TRIMMED_ENTRIES)
            .map(|(at, _)| *at)
            .collect();
        for at in &past {
            self.slots.remove(at);
        }
        past
    }

    /// The latest slot that began as long ago as an entry may be old.
    fn limit(&self) -> Option<u64> {
        let before = self.now().checked_sub(self.retention.age)?.as_secs();
        self.slots.range(..=before).next_back().map(|(at, _)| *at)
    }

    /// Entries below this commit are too old.
    pub(crate) fn too_old_below(&self) -> u64 {
        self.limit()
            .and_then(|at| self.slots.get(&at).copied())
            .unwrap_or(0)
    }

    /// An entry is there now.
    pub(crate) fn added(&mut self, site: &str, commit: u64, size: u64) {
        *self.bytes.entry(site.to_owned()).or_default() += size;
        if self.scanned == Scanned::All {
            self.oldest
                .entry(site.to_owned())
                .or_default()
                .push_back((commit, size));
        }
    }

    /// An entry is no longer there.
    pub(crate) fn removed(&mut self, site: &str, commit: u64, size: u64) {
        if let Some(bytes) = self.bytes.get_mut(site) {
            *bytes = bytes.saturating_sub(size);
        }
        if let Some(oldest) = self.oldest.get_mut(site) {
            while oldest.front().is_some_and(|(first, _)| *first <= commit) {
                oldest.pop_front();
            }
        }
    }

    /// The site that has the most beyond its share.
    pub(crate) fn full(&self) -> Option<&str> {
        let full = self
            .bytes
            .iter()
            .filter(|(_, bytes)| **bytes > self.retention.bytes);
        full.max_by_key(|(_, bytes)| **bytes).map(|(site, _)| &**site)
    }

    /// Bytes that the site that has the most beyond its share has beyond it.
    fn excess(&self) -> u64 {
        let most = self.bytes.values().copied().max().unwrap_or(0);
        most.saturating_sub(self.retention.bytes)
    }

    /// The oldest entry of a site: commit and size; `None` as long as the scan has not found it.
    pub(crate) fn oldest(&self, site: &str) -> Option<(u64, u64)> {
        self.oldest.get(site)?.front().copied()
    }

    /// Where the scan continues; `None` when every entry is known.
    pub(crate) fn scan_from(&self) -> Option<u64> {
        match self.scanned {
            Scanned::Below(commit) => Some(commit),
            Scanned::All => None,
        }
    }

    /// Takes in an entry that was read.
    pub(crate) fn scan(&mut self, commit: u64, value: &[u8]) {
        let site = site(value);
        self.oldest
            .entry(site)
            .or_default()
            .push_back((commit, size(value)));
        self.scanned = Scanned::Below(commit.saturating_add(1));
    }

    /// There are no more.
    pub(crate) fn scanned_all(&mut self) {
        self.scanned = Scanned::All;
    }
}

/// Which site a stored entry is of; none that is known if it cannot be read, and then it counts as of a site without name.
pub(crate) fn site(value: &[u8]) -> String {
    api::Decision::decode(value)
        .map(|decision| decision.site)
        .unwrap_or_default()
}

pub(crate) fn size(value: &[u8]) -> u64 {
    u64::try_from(value.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn one_trim_reads_so_many_entries_or_so_many_bytes() {
        let shares = Shares::new(Duration::ZERO, BTreeMap::new(), BTreeMap::new());
        for (size, expected) in [
            (0, MAX_READ_ENTRIES),
            (1 << 10, MAX_READ_ENTRIES),
            (1 << 20, 64),
            (100 << 20, 1),
        ] {
            let mut left = Trim::beside(1, 100, &shares);
            let mut read = 0;
            while left.readable() > 0 {
                left.read(size);
                read += 1;
            }
            assert_eq!(read, expected, "entries of {size} bytes");
        }
    }

    #[test]
    fn what_a_site_has_beyond_its_share_is_removed_besides() {
        let bytes = BTreeMap::from([("a".to_owned(), 3 << 20), ("b".to_owned(), 9 << 20)]);
        let mut shares = Shares::new(Duration::ZERO, bytes, BTreeMap::new());
        let removed = |shares: &Shares| {
            let mut left = Trim::beside(1, 1 << 10, shares);
            let mut removed = 0;
            while left.full.entries() > 0 {
                left.full.count(1 << 10);
                removed += 1;
            }
            removed
        };
        assert_eq!(removed(&shares), 65, "64 KiB more than it adds");
        shares.retention.bytes = 8 << 20;
        assert_eq!(removed(&shares), 65 + 1024);
    }

    #[test]
    fn age_is_counted_in_slots_of_the_ledgers_clock() {
        let time = Arc::new(Mutex::new(Duration::ZERO));
        let clock = Arc::clone(&time);
        let mut shares = Shares::new(Duration::from_secs(1000), BTreeMap::new(), BTreeMap::new());
        shares.retention.age = Duration::from_secs(90);
        shares.clocked(Uptime::new(move || *clock.lock().unwrap()));
        for second in 0..200 {
            *time.lock().unwrap() = Duration::from_secs(second);
            if let Some(slot) = shares.due_slot(second + 1) {
                shares.begin_slot(slot);
            }
            let below = shares.too_old_below();
            let expected = if second < 90 { 0 } else { second - 90 + 1 };
            assert_eq!(below, expected, "second {second}");
            shares.take_past_slots();
            assert!(shares.slots.len() <= 92, "{}", shares.slots.len());
        }
    }
}
