//! The gRPC services: parse at the door, ask the region, answer.

pub(crate) mod authorize;
mod inventory;
mod ledger;
mod page;
mod placement;
mod reports;
mod watch;

pub use inventory::Inventory;
pub use ledger::LedgerApi;
pub use placement::Placements;
