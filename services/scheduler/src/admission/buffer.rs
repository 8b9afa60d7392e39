//! Bytes of requests and answers in memory, counted by kind of call: what one kind keeps does not count against another.
//!
//! One identity speaks for all tenants of its site. So messages with a large spec, which any tenant can write, have room of their
//! own: however many there are, no other call of the identity notices. Of the rest, each kind of calls has room that no other kind
//! uses; what exceeds it is in room for all kinds together.

use std::sync::{Mutex, PoisonError};

use crate::call_rules::CallKind;

/// What bytes are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Large messages with a spec, a role or a selector.
    Specs,
    /// Other requests and answers of calls of one kind.
    Calls(CallKind),
    /// Heads and trailers of answers, and answers that are errors.
    Heads,
}

/// Bytes that may be kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferLimits {
    /// Of large messages with a spec.
    pub(super) specs: usize,
    /// Of the calls of one kind, which no other kind uses.
    own: [usize; KINDS],
    /// Of all kinds together, beyond their own.
    pub(super) common: usize,
    /// Of heads and trailers.
    pub(super) heads: usize,
}

/// Kinds of calls.
const KINDS: usize = CallKind::ALL.len();
/// Number of parts of a `buffer` in which [`BufferLimits`] are counted.
const BUFFER_PARTS: usize = 32;
/// Parts of a buffer for the heads of all identities of a site.
const HEAD_PARTS: usize = 8;
/// Minimum number of bytes for heads, however small a buffer is: each head has some KiB.
const MIN_HEAD_BYTES: usize = 64 << 10;

impl BufferLimits {
    /// Of one identity, which may have `buffer` bytes of specs.
    pub(super) fn of_identity(buffer: usize) -> Self {
        Self {
            specs: buffer,
            // Four streams of reports have one of the largest messages each.
            own: [4, 4, 4, 4, 16, 1].map(|parts| part(buffer, parts)),
            common: buffer / 2,
            heads: part(buffer, HEAD_PARTS / 2).max(MIN_HEAD_BYTES),
        }
    }

    /// Of all identities of a site: four times a `buffer`. Only one of them makes changes, scans and reports; four have their own
    /// room for the rest.
    pub(super) fn of_site(buffer: usize) -> Self {
        let own = [4, 16, 4, 16, 16, 4];
        let common = 3 * BUFFER_PARTS - own.iter().sum::<usize>() - HEAD_PARTS;
        Self {
            specs: buffer,
            own: own.map(|parts| part(buffer, parts)),
            common: part(buffer, common),
            heads: part(buffer, HEAD_PARTS).max(MIN_HEAD_BYTES),
        }
    }

    /// No limit.
    pub(super) const NONE: Self = Self {
        specs: usize::MAX,
        own: [usize::MAX; KINDS],
        common: usize::MAX,
        heads: usize::MAX,
    };
}

fn part(buffer: usize, parts: usize) -> usize {
    (buffer / BUFFER_PARTS).saturating_mul(parts)
}

/// Bytes that are kept, against their limits.
#[derive(Debug)]
pub(super) struct Buffer {
    limits: BufferLimits,
    kept: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    specs: usize,
    calls: [usize; KINDS],
    /// Of all kinds together, beyond their own room.
    common: usize,
    heads: usize,
}

/// More is kept than there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    pub(super) kept: usize,
    pub(super) most: usize,
}

impl Buffer {
    pub(super) fn new(limits: BufferLimits) -> Self {
        Self {
            limits,
            kept: Mutex::default(),
        }
    }

    /// Keeps so many bytes more.
    ///
    /// # Errors
    /// [`Excess`] when they are too many; they are counted all the same.
    pub(super) fn add(&self, of: Content, bytes: usize) -> Result<(), Excess> {
        self.change(of, |kept| kept.saturating_add(bytes))
    }

    /// Keeps so many bytes less.
    pub(super) fn remove(&self, of: Content, bytes: usize) {
        // An excess is reported to the call that adds bytes, not to one that removes them.
        let _ = self.change(of, |kept| kept.saturating_sub(bytes));
    }

