//! How long a gRPC server keeps its connections, and how it ends them.
//!
//! A client keeps its connection for as long as it works. Behind one address of several servers that is too long: the one
//! that it has reached may not be the one that serves any more, and only a new connection finds another. And the transport does not poll the
//! stream of a client that does not read, so that only the end of its connection ends what the stream keeps. So connections are
//! served in *rounds*. When what they are good for changes, the round ends: each of its connections is told to (GOAWAY), calls
//! under way are answered, and new connections belong to the next round.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::telemetry;
use crate::tls::{Connection, Listener};

/// Maximum age of a connection: then the server sends GOAWAY, so that withdrawn CAs and roles take effect on all.
const MAX_CONNECTION_AGE: Duration = Duration::from_hours(1);
/// The same for [`ConnectionAge::Brief`]: long enough for a client to read what the server waits for.
const MAX_BRIEF_CONNECTION_AGE: Duration = Duration::from_secs(2);
/// How long open streams may last after the server has sent GOAWAY; watches resume on another connection.
const MAX_CONNECTION_AGE_GRACE: Duration = Duration::from_secs(30);
/// Silence after which the server pings a client, and how long the answer to the ping may take.
const HTTP2_KEEPALIVE: Duration = Duration::from_secs(15);

/// Maximum number of calls and streams of one connection at once; more wait in the client. Identities have limits of their own: this one
/// bounds what a connection costs before the server knows its calls.
const MAX_CONCURRENT_STREAMS: u32 = 256;
/// Maximum number of bytes of a request that the transport keeps before a handler reads them: nothing else counts these.
const STREAM_WINDOW_BYTES: u32 = 128 << 10;
/// The same for all requests of a connection. It is more than that of one, so that a request which waits does not stop all others.
const CONNECTION_WINDOW_BYTES: u32 = 2 * STREAM_WINDOW_BYTES;
/// Maximum size of a call's headers, in bytes.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// How long clients may stay connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionAge {
    /// As long as a certificate is trusted without another check.
    Long,
    /// Only for a few calls: another server serves, and clients should connect to that one.
    Brief,
}

/// How connections are served. When it changes, the server sends GOAWAY on open connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRound {
    /// How long clients may stay connected.
    pub age: ConnectionAge,
    /// Grows whenever all connections are to end, also if their age stays the same.
    pub number: u64,
}

impl ConnectionRound {
    /// The one that connections are served in before any other is requested.
    pub const FIRST: Self = Self {
        age: ConnectionAge::Long,
        number: 0,
    };
}

/// Ages of a connection.
#[derive(Clone, Copy, Debug)]
struct Ages {
    /// Age at which the server tells it to end.
    age: Duration,
    /// How long its calls may last after that, before the connection is closed.
    grace: Duration,
}

impl From<ConnectionAge> for Ages {
    fn from(connection_age: ConnectionAge) -> Self {
        let age = match connection_age {
            ConnectionAge::Long => MAX_CONNECTION_AGE,
            ConnectionAge::Brief => MAX_BRIEF_CONNECTION_AGE,
        };
        Self {
            age,
            grace: MAX_CONNECTION_AGE_GRACE,
        }
    }
}

/// Why serving has ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server has failed.
    #[error("gRPC is no longer served")]
    Server(#[source] tonic::transport::Error),
    /// A server's task has ended although it should not.
    #[error("the task of a gRPC server has ended")]
    Task(#[source] io::Error),
}

/// Connections that are served in the same way, and end together.
struct Round {
    kind: ConnectionRound,
    connections: mpsc::Sender<Connection>,
    /// Cancelled when the connections are closed whatever calls are open.
    cut: CancellationToken,
}

impl Round {
    fn begin(servers: &mut JoinSet<Result<(), Error>>, kind: ConnectionRound, routes: &Routes) -> Self {
        let (connections, accepted) = mpsc::channel(1);
        let Ages { age, grace: _ } = kind.age.into();
        let server = server(age).add_routes(routes.clone());
        let accepted = ReceiverStream::new(accepted).map(Ok::<Connection, Infallible>);
        servers.spawn(async move {
            // When the stream of connections ends, the server tells those it has to end.
            let served = server.serve_with_incoming_shutdown(accepted, std::future::pending());
            served.await.map_err(Error::Server)
        });
        Self {
            kind,
            connections,
            cut: CancellationToken::new(),
        }
    }

    async fn take(&self, connection: Connection) -> Result<(), Error> {
        let Ages { age, grace } = self.kind.age.into();
        let connection = connection.ending(Instant::now() + age + grace, self.cut.clone());
        let gone = |_| Error::Task(io::Error::other("it accepts no connections"));
        self.connections.send(connection).await.map_err(gone)
    }

    /// Tells all connections of the round to end, and closes those that are still open after the grace period.
    fn end(self, cutting: &mut JoinSet<()>) {
        let Self {
            kind,
            connections,
            cut,
        } = self;
        drop(connections);
        let Ages { age: _, grace } = kind.age.into();
        cutting.spawn(async move {
            sleep(grace).await;
            cut.cancel();
        });
    }
}

/// Serves until `stop`. Each time `rounds` has a different value, the server tells open connections to end.
///
/// # Errors
/// When a server fails.
pub(crate) async fn serve(
    listener: Listener,
    routes: Routes,
    rounds: impl Stream<Item = ConnectionRound> + Send,
    stop: CancellationToken,
) -> Result<(), Error> {
    let mut accepted = Box::pin(listener.incoming());
    let mut rounds = std::pin::pin!(rounds.fuse());
    let mut servers = JoinSet::new();
    let mut cutting = JoinSet::new();
    let mut round = Round::begin(&mut servers, ConnectionRound::FIRST, &routes);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(kind) = rounds.next() => if kind != round.kind {
                tracing::debug!(round = ?kind, "the server sends GOAWAY on every connection");
                let next = Round::begin(&mut servers, kind, &routes);
                std::mem::replace(&mut round, next).end(&mut cutting);
            },
            Some(ended) = servers.join_next() => server_ended(ended)?,
            Some(_) = cutting.join_next() => {}
            Some(connection) = accepted.next() => {
                let Ok(connection) = connection;
                round.take(connection).await?;
            }
        }
    }
    // The server accepts no further connections; calls in progress may complete.
    drop(accepted);
    round.end(&mut cutting);
    while let Some(ended) = servers.join_next().await {
        server_ended(ended)?;
    }
    Ok(())
}

