//! A tenant's own API server, which an agent reaches by a kubeconfig of the tenant.
//!
//! Its address and everything that it answers are the tenant's choice. An agent uses no credentials there but those of the same kubeconfig,
//! connects to no address that it must not ([`destinations`]), and reads answers of bounded size. The caller limits the time.

pub mod destinations;
mod kubeconfig;
pub mod secret;

use http::Response;
use http_body_util::Limited;
use kube::{
    Client,
    client::{ClientBuilder, DynBody},
};
use tower::util::MapResponseLayer;

use self::{destinations::Destinations, kubeconfig::Kubeconfig};
use crate::apply;

/// Longest answer that is read, in bytes.
const LONGEST: usize = 1024 * 1024;
/// Characters of a tenant's text that are shown.
const SHOWN: usize = 200;

/// Why a tenant's API server cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig of kubeconfigSecret: {0}")]
    Kubeconfig(String),
    /// There is no connection to it.
    #[error("the tenant's API server {server} does not answer: {reason}")]
    Unreachable {
        /// Where it is.
        server: String,
        /// Why not.
        reason: String,
    },
}

/// A tenant's API server that has accepted a connection. It holds credentials, so it cannot be printed.
#[derive(Clone)]
pub struct Tenant {
    server: String,
    client: Client,
}

impl Tenant {
    /// Connects by a kubeconfig. Every later connection is to the address that was checked.
    ///
    /// # Errors
    /// Why that is not possible.
    pub async fn connect(kubeconfig: &[u8], destinations: &Destinations) -> Result<Self, Error> {
        let kubeconfig = read(kubeconfig)?;
        let server = kubeconfig.server();
        let unreachable = |error: &destinations::Error| Error::Unreachable {
            server: server.clone(),
            reason: error.to_string(),
        };
        let (host, port) = kubeconfig.host_and_port();
        // The first that accepts a connection: one of several may be down.
        let reached = destinations.connect(host, port).await;
        let reached = reached.and_then(|stream| Ok(stream.peer_addr()?));
        let address = reached.map_err(|error| unreachable(&error))?;
        let config = kubeconfig.config(address);
        let config = config.map_err(|error| Error::Kubeconfig(runtime::error_chain::chain(&error)))?;
        let client = ClientBuilder::try_from(config)
            .map_err(|error| Error::Kubeconfig(runtime::error_chain::chain(&error)))?
            .with_layer(&MapResponseLayer::new(|answer: Response<Box<DynBody>>| {
                answer.map(|body| Limited::new(body, LONGEST))
            }))
            .build();
        Ok(Self { server, client })
    }

    /// Where it is, for people.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// For calls to it.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }
}

/// Where the API server of a kubeconfig is, for people.
///
/// # Errors
/// Why the kubeconfig cannot be used.
pub fn server(kubeconfig: &[u8]) -> Result<String, Error> {
    Ok(read(kubeconfig)?.server())
}

fn read(kubeconfig: &[u8]) -> Result<Kubeconfig, Error> {
    Kubeconfig::read(kubeconfig).map_err(|error| Error::Kubeconfig(runtime::error_chain::chain(&error)))
}

/// What a tenant's API server has chosen, as one short line.
#[must_use]
pub fn short(text: &str) -> String {
    let characters = text.chars().filter(|character| !character.is_control());
    characters.take(SHOWN).collect()
}

/// Why a call failed, as one short line.
#[must_use]
pub fn reason(error: &kube::Error) -> String {
    short(&apply::reason(error))
}
