//! The commands that need a region: its scheduler, its ledger or its certificates, or the API server of one of its sites. Without the feature
//! `region`, sipctl has only those that compute from files, and builds without a protobuf compiler.
//!
//! `sipctl ledger` backs a ledger up, moves it and checks it: [`ledger`]; before a restore, `sipctl ledger rehearse` compares it with a
//! site: [`ledger::rehearse`]. `sipctl certs` makes certificates: [`certs`]. `sipctl site reset-fence`, `sipctl site repair` and
//! `sipctl release-orphan` override what protects a site: [`operate`]. `sipctl adopt` checks a site before it is switched over from SIP:
//! [`adopt`], with the templates that it has: [`sip_templates`]. `sipctl cordon`, `uncordon`, `replace`, `mark-failed` and `confirm-release` maintain hosts and domains: [`maintenance`].
//! `sipctl kubeconfig` writes how people log in to a tenant cluster: [`kubeconfig`]. `sipctl ssh-config` and `ssh` lead to nodes: [`ssh`].
//! [`cli`] and [`command`] are the thin shells around them.

pub mod adopt;
pub mod certs;
pub mod cli;
pub mod command;
mod connection;
mod executor;
pub mod kubeconfig;
pub mod ledger;
pub mod maintenance;
pub mod operate;
pub mod outcome;
pub mod sip_templates;
mod site;
mod site_repair;
pub mod ssh;
