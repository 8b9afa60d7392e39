//! Installation: the kustomizations of `deploy/` are accepted, agree with the programs, and bring a site up from nothing by the
//! commands of `docs/install.md`.

mod auth_page;
pub(crate) mod commands;
mod contents;
mod desk;
mod drift;
mod killed_pods;
mod ledger_etcd;
mod ledger_jobs;
mod ledger_move;
mod manifests;
mod page;
mod pods;
mod region;
mod scheduler_networks;
mod storage;
