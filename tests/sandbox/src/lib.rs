//! Brings a site up: etcd, kube-apiserver, controllers, the scheduler and the agents as real processes.
//!
//! A [`Site`](site::Site) is a Kubernetes control plane of its own, a [`Region`](region::Region) the scheduler with
//! the certificates that it and the agents show each other. Both start ordinary processes on loopback ports, keep
//! everything in one temporary directory each, and end what they started by process id: when they are dropped, when a
//! test panics, and when the whole test process is killed (see [`process`]).
//!
//! ```no_run
//! use sandbox::site::{Nodes, Site};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let site = Site::builder("site-a").nodes(Nodes::Kwok(3)).start().await?;
//! let answer = site.kubectl(&["get", "nodes"]).await?;
//! println!("{}", answer.stdout);
//! # Ok(())
//! # }
//! ```

pub mod audit;
pub mod authority;
pub mod browser;
pub mod cert_manager;
pub mod crds;
pub mod dex;
pub mod etcd;
pub mod installation;
pub mod invariants;
pub mod inventory;
pub mod jump_host;
pub mod kubelogin;
pub mod login;
pub mod node;
mod pki;
pub mod port;
pub mod process;
pub mod programs;
pub mod promtool;
pub mod proxy;
pub mod readiness;
pub mod redfish_emulator;
pub mod region;
pub mod repository;
pub mod service_account_token;
pub mod sip_clusters;
pub mod site;
pub mod slapd;
pub mod strangers;
pub mod tools;
pub mod wait;
