//! What each role of a request demands.

use super::pool::Pool;
use super::role_needs::{Gate, Pressing};
use super::tree::Tree;

/// What one role demands, and the hosts that it may choose from.
#[derive(Debug, Clone)]
pub(crate) struct Demand {
    /// Lost members to be replaced.
    pub(crate) replace: u32,
    /// In which turn each of these is sent, among those of all roles.
    pub(crate) turns: Vec<Pressing>,
    /// How many of these may be lost members other than lost replacements.
    pub(crate) fresh: u32,
    /// One more to be moved.
    pub(crate) moves: bool,
    pub(crate) growth: u32,
    /// The outer domains of the spots and of the present members, which are their loads.
    pub(crate) tree: Tree,
    pub(crate) pool: Pool,
}

impl Demand {
    pub(crate) fn total(&self) -> u32 {
        self.replace
            .saturating_add(u32::from(self.moves))
            .saturating_add(self.growth)
    }

    pub(super) fn has(&self, gate: Gate) -> bool {
        self.pool.spots.iter().any(|spot| spot.gate == gate)
    }
}
