//! The gRPC port: TLS without client certificates, bounded in what a connection can make it keep.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc};

use proto::power::v1::power_service_server::PowerServiceServer;
use runtime::serving::grpc_server;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::{
    accept::incoming,
    certificate::{self, Certificate, Files},
    members::Membership,
    served_certificate::ServedCertificate,
    service::{Api, Replica},
};

/// Concurrent calls of one connection. Further ones wait in the client, so the server keeps the headers of so many calls at most.
const MAX_CONCURRENT_STREAMS: u16 = 16;
/// Bytes of a request, at most.
const MAX_REQUEST_BYTES: usize = 16 << 10;
/// Bytes of a connection's requests that are buffered before they are read.
const WINDOW_BYTES: u32 = 64 << 10;

/// Options of the port.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Power control")]
#[allow(clippy::struct_field_names, reason = "they are the names of the options")]
pub struct ServeArgs {
    /// Address of the gRPC port for power control; without it the agent serves no power control
    #[arg(long, env = "SIP_POWER_LISTEN", value_name = "ADDRESS", requires_all = ["power_tls_cert", "power_tls_key"])]
    power_listen: Option<SocketAddr>,
    /// Certificate chain of the power-control port (PEM, leaf first), for the DNS name that clients connect to
    #[arg(
        long,
        env = "SIP_POWER_TLS_CERT",
        value_name = "FILE",
        requires = "power_listen"
    )]
    power_tls_cert: Option<PathBuf>,
    /// Private key of the power-control port (PEM)
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
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The certificate.
    #[error("the certificate of PowerService cannot be used")]
    Certificate(#[from] certificate::Error),
    /// The descriptors for reflection.
    #[error("gRPC reflection of PowerService cannot be set up")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The server has failed.
    #[error("PowerService is no longer served")]
    Server(#[from] tonic::transport::Error),
}

/// An opened port. Until [`Replica::lead`] each call is answered with UNAVAILABLE (STANDBY).
#[derive(Debug)]
pub struct Server<M> {
    listener: TcpListener,
    address: SocketAddr,
    certificate: Arc<Certificate>,
    replica: Replica<M>,
}

impl<M: Membership> Server<M> {
    /// Opens the port; `None` where the arguments ask for none.
    ///
    /// # Errors
    /// [`ServeError::Listen`], [`ServeError::Certificate`].
    pub async fn bind(args: &ServeArgs) -> Result<Option<(Self, Replica<M>)>, ServeError> {
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
        let replica = Replica::default();
        let server = Self {
            listener,
            address,
            certificate,
            replica: replica.clone(),
        };
        Ok(Some((server, replica)))
    }

    /// Where it listens; with port 0 given, the port that was chosen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its certificate, as clients see it.
    #[must_use]
    pub fn served_certificate(&self) -> ServedCertificate {
        ServedCertificate(Arc::clone(&self.certificate))
    }

    /// Serves until `stop`, then until the actions that have begun have ended; these end early when their own stop is `stop`.
    ///
    /// # Errors
    /// When the server fails.
    pub async fn serve(self, stop: CancellationToken) -> Result<(), ServeError> {
        let Self {
            listener,
            address,
            certificate,
            replica,
        } = self;
        let acceptor = TlsAcceptor::from(Arc::new(certificate.config()?));
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::power::FILE_DESCRIPTOR_SET)
            // Errors carry these: without them grpcurl shows their details as raw bytes.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        let service =
            PowerServiceServer::new(Api(replica.clone())).max_decoding_message_size(MAX_REQUEST_BYTES);
        let routes = Routes::new(service).add_service(reflection);
        tracing::info!(%address, "serving PowerService");
        let serving = grpc_server()
            .max_concurrent_streams(u32::from(MAX_CONCURRENT_STREAMS))
            .concurrency_limit_per_connection(MAX_CONCURRENT_STREAMS.into())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .add_routes(routes)
            .serve_with_incoming_shutdown(incoming(listener, acceptor), stop.cancelled_owned());
        tokio::select! {
            served = serving => served?,
            () = certificate.follow() => {}
        }
        if let Some(power) = replica.power() {
            power.drained().await;
        }
        Ok(())
    }
}