fn server_ended(ended: Result<Result<(), Error>, tokio::task::JoinError>) -> Result<(), Error> {
    ended.map_err(|panicked| Error::Task(io::Error::other(panicked)))?
}

/// A gRPC server as every process serves one: keepalive, connections that end, spans that continue the caller's.
#[must_use]
pub fn grpc_server() -> Server {
    server(MAX_CONNECTION_AGE)
}

/// tonic's own grace is not used: with it a connection is cut without having been told to end.
fn server(age: Duration) -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(HTTP2_KEEPALIVE))
        .http2_keepalive_timeout(Some(HTTP2_KEEPALIVE))
        .max_connection_age(age)
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .trace_fn(telemetry::server_span)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::sync::watch;
    use tokio_stream::wrappers::WatchStream;
    use tonic::service::interceptor::InterceptedService;
    use tonic::{Code, Request, Status};
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;
    use tonic_health::server::HealthReporter;

    use super::*;
    use crate::fixtures::realm;
    use crate::tls::{Channel, Peer, ServerTlsArgs, TlsMetrics, channel};

    /// How long each step of a test may take.
    const TEST_TIMEOUT: Duration = Duration::from_secs(20);

    /// A served port, and which connection called it last.
    struct Served {
        address: SocketAddr,
        health: HealthClient<Channel>,
        reporter: HealthReporter,
        rounds: watch::Sender<ConnectionRound>,
        stop: CancellationToken,
        peer: Arc<Mutex<Option<Peer>>>,
        running: JoinSet<Result<(), Error>>,
    }

    impl Served {
        async fn start() -> Self {
            let args = ServerTlsArgs {
                tls_cert: None,
                tls_key: None,
                tls_client_ca: None,
                tls_site_ca_dir: None,
                tls_deny: None,
                plaintext_loopback: true,
                tls_reload_seconds: TEST_TIMEOUT,
            };
            let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
            let bound = Listener::bind(loopback, &args, &realm(), &TlsMetrics::default()).await;
            let (listener, _) = bound.unwrap();
            let address = listener.address();
            let endpoint = format!("http://{address}").parse().unwrap();
            let (reporter, health) = tonic_health::server::health_reporter();
            let peer = Arc::<Mutex<Option<Peer>>>::default();
            let seen = Arc::clone(&peer);
            let health = InterceptedService::new(health, move |request: Request<()>| {
                *seen.lock().unwrap() = request.extensions().get::<Peer>().cloned();
                Ok::<_, Status>(request)
            });
            let (rounds, requested) = watch::channel(ConnectionRound::FIRST);
            let stop = CancellationToken::new();
            let mut running = JoinSet::new();
            let routes = Routes::new(health);
            running.spawn(serve(listener, routes, WatchStream::new(requested), stop.clone()));
            Self {
                address,
                health: HealthClient::new(channel(&endpoint, None).unwrap()),
                reporter,
                rounds,
                stop,
                peer,
                running,
            }
        }

        /// Sends a call, and returns on which connection.
        async fn peer(&self) -> Peer {
            loop {
                let mut health = self.health.clone();
                match health.check(HealthCheckRequest::default()).await {
                    Ok(_) => return self.peer.lock().unwrap().clone().unwrap(),
                    // The client has learnt that the connection ends before it has sent this by it.
                    Err(status) => assert_eq!(status.code(), Code::Cancelled, "{status:?}"),
                }
            }
        }

        /// How long it takes until calls, each of which is answered, come by another connection.
        async fn until_another(&self, than: &Peer) -> Duration {
            let begun = Instant::now();
            while self.peer().await == *than {
                assert!(begun.elapsed() < TEST_TIMEOUT, "the connection is kept");
                sleep(Duration::from_millis(10)).await;
            }
            begun.elapsed()
        }
    }

    /// Of another age than the first round.
    const BRIEF: ConnectionRound = ConnectionRound {
        age: ConnectionAge::Brief,
        number: 0,
    };

    #[tokio::test]
    async fn clients_reconnect_on_request_and_calls_complete() {
        let next = ConnectionRound {
            number: 1,
            ..ConnectionRound::FIRST
        };
        for round in [BRIEF, next] {
            clients_reconnect_at(round).await;
        }
    }

    async fn clients_reconnect_at(round: ConnectionRound) {
        let served = Served::start().await;
        let first = served.peer().await;
        let mut health = served.health.clone();
        let asked = health.watch(HealthCheckRequest::default()).await;
        let mut watch = asked.unwrap().into_inner();
        watch.message().await.unwrap().unwrap();
        assert_eq!(served.peer().await, first, "one connection serves all calls");

        served.rounds.send_replace(round);
        let waited = served.until_another(&first).await;
        assert!(
            waited < MAX_BRIEF_CONNECTION_AGE,
            "{waited:?}: it was its age, not the change"
        );
        let status = tonic_health::ServingStatus::NotServing;
        served.reporter.set_service_status("", status).await;
        let told = watch.message().await.unwrap().unwrap();
        assert_eq!(told.status, status as i32, "by the connection of before");
    }

    #[tokio::test]
    async fn a_connection_gets_goaway_at_its_age() {
        let served = Served::start().await;
        served.rounds.send_replace(BRIEF);
        // It may still be of the round before.
        let before = served.peer().await;
        served.until_another(&before).await;
        let young = served.peer.lock().unwrap().clone().unwrap();
        let waited = served.until_another(&young).await;
        assert!(waited < 2 * MAX_BRIEF_CONNECTION_AGE, "{waited:?}");
    }

    #[tokio::test]
    async fn serving_ends_after_its_clients_have_gone() {
        let mut served = Served::start().await;
        served.peer().await;
        served.stop.cancel();
        let ended = tokio::time::timeout(TEST_TIMEOUT, served.running.join_next()).await;
        ended.unwrap().unwrap().unwrap().unwrap();
    }

    /// Connects, and sends the preface of HTTP/2 and settings of which none is other than usual.
    async fn connect(address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        stream.write_all(preface).await.unwrap();
        stream
    }

    /// Kind, flags and content of the next frame.
    async fn frame(stream: &mut TcpStream) -> io::Result<(u8, u8, Vec<u8>)> {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]);
        let mut content = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut content).await?;
        Ok((kind, flags, content))
    }

    #[tokio::test]
    async fn the_windows_for_unread_requests_are_small() {
        const SETTINGS: u8 = 4;
        const WINDOW_UPDATE: u8 = 8;
        let served = Served::start().await;
        let mut stream = connect(served.address).await;
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        let (mut of_stream, mut of_connection) = (None, None);
        let read = async {
            while of_stream.is_none() || of_connection.is_none() {
                let (kind, _, content) = frame(&mut stream).await.unwrap();
                if kind == SETTINGS {
                    let window = content
                        .chunks_exact(6)
                        .find(|setting| setting.starts_with(&[0, 4]));
                    of_stream = window.map(|setting| number(&setting[2..])).or(of_stream);
                } else if kind == WINDOW_UPDATE {
                    // It has 65,535 bytes from the beginning.
                    of_connection = Some(65_535 + number(&content));
                }
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, read).await.unwrap();
        assert_eq!((of_stream, of_connection), (Some(128 << 10), Some(256 << 10)));
    }

    /// Connects, makes no call, and answers pings or does not. Returns after how long the server has closed the connection.
    async fn idle(address: SocketAddr, answers_pings: bool) -> Duration {
        let mut stream = connect(address).await;
        let begun = Instant::now();
        while let Ok((kind, flags, content)) = frame(&mut stream).await {
            let is_ping = kind == 6 && flags & 1 == 0;
            if answers_pings && is_ping {
                let pong = [&[0, 0, 8, 6, 1, 0, 0, 0, 0][..], &content].concat();
                stream.write_all(&pong).await.unwrap();
            }
        }
        begun.elapsed()
    }

    // The clock continues by itself while nothing is to be read or written, so these tests take no time.

    #[tokio::test(start_paused = true)]
    async fn a_client_that_answers_no_ping_is_disconnected() {
        let served = Served::start().await;
        let closed = tokio::time::timeout(MAX_CONNECTION_AGE, idle(served.address, false)).await;
        let after = closed.unwrap();
        assert!(
            (HTTP2_KEEPALIVE..=3 * HTTP2_KEEPALIVE).contains(&after),
            "{after:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_that_answers_pings_stays_connected() {
        let served = Served::start().await;
        let kept = tokio::time::timeout(20 * HTTP2_KEEPALIVE, idle(served.address, true)).await;
        assert!(kept.is_err(), "closed after {kept:?}");
    }
}
