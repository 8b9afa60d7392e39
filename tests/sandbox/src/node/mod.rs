//! A real node beside a site's control plane: kubelet, containerd and kube-proxy, with pods that really run.
//!
//! The node has network, pid and mount namespaces of its own, kept by one process; when that ends, the
//! kernel ends everything in them, and takes mounts, interfaces, routes and packet filter rules along. Only the control
//! groups and the directory are removed by the [group](crate::process::Group)'s watchdog. Of the machine
//! nothing is changed, except that control groups of version 2 are given the controllers that they lack. Only root on Linux can have one; [`obstacle()`] says why not.
//!
//! ```no_run
//! use sandbox::{node::{self, Image}, site::{Nodes, Site}};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let haproxy = Image::new("haproxy:2.8", node::system_program("haproxy")?);
//! let site = Site::builder("site-a").nodes(Nodes::Real).image(haproxy).start().await?;
//! # Ok(())
//! # }
//! ```

mod block;
mod cgroups;
mod config;
mod files;
mod isolation;
mod link;
mod machine;
mod obstacle;

use std::{
    io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

pub use images::{Error as ImageError, Image, Program, image::Account};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{Api, Client};

pub(crate) use block::{Block, Subnet};
pub(crate) use machine::Machine;
pub use obstacle::{Obstacle, obstacle, system_program};

use crate::{
    pki::{self, Files},
    process,
    process::{Group, Process},
    wait,
};

/// Why there is no real node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be here.
    #[error(transparent)]
    Obstacle(#[from] Obstacle),
    /// A process did not start or end.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// A certificate.
    #[error(transparent)]
    Certificate(#[from] pki::Error),
    /// An image could not be made.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// It does not become Ready.
    #[error(transparent)]
    Wait(#[from] wait::Error),
    /// A part of it is not ready in time.
    #[error("{what} is not there after {} s. The end of its log:\n{log}", PATIENCE.as_secs())]
    Late {
        /// The part.
        what: &'static str,
        /// The last lines of its log.
        log: String,
    },
    /// A command failed.
    #[error("{command}: {stderr}")]
    Command {
        /// The command.
        command: String,
        /// What it said.
        stderr: String,
    },
    /// There are as many nodes on this machine as there are addresses for.
    #[error("no block of 198.18.0.0/15 is free for a node")]
    NoAddresses,
    /// A file of the node, or a control group.
    #[error("{action} {path}")]
    File {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// How long the sandbox waits for what takes seconds on an idle machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// The node's name in the site.
pub(crate) const NODE_NAME: &str = "node-0";

/// The address of the Service of the name server, among those of Services.
const NAME_SERVER: u8 = 10;

/// A running node. Dropping it ends every pod.
#[derive(Debug)]
#[non_exhaustive]
pub struct Node {
    /// Forwards what comes in for Services.
    pub kube_proxy: Process,
    /// Runs the pods.
    pub kubelet: Process,
    machine: Machine,
}

/// What a node needs of its site.
pub(crate) struct Membership {
    /// A client with all rights.
    pub(crate) client: Client,
    /// The certificate authority of the site.
    pub(crate) ca: PathBuf,
    /// The kubelet's certificate as a server.
    pub(crate) serving: Files,
    /// How the kubelet logs in.
    pub(crate) kubelet: PathBuf,
    /// How kube-proxy logs in.
    pub(crate) kube_proxy: PathBuf,
}

impl Node {
    /// Makes a machine a node of a site, and waits until it is Ready.
    pub(crate) async fn join(machine: Machine, group: &Group, site: Membership) -> Result<Self, Error> {
        let Membership {
            client,
            ca,
            serving,
            kubelet,
            kube_proxy,
        } = site;
        let block = machine.block;
        for (file, config) in [
            (
                "kubelet.json",
                config::kubelet(block, &machine.cgroup, &ca, &serving),
            ),
            ("kube-proxy.json", config::kube_proxy(block, &kube_proxy)),
        ] {
            files::write(&machine.directory.join(file), &config.to_string())?;
        }
        let isolation = &machine.isolation;
        let kubelet = isolation
            .inside("kubelet", &machine.programs.kubelet)
            .flag("--config", "/run/node/kubelet.json")
            .flag("--kubeconfig", kubelet)
            .flag("--root-dir", "/run/kubelet")
            .flag("--hostname-override", NODE_NAME)
            .flag("--node-ip", block.node().to_string());
        let kube_proxy = isolation
            .inside("kube-proxy", &machine.programs.kube_proxy)
            .flag("--config", "/run/node/kube-proxy.json");
        let mut node = Self {
            kube_proxy: group.spawn(kube_proxy)?,
            kubelet: group.spawn(kubelet)?,
            machine,
        };
        node.is_ready(client).await?;
        Ok(node)
    }

    /// The node's name in the site.
    #[must_use]
    pub fn name(&self) -> &'static str {
        NODE_NAME
    }

    /// Where node ports are, for the host too.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.machine.block.node()
    }

    /// The host as pods see it: what listens there plays the hosts that load balancers lead to.
    #[must_use]
    pub fn host_address(&self) -> Ipv4Addr {
        self.machine.block.host()
    }

    /// Other addresses of the host, as pods see it: each plays a machine of its own.
    #[must_use]
    pub fn machines(&self) -> [Ipv4Addr; 3] {
        self.machine.block.machines()
    }

    /// Where pods look for a name server. Nobody answers there unless a Service has this address.
    #[must_use]
    pub fn name_server(&self) -> Ipv4Addr {
        self.machine.block.services().address(NAME_SERVER)
    }

    /// The socket of containerd, for `ctr`.
    #[must_use]
    pub fn containerd(&self) -> PathBuf {
        self.machine.socket()
    }

    /// Gives it an image, so that pods need no registry.
    ///
    /// # Errors
    /// When it cannot be made, or containerd refuses it.
    pub async fn import(&self, image: &Image) -> Result<(), Error> {
        self.machine.import(image).await
    }

    /// Gives it an image from an archive, as [`Image::write`] writes it.
    ///
    /// # Errors
    /// When containerd refuses it.
    pub async fn import_archive(&self, archive: &Path) -> Result<(), Error> {
        self.machine.import_archive(archive).await
    }

    /// Kills a container of a pod; the kubelet starts it again. `id`: as the pod's status has it.
    ///
    /// # Errors
    /// When containerd does not have it, or refuses.
    pub async fn kill_container(&self, id: &str) -> Result<(), Error> {
        self.machine
            .kill(id.strip_prefix("containerd://").unwrap_or(id))
            .await
    }

    async fn is_ready(&mut self, client: Client) -> Result<(), Error> {
        let ready = wait::until(
            Api::all(client),
            NODE_NAME,
            "the node to be Ready",
            PATIENCE,
            |node: &NodeObject| is_ready(node),
        )
        .await;
        // The first cause is the one to show.
        self.machine.isolation.check()?;
        self.machine.containerd.check()?;
        self.kubelet.check()?;
        self.kube_proxy.check()?;
        ready?;
        Ok(())
    }
}

/// Whether a node says so of itself.
pub(crate) fn is_ready(node: &NodeObject) -> bool {
    node.status
        .as_ref()
        .and_then(|status| status.conditions.as_ref())
        .is_some_and(|conditions| {
            conditions
                .iter()
                .any(|one| one.type_ == "Ready" && one.status == "True")
        })
}
