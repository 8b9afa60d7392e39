//! The defects of the SIP operator, by their numbers in `docs/sip-defects.md`: tests that fail on what it did.
//!
//! That table says for each number which test holds it, here or elsewhere; a test of `tests/architecture/` holds the table.

mod hosts;
mod life;
mod spread;
