//! One site as the scheduler holds it: what it reported, who holds what, and what to tell watchers.
//!
//! Everything here is synchronous and works on memory; [`crate::region`] puts it behind a lock and waits for
//! the ledger. Inventory lives only here; records are copies of what the ledger holds or is about to hold.
//!
//! [`Site`] is composed of parts, each of which owns what it is about: `inventory`, `existence`, `claims`, `promises`, `positions`,
//! `marks`, `notes` and `session`. What reads several of them and changes none takes a `view`: `settle`, `decide`, `conflicts` and
//! `failures`. The steps that change a site are in `steps`, `reporting` and `repair`; each is the order in which the parts are
//! called.

mod bmc;
mod bounds;
mod changes;
mod claims;
mod conflict_kind;
mod conflicts;
mod decide;
mod due;
mod existence;
mod failures;
mod fitting;
mod freed;
mod inventory;
mod limits;
mod lines;
mod machines;
mod marks;
mod moved;
mod notes;
mod orphans;
mod positions;
mod promises;
mod repair;
mod reporting;
mod requested;
mod room;
mod session;
mod settle;
mod staging;
mod state;
mod status_size;
mod steps;
mod view;

pub use changes::{Changed, Cursor};
pub use decide::Question;
pub use existence::UNOBSERVED_LIMIT;
pub use failures::MISSING_LIMIT;
pub use limits::{Limit, LimitArgs, Limits};
pub(crate) use marks::FAULTS;
pub use marks::HostFault;
pub use notes::Note;
pub use repair::Repaired;
pub use session::{KEEPALIVE, Session, SessionId};
pub use settle::MISSING_UID;
pub use staging::Author;
pub(crate) use state::Outline;
pub use state::{Site, Summary};
pub use steps::{Apply, Outcome};
