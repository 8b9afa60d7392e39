//! A tenant's own API server, which an agent reaches by a kubeconfig of the tenant.
//!
//! The tenant chooses its address and everything that it answers. An agent uses only the credentials of the same kubeconfig there, connects only
//! to allowed addresses ([`destinations`]), and reads answers of bounded size. The caller limits the time.

pub mod destinations;
mod kubeconfig;
pub mod page;
pub mod secret;

#[cfg(test)]
mod tests;

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::{
    Client,
    client::{Body, ClientBuilder},
    core::{Status, request},
};
use serde::{
    Deserialize,
    de::{DeserializeOwned, Error as _},
};
use tracing::{Dispatch, instrument::WithSubscriber as _};

pub use self::kubeconfig::MAX_BYTES as MAX_KUBECONFIG_BYTES;
use self::{destinations::Destinations, kubeconfig::Kubeconfig};
use crate::{apply, message};

/// Maximum size, in bytes, of an answer that the agent reads.
pub const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// Bytes that are read of the response to a refused change, at most.
const MAX_REFUSAL_BYTES: usize = 16 * 1024;
/// Characters of a tenant's text that a message quotes at most.
const MAX_QUOTED_CHARACTERS: usize = 200;

/// Why a tenant's API server cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig of kubeconfigSecret: {0}")]
    Kubeconfig(String),
    /// There is no connection to it.
    #[error("the tenant's API server {server} does not answer: {reason}")]
    Unreachable {
        /// URL of the API server.
        server: String,
        /// The cause.
        reason: String,
    },
}

/// An answer is longer than [`MAX_ANSWER_BYTES`].
#[derive(Debug, thiserror::Error)]
#[error("the answer is longer than {} KiB", MAX_ANSWER_BYTES / 1024)]
struct TooLong;

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
            .build();
        Ok(Self { server, client })
    }

    /// A server to which another caller has connected.
    #[must_use]
    pub fn connected(server: String, client: Client) -> Self {
        Self { server, client }
    }

    /// Its URL, for messages.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The body of an answer that is no error. For an error, its code and its message as one short line.
    ///
    /// # Errors
    /// Why the call failed; [`is_too_long`] returns whether the response was too long.
    pub async fn answer(&self, request: Request<Vec<u8>>) -> kube::Result<Vec<u8>> {
        // Libraries may log any number of lines about a server that the tenant chooses, and some of any length. The caller reports errors.
        self.unlogged(request).with_subscriber(Dispatch::none()).await
    }

    async fn unlogged(&self, request: Request<Vec<u8>>) -> kube::Result<Vec<u8>> {
        let answer = self.client.send(request.map(Body::from)).await?;
        let code = answer.status();
        let body = read_body(answer.into_body()).await?;
        if code.is_success() {
            Ok(body)
        } else {
            Err(refusal(code, &body))
        }
    }

    /// An answer as a value, parsed here: a library would log what it cannot parse.
    ///
    /// # Errors
    /// As [`answer`](Self::answer); and that it is no such value.
    pub async fn call<T: DeserializeOwned>(
        &self,
        request: Result<Request<Vec<u8>>, request::Error>,
    ) -> kube::Result<T> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        parsed(&self.answer(request).await?)
    }

    /// Makes a change, and keeps nothing of the answer, since many changes may be made at once.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub async fn change(&self, request: Result<Request<Vec<u8>>, request::Error>) -> kube::Result<()> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        let changed = async {
            let answer = self.client.send(request.map(Body::from)).await?;
            let code = answer.status();
            if code.is_success() {
                return drain(answer.into_body()).await;
            }
            Err(refusal(code, &read_start(answer.into_body()).await?))
        };
        changed.with_subscriber(Dispatch::none()).await
    }
}

/// Reads the beginning of a refusal, which contains what messages quote of it.
async fn read_start(mut body: Body) -> kube::Result<Vec<u8>> {
    let mut read = Vec::new();
    while read.len() < MAX_REFUSAL_BYTES
        && let Some(frame) = body.frame().await
    {
        if let Ok(data) = frame?.into_data() {
            read.extend_from_slice(&data[..data.len().min(MAX_REFUSAL_BYTES - read.len())]);
        }
    }
    Ok(read)
}

