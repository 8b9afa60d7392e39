//! The gRPC port: TLS without client certificates, bounded in connections of each address and of all.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, stream};
use proto::power::v1::power_service_server::PowerServiceServer;
use runtime::{quiet::Quiet, serving::grpc_server};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;
use tonic::{service::Routes, transport::server::Connected};

use crate::{
    certificate::{self, Certificate, Files},
    members::Membership,
    service::{Api, Standing},
};

/// Connections of all addresses.
const CONNECTIONS: usize = 512;
/// Connections of one address.
const CONNECTIONS_OF_ADDRESS: usize = 16;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long to leave the listener alone when the system is out of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// Calls of one connection at once.
const CALLS: usize = 32;
/// Largest request, in bytes.
const MESSAGE: usize = 16 << 10;

/// Options of the port.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Power control")]
#[allow(clippy::struct_field_names, reason = "they are the names of the options")]
pub struct ServeArgs {
    /// Address of the gRPC port for power control; without it, power control is not served
    #[arg(long, env = "SIP_POWER_LISTEN", value_name = "ADDRESS", requires_all = ["power_tls_cert", "power_tls_key"])]
    power_listen: Option<SocketAddr>,
    /// Certificate chain of that port (PEM, leaf first), for the DNS name that clients connect to
    #[arg(
        long,
        env = "SIP_POWER_TLS_CERT",
        value_name = "FILE",
        requires = "power_listen"
    )]
    power_tls_cert: Option<PathBuf>,
    /// Private key of that port (PEM)
    #[arg(
        long,
        env = "SIP_POWER_TLS_KEY",
        value_name = "FILE",
        requires = "power_listen"
    )]
    power_tls_key: Option<PathBuf>,
}

/// Why the port is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} (--power-listen)")]
    Listen {
        /// As given.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The certificate.
    #[error("the certificate of PowerService cannot be used")]
    Certificate(#[from] certificate::Error),
    /// The descriptors for reflection.
    #[error("the services of PowerService's port cannot be described")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The server has failed.
    #[error("PowerService is no longer served")]
    Server(#[from] tonic::transport::Error),
}

/// An opened port. Until [`Standing::lead`] each call is answered with UNAVAILABLE (STANDBY).
#[derive(Debug)]
pub struct Server<M> {
    listener: TcpListener,
    address: SocketAddr,
    certificate: Arc<Certificate>,
    standing: Standing<M>,
}

/// Where a caller connects from; in the extensions of every request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) SocketAddr);

impl<M: Membership> Server<M> {
    /// Opens the port; `None` where the arguments ask for none.
    ///
    /// # Errors
    /// [`ServeError::Listen`], [`ServeError::Certificate`].
    pub async fn bind(args: &ServeArgs) -> Result<Option<(Self, Standing<M>)>, ServeError> {
        let ServeArgs {
            power_listen,
            power_tls_cert,
            power_tls_key,
        } = args;
        let (Some(listen), Some(certificate), Some(key)) = (power_listen, power_tls_cert, power_tls_key)
        else {
            return Ok(None);
        };
        let certificate = Certificate::load(Files {
            certificate: certificate.clone(),
            key: key.clone(),
        })?;
        let failed = |source| ServeError::Listen {
            address: *listen,
            source,
        };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let standing = Standing::default();
        let server = Self {
            listener,
            address,
            certificate,
            standing: standing.clone(),
        };
        Ok(Some((server, standing)))
    }

    /// Where it listens; with port 0 given, the port that was chosen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then until the actions that have begun have ended; these end soon when their own stop is `stop`.
    ///
    /// # Errors
    /// When the server fails.
    pub async fn serve(self, stop: CancellationToken) -> Result<(), ServeError> {
        let Self {
            listener,
            address,
            certificate,
            standing,
        } = self;
        let acceptor = TlsAcceptor::from(Arc::new(certificate.config()?));
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::power::FILE_DESCRIPTOR_SET)
            // Errors carry these: without them grpcurl shows their details as raw bytes.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        let service = PowerServiceServer::new(Api(standing.clone())).max_decoding_message_size(MESSAGE);
        let routes = Routes::new(service).add_service(reflection);
        tracing::info!(%address, "serving PowerService");
        let serving = grpc_server()
            .concurrency_limit_per_connection(CALLS)
            .add_routes(routes)
            .serve_with_incoming_shutdown(incoming(listener, acceptor), stop.cancelled_owned());
        tokio::select! {
            served = serving => served?,
            () = certificate.follow() => {}
        }
        if let Some(power) = standing.power() {
            power.drained().await;
        }
        Ok(())
    }
}

/// Connections, counted by address.
#[derive(Debug, Default)]
struct Places(Mutex<HashMap<IpAddr, usize>>);

/// A place for a connection, until it is dropped.
#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    address: IpAddr,
}