    /// Whether so few heads are kept that they do not matter.
    pub(super) fn has_few_heads(&self) -> bool {
        let counts = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        counts.heads <= MIN_HEAD_BYTES
    }

    /// Whether there is room.
    ///
    /// # Errors
    /// [`Excess`].
    pub(super) fn require(&self, of: Content) -> Result<(), Excess> {
        self.change(of, |kept| kept)
    }

    fn change(&self, of: Content, change: impl FnOnce(usize) -> usize) -> Result<(), Excess> {
        let mut counts = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (kept, most) = match of {
            Content::Specs => {
                counts.specs = change(counts.specs);
                (counts.specs, self.limits.specs)
            }
            Content::Heads => {
                counts.heads = change(counts.heads);
                (counts.heads, self.limits.heads)
            }
            Content::Calls(kind) => {
                let (before, own) = (counts.calls[kind.index()], self.limits.own[kind.index()]);
                let after = change(before);
                counts.calls[kind.index()] = after;
                let beyond = after.saturating_sub(own);
                counts.common = counts.common - before.saturating_sub(own) + beyond;
                if beyond == 0 {
                    return Ok(());
                }
                (counts.common, self.limits.common)
            }
        };
        if kept > most {
            return Err(Excess { kept, most });
        }
        Ok(())
    }

    /// Whether nothing is kept.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let counts = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Counts {
            specs,
            calls,
            common,
            heads,
        } = &*counts;
        (*specs, *calls, *common, *heads) == (0, [0; KINDS], 0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: usize = 32 << 20;

    #[test]
    fn no_kind_uses_up_the_room_of_another() {
        let limits = BufferLimits::of_identity(BUFFER);
        for full in CallKind::ALL {
            let buffer = Buffer::new(limits);
            buffer.add(Content::Specs, BUFFER).unwrap();
            assert!(buffer.require(Content::Specs).is_ok() && buffer.add(Content::Specs, 1).is_err());
            buffer
                .add(Content::Calls(full), limits.own[full.index()] + limits.common)
                .unwrap();
            let excess = buffer.add(Content::Calls(full), 1).unwrap_err();
            assert_eq!((excess.kept, excess.most), (limits.common + 1, limits.common));
            for other in CallKind::ALL.into_iter().filter(|kind| *kind != full) {
                buffer
                    .add(Content::Calls(other), limits.own[other.index()])
                    .unwrap();
                assert!(buffer.add(Content::Calls(other), 1).is_err(), "{other:?}");
            }
        }
    }

    #[test]
    fn what_is_removed_counts_no_more_in_any_order() {
        let buffer = Buffer::new(BufferLimits::of_identity(BUFFER));
        let of = [
            Content::Specs,
            Content::Calls(CallKind::Reads),
            Content::Calls(CallKind::Writes),
            Content::Heads,
        ];
        for bytes in [BUFFER, 3 << 20, 2 << 20] {
            for of in of {
                _ = buffer.add(of, bytes);
            }
        }
        for bytes in [3 << 20, BUFFER, 2 << 20] {
            for of in of {
                buffer.remove(of, bytes);
            }
        }
        assert!(buffer.is_empty());
    }

    #[test]
    fn rooms_of_a_site_are_four_buffers() {
        let BufferLimits {
            specs,
            own,
            common,
            heads,
        } = BufferLimits::of_site(BUFFER);
        assert_eq!(specs + own.iter().sum::<usize>() + common + heads, 4 * BUFFER);
    }

    /// With the smallest `buffer` that can be set, one of the largest messages of each kind is taken.
    #[test]
    fn a_largest_message_has_room() {
        for call in crate::call_rules::Call::ALL {
            let descriptor = call.descriptor();
            let of = if descriptor.has_spec() {
                Content::Specs
            } else {
                Content::Calls(descriptor.kind)
            };
            let bytes = descriptor.largest * descriptor.weight;
            Buffer::new(BufferLimits::of_identity(17 << 20))
                .add(of, bytes)
                .unwrap();
        }
    }
}
