//! One site as the scheduler holds it: what it reported, who holds what, and what watchers are sent.
//!
//! Everything here is synchronous and works on memory; [`crate::region`] puts it behind a lock and waits for
//! the ledger. Inventory lives only here; records are copies of what the ledger holds or is about to hold.
//!
//! [`Site`] is composed of parts, each of which owns one kind of state: `inventory`, `existence` (module `cluster_existence`), `claims`,
//! `promises` (`claims_of_lost_ledger`), `refused` (`refused_clusters`), `positions`, `marks`, `notes` and `sessions`. The modules `settle`,
//! `decide`, `conflicts` and `failures` read several parts through a `view` and change none. The modules `steps`, `reporting` and `repair`
//! change a site: each of their functions calls the parts in a fixed order.

mod bmc;
mod bounds;
mod changed_addresses;
mod changes;
mod claims;
mod claims_of_lost_ledger;
mod cluster_existence;
mod completed_releases;
mod conflict_kind;
mod conflicts;
mod decide;
mod due;
mod failures;
mod fitting;
mod inventory;
mod lines;
mod machine_identity;
mod marks;
mod notes;
mod orphans;
mod positions;
mod precedence;
mod refused_clusters;
mod repair;
mod reporting;
mod requested_releases;
mod session;
mod settle;
mod shares;
mod size_limits;
mod staging;
mod state;
mod status_size;
mod step_room;
mod steps;
mod view;

pub use changes::{Changed, Cursor};
pub use cluster_existence::UNOBSERVED_LIMIT;
pub use decide::DecisionInput;
pub use failures::MISSING_LIMIT;
pub use marks::HostFault;
pub(crate) use marks::MAX_FAULTS;
pub use notes::Note;
pub use repair::Repaired;
pub use session::{KEEPALIVE, Session, SessionId};
pub use settle::MISSING_UID;
pub use size_limits::{Limit, LimitArgs, Limits};
pub use staging::Author;
pub(crate) use state::Outline;
pub use state::{Site, Summary};
pub use steps::{Apply, Outcome};