impl Places {
    fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = taken.values().sum();
        let own = taken.get(&address).copied().unwrap_or_default();
        if all >= CONNECTIONS || own >= CONNECTIONS_OF_ADDRESS {
            return None;
        }
        taken.insert(address, own + 1);
        Some(Place {
            places: Arc::clone(self),
            address,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

struct Accepting {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    places: Arc<Places>,
    handshakes: JoinSet<Option<Connection>>,
    refused: Quiet,
    failed: Quiet,
}

/// Connections with their handshake done.
fn incoming(
    listener: TcpListener,
    acceptor: TlsAcceptor,
) -> impl Stream<Item = Result<Connection, Infallible>> + Send {
    let accepting = Accepting {
        listener,
        acceptor,
        places: Arc::default(),
        handshakes: JoinSet::new(),
        refused: Quiet::default(),
        failed: Quiet::default(),
    };
    stream::unfold(accepting, async |mut accepting| {
        let connection = accepting.next().await;
        Some((Ok(connection), accepting))
    })
}

impl Accepting {
    async fn next(&mut self) -> Connection {
        loop {
            tokio::select! {
                Some(done) = self.handshakes.join_next() => if let Ok(Some(connection)) = done {
                    return connection;
                },
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, address)) => self.accepted(stream, address),
                    Err(error) => {
                        if let Some(withheld) = self.failed.line() {
                            tracing::error!(%error, withheld, "connections to PowerService cannot be accepted");
                        }
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }

    fn accepted(&mut self, stream: TcpStream, address: SocketAddr) {
        let Some(place) = self.places.take(address.ip().to_canonical()) else {
            if let Some(withheld) = self.refused.line() {
                tracing::warn!(%address, withheld, "closed: there are too many connections to PowerService");
            }
            return;
        };
        let acceptor = self.acceptor.clone();
        self.handshakes.spawn(async move {
            // Whoever asks one small thing is not to wait for more bytes of it.
            let _ = stream.set_nodelay(true);
            let io = match timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(io)) => io,
                Ok(Err(error)) => {
                    tracing::debug!(%address, %error, "the TLS handshake failed");
                    return None;
                }
                Err(_elapsed) => return None,
            };
            Some(Connection {
                io: Box::new(io),
                address,
                _place: place,
            })
        });
    }
}

/// A connection, as tonic wants it.
struct Connection {
    io: Box<TlsStream<TcpStream>>,
    address: SocketAddr,
    _place: Place,
}

impl Connected for Connection {
    type ConnectInfo = PeerAddress;

    fn connect_info(&self) -> PeerAddress {
        PeerAddress(self.address)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_bounded_share_of_the_connections() {
        let places = Arc::<Places>::default();
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let taken: Vec<_> = (0..CONNECTIONS_OF_ADDRESS)
            .map(|_| places.take(address(1)).unwrap())
            .collect();
        assert!(places.take(address(1)).is_none());
        assert!(places.take(address(2)).is_some());
        drop(taken);
        assert!(places.take(address(1)).is_some());
        assert!(places.0.lock().unwrap().is_empty());
    }
}
