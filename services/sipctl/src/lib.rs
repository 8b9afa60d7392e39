//! `sipctl`, the command line of a region's placement.
//!
//! `sipctl plan` decides offline, on files, what the scheduler would decide: [`input`] is the door (documents become types
//! that cannot be wrong), [`plan()`] is pure, [`report`] is what it says as a stable contract, [`table`] is the same for
//! people. `sipctl lose` says what clusters would lose with a domain: [`loss`]. All other commands are in [`region`]. [`files`], [`cli`] and
//! [`command`] are the thin shells around them.

pub mod cli;
pub mod command;
mod ending;
pub mod files;
pub mod input;
mod line;
pub mod lose;
mod output;
mod plan;
#[cfg(feature = "region")]
pub mod region;
pub mod report;
pub mod table;

pub use line::one_line;
pub use plan::{Cell, Change, Grid, Plan, Planned, Row, WhyNot, plan, unassignable};
