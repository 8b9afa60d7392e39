//! Finding the replica that serves: every address of the service is tried, until one does.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use proto::power::v1::power_service_client::PowerServiceClient;
use tokio::{net::lookup_host, time::sleep};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

use crate::{
    arguments::ServerArguments,
    failure::{Failure, reason},
    ssh_user,
};

/// Timeout for connecting to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between rounds over all addresses.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Time without data after which the client pings the server, and the timeout of the ping.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// The service, with what proves who calls.
#[derive(Debug)]
pub(crate) struct Service<'a> {
    arguments: &'a ServerArguments,
    server_name: &'a str,
    ssh_key: Option<MetadataValue<Ascii>>,
}

/// Whether another replica may answer the call.
fn is_elsewhere(status: &Status) -> bool {
    // A status that the transport has made has no reason.
    matches!(status.code(), tonic::Code::Unavailable)
        && matches!(&*reason(status), "STANDBY" | "SHUTTING_DOWN" | "")
}

impl<'a> Service<'a> {
    pub(crate) fn new(arguments: &'a ServerArguments) -> Result<Self, Failure> {
        let address = &arguments.address;
        let host = address
            .rsplit_once(':')
            .map(|(host, _)| host.trim_matches(['[', ']']));
        let host = host
            .filter(|host| !host.is_empty())
            .ok_or_else(|| Failure::Address {
                address: address.clone(),
            })?;
        Ok(Self {
            arguments,
            server_name: arguments.server_name.as_deref().unwrap_or(host),
            ssh_key: ssh_user::key().and_then(|key| key.parse().ok()),
        })
    }

    /// A request with the token of the caller.
    pub(crate) fn request<T>(&self, message: T) -> Result<Request<T>, Failure> {
        let path = &self.arguments.token;
        let what = "the token of this pod";
        let token = read(path, what)?;
        let token = String::from_utf8(token).ok();
        let bearer = token.and_then(|token| format!("Bearer {}", token.trim()).parse().ok());
        let mut bearer: MetadataValue<Ascii> = bearer.ok_or_else(|| Failure::Content {
            what,
            path: path.clone(),
        })?;
        bearer.set_sensitive(true);
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", bearer);
        if let Some(key) = &self.ssh_key {
            request.metadata_mut().insert("sip-ssh-key", key.clone());
        }
        Ok(request)
    }

    /// Calls the replica that serves. `call` must be one that may be repeated: its response can be lost.
    pub(crate) async fn call<R>(
        &self,
        call: impl AsyncFn(PowerServiceClient<Channel>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let begun = Instant::now();
        let wait = Duration::from_secs(self.arguments.wait.into());
        let address = &self.arguments.address;
        loop {
            let mut last = format!("{address} has no addresses");
            match lookup_host(address).await {
                Err(error) => last = error.to_string(),
                Ok(addresses) => {
                    for at in addresses {
                        match self.connect(at).await {
                            Err(Connecting::Failed(failure)) => return Err(failure),
                            Err(Connecting::Elsewhere(why)) => last = format!("{at}: {why}"),
                            Ok(channel) => match call(PowerServiceClient::new(channel)).await {
                                Err(Failure::Status(status)) if is_elsewhere(&status) => {
                                    last = format!("{at}: {}", status.message());
                                }
                                answer => return answer,
                            },
                        }
                    }
                }
            }
            if begun.elapsed() >= wait {
                return Err(Failure::NotServed {
                    address: address.clone(),
                    last,
                });
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    async fn connect(&self, at: SocketAddr) -> Result<Channel, Connecting> {
        let ca = read(&self.arguments.ca, "CA certificates").map_err(Connecting::Failed)?;
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(ca))
            .domain_name(self.server_name);
        let elsewhere = |error: tonic::transport::Error| Connecting::Elsewhere(chain(&error));
        let endpoint = Endpoint::from_shared(format!("https://{at}")).map_err(elsewhere)?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_INTERVAL)
            .tls_config(tls)
            .map_err(elsewhere)?;
        endpoint.connect().await.map_err(elsewhere)
    }
}

enum Connecting {
    /// No other replica would answer differently.
    Failed(Failure),
    /// Another replica may answer; why this one did not.
    Elsewhere(String),
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn read(path: &Path, what: &'static str) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|source| Failure::File {
        what,
        path: path.to_owned(),
        source,
    })
}
