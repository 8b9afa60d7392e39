//! The log of decisions: reading it, counting it, and removing what is not to be kept.

use std::collections::BTreeMap;
use std::time::Duration;

use proto::ledger::v1 as disk;

use super::{
    Etcd,
    batch::{self, Part},
    keys::{Keys, number},
    pages::{self, PageSize},
};
use crate::ledger::{
    Commit, Error, Page, Query,
    log::Reading,
    retention::{Shares, Trim, site, size},
};

/// Number of entries added to the log after which it is trimmed.
pub(super) const ENTRIES_PER_TRIM: usize = 64;

/// Sizes of the next pages when the log is trimmed, adapted to the sizes of the entries in the pages before.
#[derive(Debug)]
pub(super) struct Sizes {
    /// For entries that are too old.
    old: PageSize,
    /// For entries whose site is read.
    scanned: PageSize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            old: PageSize::of_at_most(2 * ENTRIES_PER_TRIM),
            scanned: PageSize::default(),
        }
    }
}

/// Maximum number of entries that one transaction removes.
const MAX_REMOVED_ENTRIES: usize = 4096;
/// Maximum number of requests for one page of the log: a thread that all callers share waits for them. More than any one page without
/// gaps needs, and so many that each page gets further.
const MAX_PAGE_REQUESTS: usize = 256;

/// How many commits the next request for a page of the log covers.
#[derive(Clone, Copy, Debug)]
struct Span(u64);

impl Span {
    /// The first one, for a page with so many keys.
    fn first(keys: usize) -> Self {
        Self(whole(keys))
    }

    /// After an answer with all entries of the span: trimming leaves gaps, and what one site has had between the entries of another may be
    /// very wide. So the next span is as wide as half a page of entries was, but has no fewer commits than a page has keys.
    fn adapt(&mut self, entries: usize, keys: usize) {
        self.0 = match self.0.checked_div(whole(entries)) {
            None => self.0.saturating_mul(2),
            Some(apart) => apart.saturating_mul(whole(keys / 2)).max(whole(keys)),
        };
    }

    /// After an answer that was cut off after the oldest entries of the span, though the newest are wanted.
    fn shrink(&mut self) {
        self.0 = (self.0 / 8).max(1);
    }
}

fn whole(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl Etcd {
    /// Reads entries in spans of commits, from the newest: each commit has at most one entry, and keys sort by commit. Between two requests it
    /// checks whether the caller is still waiting.
    pub(super) fn read_part(&self, query: Query<'_>) -> Result<Page, Error> {
        let keys = &self.location.keys;
        let mut size = PageSize::default();
        let mut reading = Reading::new(query);
        let mut upto = query.before.min(self.written().last.next()).number();
        let mut span = Span::first(size.keys());
        let mut requests = 0;
        while upto > 0 {
            if reading.is_whole(Commit::new(upto)) {
                return Ok(reading.page());
            }
            if requests == MAX_PAGE_REQUESTS {
                return Ok(reading.page_up_to(Commit::new(upto)));
            }
            requests += 1;
            let from = upto.saturating_sub(span.0);
            let (begin, end) = (keys.decision(Commit::new(from)), keys.decision(Commit::new(upto)));
            let answer = pages::first(&self.location, &begin, &end, 0, &mut size);
            let mut answer = self.runtime.block_on(answer)?;
            if answer.more() {
                span.shrink();
                continue;
            }
            let entries = answer.take_kvs();
            size.adapt(&entries);
            span.adapt(entries.len(), size.keys());
            for entry in entries.iter().rev() {
                let commit = number(keys, entry)?;
                if reading.is_whole(commit.next()) {
                    return Ok(reading.page());
                }
                reading.add(commit, entry.value())?;
            }
            upto = from;
        }
        Ok(reading.page())
    }

    /// What the storage states of the log, when it was opened.
    pub(super) async fn shares(&self, position: &disk::Position) -> Result<Shares, Error> {
        let keys = &self.location.keys;
        let mut slots = BTreeMap::new();
        for entry in pages::all(&self.location, &keys.slots(), 0).await? {
            let at: Option<u64> = Keys::rest(entry.key(), &keys.slots())?.parse().ok();
            let commit = std::str::from_utf8(entry.value()).ok();
            let commit: Option<u64> = commit.and_then(|commit| commit.parse().ok());
            slots.extend(at.zip(commit));
        }
        let mut bytes = position.log_bytes_by_site.clone();
        if !position.log_is_counted {
            bytes = BTreeMap::new();
            self.each_entry(0, &mut |_, value| {
                *bytes.entry(site(value)).or_default() += size(value);
                Ok(())
            })
            .await?;
        }
        let clock = Duration::from_secs(position.log_clock_seconds);
        Ok(Shares::new(clock, bytes, slots))
    }

    /// A transaction's worth of entries that are not to be kept, and slots of time that are over; `left`: what may be read and removed by all
    /// transactions after one commit. The log is scanned now and then only, since that is a request of its own.
    ///
    /// # Errors
    /// When the log cannot be read. What is in the part by then is to be removed nevertheless: `shares` no longer has it.
    pub(super) async fn trimming(
        &self,
        part: &mut Part,
        shares: &mut Shares,
        left: &mut Trim,
    ) -> Result<(), Error> {
        let (keys, limits) = (&self.location.keys, self.location.limits);
        let span = batch::span_size(keys);
        for at in shares.take_past_slots() {
            part.writes.insert(keys.slot(at), None);
        }
        let too_old = shares.too_old_below();
        let room = part.room(limits, span);
        let room = room.min(left.old.entries()).min(left.readable());
        // The storage still has what this transaction removes: read once more, it would be removed and counted twice.
        let mut unread_from = 0;
        if too_old > 0 && room > 0 {
            let (from, end) = (keys.decision(Commit::NONE), keys.decision(Commit::new(too_old)));
            let mut page = self.pages().old.up_to(room);
            let entries = pages::first(&self.location, &from, &end, 0, &mut page)
                .await?
                .take_kvs();
            page.adapt(&entries);
            self.pages().old = page;
            for entry in entries {
                left.read(size(entry.value()));
                left.old.count(size(entry.value()));
                let commit = number(keys, &entry)?;
                unread_from = commit.next().number();
                remove(part, shares, (site(entry.value()), commit, size(entry.value())));
            }
        }
        while part.room(limits, span) > 0
            && part.removed.len() < MAX_REMOVED_ENTRIES
            && left.full.entries() > 0
            && let Some(full) = shares.full().map(str::to_owned)
        {
            if let Some((commit, size)) = shares.oldest(&full) {
                left.full.count(size);
                remove(part, shares, (full, Commit::new(commit), size));
                continue;
            }
            let Some(from) = shares.scan_from().filter(|_| left.readable() > 0) else {
                break;
            };
            let from = Commit::new(from.max(unread_from));
            let (from, end) = (keys.decision(from), keys.decision(Commit::MAX));
            let mut page = self.pages().scanned.up_to(left.readable());
            let entries = pages::first(&self.location, &from, &end, 0, &mut page)
                .await?
                .take_kvs();
            let scanned_all = entries.len() < page.keys();
            page.adapt(&entries);
            self.pages().scanned = page;
            for entry in &entries {
                left.read(size(entry.value()));
                shares.scan(number(keys, entry)?.number(), entry.value());
            }
            if scanned_all {
                shares.scanned_all();
            }
        }
        Ok(())
    }
}

fn remove(part: &mut Part, shares: &mut Shares, (site, commit, size): (String, Commit, u64)) {
    shares.removed(&site, commit.number(), size);
    part.remove(commit);
    part.removed.push((site, commit, size));
}
