//! Makes a running HAProxy follow the `ConfigMap` with its configuration: servers come and go without a restart, and without a
//! listener that is closed for a moment. One such process runs beside each HAProxy, as a native sidecar; they share a directory
//! with the configuration and with the socket of HAProxy's master, and nothing else.
//!
//! | module | what it does |
//! |---|---|
//! | [`config_map`] | watches the one `ConfigMap` |
//! | [`wanted`], [`members`] | reads it into types that cannot be wrong |
//! | [`file`](mod@file) | writes the file that HAProxy starts with |
//! | [`cli`] | talks to HAProxy's master |
//! | [`look`](mod@look), [`tables`] | what its workers say of themselves |
//! | [`steps`] | decides what they are to do next: pure |
//! | [`orders`] | tells them |
//! | [`follow`] | does all this, again and again |
//! | [`report`] | answers who asks what runs |
//! | [`metrics`], [`run`] | the process |
//!
//! Why so is in `docs/decisions/2026-11-22-servers-change-without-a-restart.md`.

pub mod cli;
pub mod config_map;
pub mod file;
pub mod follow;
pub mod look;
pub mod members;
pub mod metrics;
pub mod orders;
pub mod report;
pub mod run;
pub mod steps;
pub mod tables;
pub mod wanted;

#[cfg(test)]
mod fixtures;
