//! The code base keeps its own rules, and its documents say what is so.
//!
//! | module | holds |
//! |---|---|
//! | [`dependencies`] | the direction of dependencies between crates, and what the pure ones may reach |
//! | [`doors`] | what decides and remembers knows no protobuf |
//! | [`modules`] | the direction in which the files of a crate take names from each other |
//! | [`sources`] | sizes of files, names of modules and functions, no machine paths |
//! | [`metrics`] | the reference of metrics lists those of the code |
//! | [`links`] | links and paths in documents lead somewhere |
//! | [`decisions`] | records of decisions have their form |
//! | [`defects`] | every defect of SIP is held by a test that exists |
//! | [`filters`] | filters of tests in the Makefile match tests that exist |
//! | [`kubernetes`] | the minors of Kubernetes that the installation page names are those that tests run |
//! | [`mutations`] | patches that leave a rule out of the decision apply |
//! | [`release`] | a release is what was committed, the same each time, and no release is made of anything else |
//! | [`alerts`] | alerts name metrics that exist |
//! | [`airship`] | the function for airshipctl has the objects of the example, and its replacements find what they name |
//! | [`assumptions`] | every assumption about other components has a source with a version, and tests that exist |
//! | [`commands`] | commands that a document shows work, and print what it shows |
//!
//! Needs the project's programs: `cargo build --workspace --bins`, which `make test` does first.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, what it calls too"
)]

mod airship;
mod alerts;
mod assumptions;
mod commands;
mod decisions;
mod defects;
mod dependencies;
mod doors;
mod filters;
mod kubernetes;
mod links;
mod markdown;
mod metrics;
mod modules;
mod mutations;
mod release;
mod repository;
mod sources;
