//! `sipctl`, the command line of a region's placement.
//!
//! `sipctl plan` decides offline, on files, what the scheduler would decide: [`input`] is the door (documents become types
//! that cannot be wrong), [`plan()`] is pure, [`report`] is what it says as a stable contract, [`table`] is the same for
//! people. `sipctl lose` says what clusters would lose with a domain: [`loss`]. `sipctl ledger` backs a ledger up, moves it and checks it: [`ledger`]; before a restore, `sipctl ledger rehearse` compares it with a site: [`ledger::rehearse`]. `sipctl certs` makes certificates: [`certs`]. `sipctl site reset-fence`, `sipctl site repair` and
//! `sipctl release-orphan` override what protects a site: [`operate`]. `sipctl adopt` checks a site before it is switched over from SIP: [`adopt`]. `sipctl cordon`, `uncordon`,
//! `replace`, `mark-failed` and `confirm-release` maintain hosts and domains: [`maintenance`]. `sipctl kubeconfig` writes how people log in to a tenant cluster: [`kubeconfig`]. `sipctl ssh-config` and `ssh` lead to nodes: [`ssh`]. [`files`], [`cli`] and [`command`] are the thin shells around them.

pub mod adopt;
pub mod certs;
pub mod cli;
pub mod command;
mod connection;
mod ending;
mod executor;
pub mod files;
pub mod input;
pub mod kubeconfig;
pub mod ledger;
mod line;
pub mod loss;
pub mod maintenance;
pub mod operate;
pub mod outcome;
mod output;
mod plan;
mod repair;
pub mod report;
mod site;
pub mod ssh;
pub mod table;

pub use line::one_line;
pub use plan::{Cell, Change, Grid, Plan, Planned, Row, WhyNot, plan};
