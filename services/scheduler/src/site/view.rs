//! All of a site that a record is compared with. Reading it changes nothing.

use ::placement::HostId;

use super::{
    claims::Claims, claims_of_lost_ledger::Promises, cluster_existence::Existence, inventory::Inventory,
    positions::Positions,
};
use crate::observed::Host;

/// What a site knows when a record is settled or decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) existence: &'a Existence,
    pub(super) claims: &'a Claims,
    pub(super) promises: &'a Promises,
    pub(super) positions: &'a Positions,
    /// What was reported is complete.
    pub(super) synced: bool,
}

impl<'a> View<'a> {
    /// What was reported of exactly this host; `None` when it is gone or another has its name.
    pub(super) fn reported(self, id: &HostId) -> Option<&'a Host> {
        self.inventory.reported(id)
    }
}