/// Reads the answer to a change to its end without keeping it, so that the connection can be used again.
async fn drain(mut body: Body) -> kube::Result<()> {
    let (mut length, mut first) = (0, None);
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            length += data.len();
            first = first.or_else(|| data.iter().copied().find(|byte| !byte.is_ascii_whitespace()));
        }
        if length > MAX_ANSWER_BYTES {
            return Err(kube::Error::Service(Box::new(TooLong)));
        }
    }
    if first == Some(b'{') {
        return Ok(());
    }
    // A proxy, for one, may answer with a page of its own.
    let error = serde_json::Error::custom("the response to a change is not a JSON object");
    Err(kube::Error::SerdeError(error))
}

/// Reads a body into one piece: kept apart, frames of single bytes would take many times their length.
async fn read_body(mut body: Body) -> kube::Result<Vec<u8>> {
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        // Trailers are nothing to us.
        if let Ok(data) = frame?.into_data() {
            if data.len() > MAX_ANSWER_BYTES - read.len() {
                return Err(kube::Error::Service(Box::new(TooLong)));
            }
            read.extend_from_slice(&data);
        }
    }
    Ok(read)
}

/// A value in an answer.
///
/// # Errors
/// That it is none, as one short line.
pub fn parsed<T: DeserializeOwned>(answer: &[u8]) -> kube::Result<T> {
    serde_json::from_slice(answer).map_err(|error| {
        // The message may quote the answer.
        kube::Error::SerdeError(serde_json::Error::custom(short(&error.to_string())))
    })
}

/// Whether a call failed since the answer is longer than [`MAX_ANSWER_BYTES`].
#[must_use]
pub fn is_too_long(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(error) if error.is::<TooLong>())
}

/// The parts of a Status that are read. Its details could take much more memory than their length.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Answered {
    status: String,
    message: String,
    reason: String,
    code: u16,
}

impl Answered {
    /// Whether the server states that the call has succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status == "Success"
    }

    /// The error, if the server states one. It may come with a code of success.
    #[must_use]
    pub fn failure(&self) -> Option<kube::Error> {
        (self.status == "Failure").then(|| self.with_code(self.code))
    }

    fn with_code(&self, code: u16) -> kube::Error {
        let short = Status::failure(&short(&self.message), &short(&self.reason));
        kube::Error::Api(short.with_code(code).boxed())
    }
}

/// What an answer means that is an error by its code.
fn refusal(code: StatusCode, body: &[u8]) -> kube::Error {
    let answered = serde_json::from_slice(body).unwrap_or_else(|_| {
        // A proxy, for example, answers with plain text. Only the beginning of a long object was read.
        let text = String::from_utf8_lossy(body);
        let message = text
            .split_once(r#""message":""#)
            .map_or(&*text, |(_, message)| message);
        Answered {
            message: message.trim().to_owned(),
            ..Answered::default()
        }
    });
    answered.with_code(code.as_u16())
}

/// URL of the API server of a kubeconfig, for messages.
///
/// # Errors
/// Why the kubeconfig cannot be used.
pub fn server(kubeconfig: &[u8]) -> Result<String, Error> {
    Ok(read(kubeconfig)?.server())
}

/// Identifies the API server of a kubeconfig, as 32 hexadecimal digits: by its host, port and path, and by the name and the
/// CAs by which it is known. Several may have one host and port, behind a proxy.
///
/// # Errors
/// Why the kubeconfig cannot be used.
pub fn digest(kubeconfig: &[u8]) -> Result<String, Error> {
    Ok(read(kubeconfig)?.digest())
}

fn read(kubeconfig: &[u8]) -> Result<Kubeconfig, Error> {
    Kubeconfig::read(kubeconfig).map_err(|error| Error::Kubeconfig(runtime::error_chain::chain(&error)))
}

/// What a tenant's API server has chosen, as one short line.
#[must_use]
pub fn short(text: &str) -> String {
    let text = message::steady(text);
    let characters = text.chars().filter(|character| !character.is_control());
    characters.take(MAX_QUOTED_CHARACTERS).collect()
}

/// Why a call failed, as one short line.
#[must_use]
pub fn reason(error: &kube::Error) -> String {
    short(&apply::reason(error))
}
