//! About how much memory texts and sorted maps take, by what is in them. Never less than they take but for what the allocator keeps for
//! itself, so that a limit on it is a limit on memory.

/// Maximum length, in bytes, of a text that is stored in its owner and allocates nothing.
const MAX_INLINE_BYTES: usize = 23;

/// Bytes of a text beside what has it.
#[must_use]
pub const fn text(length: usize) -> usize {
    /// Bytes of the reference counts, and what the allocator adds.
    const SHARED_OVERHEAD_BYTES: usize = 32;
    if length <= MAX_INLINE_BYTES {
        0
    } else {
        length + SHARED_OVERHEAD_BYTES
    }
}

/// Bytes for each entry of a large sorted map or set whose entries take so many: nodes have room for more than is in them.
#[must_use]
pub const fn entry(bytes: usize) -> usize {
    bytes * 7 / 4
}

/// Bytes of a small sorted map or set of so many entries, which take so many bytes each: a node has room for several.
#[must_use]
pub const fn small_map(entries: usize, bytes: usize) -> usize {
    const CAPACITY: usize = 11;
    /// As full as nodes are.
    const FULL: usize = 9;
    const HEADER: usize = 16;
    entries.div_ceil(FULL) * (CAPACITY * bytes + HEADER)
}

/// Capacity of a vector that grows, as a multiple of its length.
pub(crate) const VECTOR_GROWTH: usize = 2;
