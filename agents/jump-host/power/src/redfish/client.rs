//! A client of one system.

use hyper::{Method, StatusCode, header::LOCATION};

use super::{
    connect::{self, Connection},
    exchange::{self, Answer, Login},
    failure::Failure,
    model::{RawActionInfo, RawSystem, System},
    network::{Network, Route},
    reference,
    session::{self, Session},
};
use crate::bmc::{Address, Credentials};

/// Redirects that are followed for one read, at most.
const MAX_REDIRECTS: usize = 3;

/// An action that was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Unsent {
    /// The BMC has not received it, or has refused it: nothing was done.
    #[error("the BMC has not accepted the action")]
    Refused(#[source] Failure),
    /// The BMC may have received and executed it.
    #[error("the BMC may have executed the action")]
    Unknown(#[source] Failure),
}

/// A connection for one action.
pub struct ActionConnection(Connection);

impl std::fmt::Debug for ActionConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ActionConnection")
    }
}

/// A logged-in client of the one system that a BareMetalHost is.
pub struct Client {
    network: Network,
    address: Address,
    route: Route,
    login: Login,
    session: Session,
    /// For reads. An action has a connection of its own.
    connection: Option<Connection>,
    /// The system's path, after redirects.
    path: String,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("address", &self.address)
            .field("route", &self.route)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Connects and logs in.
    ///
    /// # Errors
    /// As [`Failure`] lists.
    pub async fn login(
        network: &Network,
        address: &Address,
        route: Route,
        credentials: &Credentials,
    ) -> Result<Self, Failure> {
        let mut connection = connect::open(network, address, route).await?;
        let (login, session) = session::login(network, address, &mut connection, credentials).await?;
        Ok(Self {
            network: network.clone(),
            path: address.system().to_owned(),
            address: address.clone(),
            route,
            login,
            session,
            connection: Some(connection),
        })
    }

    /// Reads the system.
    ///
    /// # Errors
    /// As [`Failure`] lists.
    pub async fn system(&mut self) -> Result<System, Failure> {
        let mut path = self.path.clone();
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.get(&path).await?;
            if !answer.status.is_redirection() {
                let raw: RawSystem = answer.resource(&self.address, &path)?;
                if !self.is_asked_for(&path, &raw) {
                    return Err(Failure::Elsewhere {
                        bmc: self.address.authority(),
                        found: path,
                    });
                }
                let system = raw.parse(&self.address, &path)?;
                self.path = path;
                return Ok(system);
            }
            let location = answer.header(&LOCATION).unwrap_or_default();
            path = reference::path_on_bmc(&self.address, location)?;
        }
        Err(Failure::NotRedfish {
            bmc: self.address.authority(),
            path: self.address.system().to_owned(),
            found: format!("more than {MAX_REDIRECTS} redirects"),
        })
    }

    /// Whether the system at a path is the one of the address: it has the same path, or the `Id`, `Name` or `UUID` that the address names. A BMC
    /// serves many systems, and may redirect from a system's name to its number.
    fn is_asked_for(&self, path: &str, system: &RawSystem) -> bool {
        let asked = self.address.system();
        let name = asked.rsplit('/').next().unwrap_or_default();
        path.strip_suffix('/').unwrap_or(path) == asked || system.is_called(name)
    }

    /// The reset types that the BMC offers for the system; `None` when it lists none.
    ///
    /// # Errors
    /// As [`Failure`] lists.
    pub async fn offered(&mut self, system: &System) -> Result<Option<Vec<String>>, Failure> {
        let Some(reset) = &system.reset else {
            return Ok(Some(Vec::new()));
        };
        if let (None, Some(info)) = (&reset.offered, &reset.info) {
            let answer = self.get(info).await?;
            let info: RawActionInfo = answer.resource(&self.address, info)?;
            return Ok(info.offered());
        }
        Ok(reset.offered.clone())
    }

    /// Sends a reset action, once, over a connection of its own.
    ///
    /// # Errors
    /// [`Unsent`] states whether the BMC may have executed it.
    pub async fn reset(&self, system: &System, reset_type: &str) -> Result<(), Unsent> {
        let connection = self.connect_for_action().await.map_err(Unsent::Refused)?;
        self.reset_over(connection, system, reset_type).await
    }

    /// Opens a connection for one action. A connection that was open before could break during the request, and then it would not be known whether
    /// the BMC has received it.
    ///
    /// # Errors
    /// As [`Failure`] lists; the BMC has received nothing.
    pub async fn connect_for_action(&self) -> Result<ActionConnection, Failure> {
        connect::open(&self.network, &self.address, self.route)
            .await
            .map(ActionConnection)
    }

    /// Sends a reset action over a connection that was opened for it, at once.
    ///
    /// # Errors
    /// [`Unsent`] states whether the BMC may have executed it.
    pub async fn reset_over(
        &self,
        connection: ActionConnection,
        system: &System,
        reset_type: &str,
    ) -> Result<(), Unsent> {
        let Some(reset) = &system.reset else {
            return Err(Unsent::Refused(Failure::NotRedfish {
                bmc: self.address.authority(),
                path: self.path.clone(),
                found: "a system without reset action".to_owned(),
            }));
        };
        let ActionConnection(mut connection) = connection;
        let body = serde_json::json!({ "ResetType": reset_type });
        let request = (Method::POST, &*reset.target, &self.login);
        let answer = exchange::exchange(
            &self.network,
            &self.address,
            &mut connection,
            request,
            Some(&body),
        )
        .await
        .map_err(Unsent::Unknown)?;
        match answer.status {
            status if status.is_success() => Ok(()),
            // It gave up waiting for a request that it may have acted on.
            StatusCode::REQUEST_TIMEOUT => Err(Unsent::Unknown(answer.refusal(&self.address, &reset.target))),
            // The BMC states that it cannot or may not do it.
            status if status.is_client_error() || status.is_redirection() || is_refusal(status) => {
                Err(Unsent::Refused(answer.refusal(&self.address, &reset.target)))
            }
            _ => Err(Unsent::Unknown(answer.refusal(&self.address, &reset.target))),
        }
    }

    /// Ends the session. A BMC that does not answer ends it by itself, after minutes.
    pub async fn logout(mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        let login = self.login.clone();
        if let Err(failure) = self.exchange((Method::DELETE, &session, &login)).await {
            tracing::debug!(
                error = &failure as &dyn std::error::Error,
                "a session could not be ended"
            );
        }
    }

    /// Reads over the connection that is open; when that has ended, over a new one.
    async fn get(&mut self, path: &str) -> Result<Answer, Failure> {
        let login = self.login.clone();
        let reused = self.connection.is_some();
        match self.exchange((Method::GET, path, &login)).await {
            Err(Failure::Broken { .. }) if reused => self.exchange((Method::GET, path, &login)).await,
            outcome => outcome,
        }
    }

    async fn exchange(&mut self, request: (Method, &str, &Login)) -> Result<Answer, Failure> {
        let mut connection = match self.connection.take() {
            // A connection whose end the client has not noticed yet makes the request fail.
            Some(open) if open.sender.is_ready() => open,
            Some(_) | None => connect::open(&self.network, &self.address, self.route).await?,
        };
        let answer = exchange::exchange(&self.network, &self.address, &mut connection, request, None).await?;
        // One whose answer was not read to its end is of no use.
        if answer.body.is_ok() {
            self.connection = Some(connection);
        }
        Ok(answer)
    }
}

/// Statuses by which a server states that it has not executed the request.
fn is_refusal(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::NOT_IMPLEMENTED | StatusCode::SERVICE_UNAVAILABLE
    )
}
