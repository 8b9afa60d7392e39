//! Why a region could not be brought up, installed or used.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{
    node::{self, ImageError},
    pki, process, programs, readiness, site, tools, wait,
};

/// Why a region, of processes or of pods, could not be brought up or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One of the project's programs was not built.
    #[error(transparent)]
    Program(#[from] programs::Error),
    /// A third-party program is missing.
    #[error(transparent)]
    Tool(#[from] tools::Error),
    /// A process did not start or end.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// A process is not ready.
    #[error(transparent)]
    NotReady(#[from] readiness::Error),
    /// A certificate.
    #[error(transparent)]
    Certificate(#[from] pki::Error),
    /// Something in the site that an agent needs, or that the site refuses.
    #[error(transparent)]
    Site(#[from] site::Error),
    /// The node refuses an image.
    #[error(transparent)]
    Node(#[from] node::Error),
    /// The image of jump hosts could not be written.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The other images could not be made.
    #[error("sip-images: {0}")]
    Images(String),
    /// A pod does not become ready.
    #[error(transparent)]
    Wait(#[from] wait::Error),
    /// There is no node that could run the pods.
    #[error("site {site} has no real node, so it runs no pods")]
    NoNode {
        /// The site.
        site: String,
    },
    /// The scheduler cannot be reached from this machine.
    #[error("the Service {service} has no node port")]
    NoPort {
        /// The Service, as `NAMESPACE/NAME`.
        service: String,
    },
    /// The name server has no socket.
    #[error("listen for questions about names")]
    Listen(#[source] io::Error),
    /// A file or program of this machine.
    #[error("{action} {path}")]
    File {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the operating system answered.
        source: io::Error,
    },
    /// The API server refused a call.
    #[error("{action}")]
    Api {
        /// What was tried.
        action: String,
        /// What the API server answered.
        source: Box<kube::Error>,
    },
    /// The ledger was not moved.
    #[error("move the ledger: {0}")]
    Move(String),
    /// There is no free port.
    #[error("find a free port on loopback")]
    Port(#[source] io::Error),
}

/// Adds to a client's error what was tried.
pub(crate) fn api_error(action: impl Into<String>) -> impl FnOnce(kube::Error) -> Error {
    let action = action.into();
    move |source| Error::Api {
        action,
        source: Box::new(source),
    }
}

/// Adds to an error of the operating system what was tried with which file.
pub(crate) fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { action, path, source }
}
