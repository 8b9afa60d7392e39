//! A site: a Kubernetes control plane of its own, as a bare-metal site runs one.

mod access;
mod builder;
mod control_plane;
mod kubectl;
mod nodes;
mod policy;
mod store;
mod tenants;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

pub use builder::Builder;
pub use kubectl::Answer;
pub(crate) use kubectl::run;
pub use nodes::Nodes;
pub use policy::{ADMINISTRATOR, HOST_CONSUMERS};
pub use store::Store;

use self::control_plane::ControlPlane;
use crate::{audit, node, node::Node, pki, process, process::Group, readiness, tools, wait};

/// Why a site could not be brought up or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A tool is missing.
    #[error(transparent)]
    Tool(#[from] tools::Error),
    /// A process did not start or end.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// A process is not ready.
    #[error(transparent)]
    NotReady(#[from] readiness::Error),
    /// There is no real node.
    #[error(transparent)]
    Node(#[from] node::Error),
    /// A certificate.
    #[error(transparent)]
    Certificate(#[from] pki::Error),
    /// Something that the site waits for does not happen.
    #[error(transparent)]
    Wait(#[from] wait::Error),
    /// A file in the site's directory.
    #[error("write {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A manifest of this project cannot be read.
    #[error("read {path}")]
    Manifest {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no free port.
    #[error("find a free port on loopback")]
    Port(#[source] io::Error),
    /// The API server refused something that the sandbox itself does.
    #[error("{action}")]
    Api {
        /// What was tried.
        action: String,
        /// What the API server said.
        source: Box<kube::Error>,
    },
    /// The API server answered a request for a token without one.
    #[error("the API server gave no token for ServiceAccount {account}")]
    NoToken {
        /// The `ServiceAccount`, as `NAMESPACE/NAME`.
        account: String,
    },
    /// A kubectl command failed.
    #[error("kubectl {arguments} failed: {stderr}")]
    Kubectl {
        /// The command.
        arguments: String,
        /// What it said.
        stderr: String,
    },
}

/// How long the sandbox waits for things that take well under a second on an idle machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running site. Dropping it ends every process of it and removes its directory.
#[derive(Debug)]
pub struct Site {
    // Fields are dropped in this order: processes first, each of them reaped, then the group with its directory.
    node: Option<Box<Node>>,
    control_plane: ControlPlane,
    access: access::Access,
    name: String,
    group: Group,
}

impl Site {
    /// A site of this name (a DNS label), not started yet.
    #[must_use]
    pub fn builder(name: &str) -> Builder {
        Builder::new(name)
    }

    /// The site's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The site's temporary directory; gone when the site is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.group.directory()
    }

    /// The ends of all logs of the site, each under its name.
    #[must_use]
    pub fn log_tails(&self, lines: usize) -> String {
        self.group.log_tails(lines)
    }

    /// Everything that the API server's audit log holds so far.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn audit_log(&self) -> io::Result<Vec<audit::Entry>> {
        audit::read(&self.directory().join(control_plane::AUDIT_LOG))
    }

    /// The same, of the lines that this is true of.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn audit_log_where(&self, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<audit::Entry>> {
        audit::read_where(&self.directory().join(control_plane::AUDIT_LOG), wanted)
    }

    /// The control plane's processes, to crash, pause and restart them.
    #[must_use]
    pub fn control_plane(&mut self) -> &mut ControlPlane {
        &mut self.control_plane
    }

    /// The real node, where the site has one.
    #[must_use]
    pub fn node(&self) -> Option<&Node> {
        self.node.as_deref()
    }

    /// The same, to crash, pause and restart its processes.
    #[must_use]
    pub fn node_mut(&mut self) -> Option<&mut Node> {
        self.node.as_deref_mut()
    }

    /// The URL of the API server.
    #[must_use]
    pub fn server(&self) -> &str {
        self.access.server()
    }

    /// Starts a program that ends with the site. Its output goes to `logs/NAME.log` in the site's directory.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn spawn(&self, program: process::Program) -> Result<process::Process, Error> {
        Ok(self.group.spawn(program)?)
    }

    /// Kills the API server: nobody answers until [`Self::restart_api_server`].
    ///
    /// # Errors
    /// When it cannot be killed.
    pub async fn kill_api_server(&mut self) -> Result<(), Error> {
        Ok(self.control_plane.apiserver.kill9().await?)
    }

    /// Kills and starts the API server again, and waits until it serves. Clients reconnect by themselves.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn restart_api_server(&mut self) -> Result<(), Error> {
        self.control_plane.apiserver.restart().await?;
        let client = self.access.client();
        Ok(readiness::serving(&mut self.control_plane.apiserver, &client, "/readyz", PATIENCE).await?)
    }

    /// Kills and starts the API server's store and the API server again, and waits until it serves.
    ///
    /// # Errors
    /// When one of them does not come back.
    pub async fn restart_store(&mut self) -> Result<(), Error> {
        self.control_plane.etcd.restart().await?;
        self.restart_api_server().await
    }
}
