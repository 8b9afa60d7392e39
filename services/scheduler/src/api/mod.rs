//! The gRPC services: parse at the door, ask the region, answer.

mod authorizer;
mod capacity;
mod explain;
mod hosts;
mod inventory;
mod ledger;
mod listed;
mod log;
mod page;
mod placement;
mod reports;
mod watch;

pub use inventory::Inventory;
pub use ledger::LedgerApi;
pub use placement::Placements;
