//! The program that runs beside sshd in every pod of a jump host. It has three commands, since a pod runs it in three containers.
//!
//! | module | holds |
//! |---|---|
//! | [`command`] | the command line |
//! | [`install`] | copies programs to where the container of sshd finds them |
//! | [`follow`] | keeps the files that sshd and ssh read as the `ConfigMap` and the Secret have them |
//! | [`files`] | these files |
//! | [`sshd`] | runs sshd, and makes it read its configuration again |
//! | [`options`] | options of newer versions of sshd besides their configuration |
//! | [`reload`] | when sshd is to read it again |
//! | [`lines`] | lines of bounded length, as sshd writes them |
//! | [`account`] | the account that users log in to |
//! | [`sessions`] | who logged in, by what sshd writes |
//! | [`connections`] | TCP connections of the pod |
//! | [`orphans`] | processes whose parent has ended |
//!
//! The reasons are in `docs/decisions/2026-11-23-sshd-runs-as-its-users.md`.

pub mod account;
pub mod command;
pub mod connections;
pub mod files;
pub mod follow;
pub mod install;
pub mod lines;
pub mod options;
pub mod orphans;
pub mod reload;
pub mod sessions;
pub mod sshd;
