//! Keeps a running HAProxy at the configuration in its `ConfigMap`: servers are added and removed without a restart, and no
//! listener is closed. One such process runs beside each HAProxy, as a native sidecar; they share a directory
//! with the configuration and the socket of HAProxy's master, and nothing else.
//!
//! | module | what it does |
//! |---|---|
//! | [`config_map`] | watches the one `ConfigMap` |
//! | [`wanted`], [`members`] | parse it into types that need no further checks |
//! | [`file`](mod@file) | writes the file that HAProxy starts with |
//! | [`cli`] | commands and answers over the socket of HAProxy's master |
//! | [`observe`](mod@observe), [`tables`] | the state of HAProxy's processes |
//! | [`steps`] | decides what to change: pure |
//! | [`commands`] | executes it |
//! | [`follow`] | the reconcile loop |
//! | [`metrics`], [`run`] | the process |
//!
//! The reasons are in `docs/decisions/2026-11-22-servers-change-without-a-restart.md`.

pub mod cli;
pub mod commands;
pub mod config_map;
pub mod file;
pub mod follow;
pub mod members;
pub mod metrics;
pub mod observe;
pub mod run;
pub mod steps;
pub mod tables;
pub mod wanted;

#[cfg(test)]
mod fixtures;
