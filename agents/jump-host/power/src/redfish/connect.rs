//! Connections to a BMC: TCP, a proxy's tunnel, TLS.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use http_body_util::{Empty, Full};
use hyper::{
    Method, Request, StatusCode, Uri,
    body::Bytes,
    client::conn::http1::{self, SendRequest},
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use runtime::resolver::Resolver;
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::{
    failure::Failure,
    network::{Network, Proxy, Route},
};
use crate::bmc::Address;

/// Bytes of the headers of a response, at most.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// An open connection, which one task drives. Dropping it closes it.
pub(super) struct Connection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    /// Whether requests name the whole URL, as a proxy that forwards single requests requires.
    pub(super) by_proxy: bool,
    _driver: AbortOnDropHandle<()>,
}

/// Opens a connection within the time that a BMC has for it.
pub(super) async fn open(network: &Network, address: &Address, route: Route) -> Result<Connection, Failure> {
    let within = network.timeouts().connect;
    let opening = opened(network, address, route);
    timeout(within, opening).await.unwrap_or_else(|_elapsed| {
        Err(Failure::Slow {
            bmc: address.authority(),
            what: "accept a connection",
            within,
        })
    })
}

async fn opened(network: &Network, address: &Address, route: Route) -> Result<Connection, Failure> {
    let Some(proxy) = network.proxy(route) else {
        let may_reach = |ip| network.may_reach(ip);
        let resolver = network.resolver();
        let stream = connect(
            resolver,
            &address.host(),
            address.port(),
            &address.authority(),
            may_reach,
        )
        .await?;
        return if address.is_tls() {
            serve(secure(network, address, route, stream).await?, address, false).await
        } else {
            serve(stream, address, false).await
        };
    };
    let resolver = network.resolver();
    let stream = connect(resolver, &proxy.host, proxy.port, &proxy.to_string(), |_| true).await;
    let stream = stream.map_err(|failure| refused(proxy, address, &runtime::error_chain::chain(&failure)))?;
    if address.is_tls() {
        let tunnel = TokioIo::new(tunnel(stream, proxy, address).await?);
        serve(secure(network, address, route, tunnel).await?, address, false).await
    } else {
        serve(stream, address, true).await
    }
}

/// Connects to one of the addresses of a name that may be reached.
async fn connect(
    resolver: &Resolver,
    host: &str,
    port: u16,
    authority: &str,
    may_reach: impl Fn(IpAddr) -> bool,
) -> Result<TcpStream, Failure> {
    let connected = async {
        let found = resolver.addresses(host, port).await?;
        let allowed: Vec<SocketAddr> = found
            .iter()
            .copied()
            .filter(|address| may_reach(address.ip()))
            .collect();
        if let (Some(refused), []) = (found.first(), &allowed[..]) {
            let why = format!("{} is this machine, or link-local", refused.ip());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        TcpStream::connect(&allowed[..]).await
    };
    let stream = connected
        .await
        .and_then(|stream| stream.set_nodelay(true).map(|()| stream));
    stream.map_err(|source| Failure::Unreachable {
        bmc: authority.to_owned(),
        source,
    })
}

fn refused(proxy: &Proxy, address: &Address, why: &str) -> Failure {
    Failure::Proxy {
        proxy: proxy.to_string(),
        bmc: address.authority(),
        why: why.to_owned(),
    }
}

/// A tunnel through the proxy, by `CONNECT`.
async fn tunnel(stream: TcpStream, proxy: &Proxy, address: &Address) -> Result<Upgraded, Failure> {
    let failed = |error: &(dyn std::error::Error + 'static)| {
        refused(proxy, address, &runtime::error_chain::chain(error))
    };
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEADER_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed(&error))?;
    let driver = AbortOnDropHandle::new(tokio::spawn(async move {
        // The request reports the same failure.
        let _ = connection.with_upgrades().await;
    }));
    let authority = address.authority();
    let request = Request::builder()
        .method(Method::CONNECT)
        .uri(Uri::try_from(authority.as_str()).map_err(|error| failed(&error))?)
        .header(hyper::header::HOST, authority)
        .body(Empty::<Bytes>::new())
        .map_err(|error| failed(&error))?;
    let answer = sender
        .send_request(request)
        .await
        .map_err(|error| failed(&error))?;
    if answer.status() != StatusCode::OK {
        return Err(refused(
            proxy,
            address,
            &format!("status {}", answer.status().as_u16()),
        ));
    }
    let upgraded = hyper::upgrade::on(answer).await.map_err(|error| failed(&error))?;
    // The driver has ended with the upgrade.
    drop(driver);
    Ok(upgraded)
}

async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
    network: &Network,
    address: &Address,
    route: Route,
    stream: S,
) -> Result<tokio_rustls::client::TlsStream<S>, Failure> {
    let failed = |source| Failure::Tls {
        bmc: address.authority(),
        source,
    };
    let name = ServerName::try_from(address.host()).map_err(|error| failed(io::Error::other(error)))?;
    let connector = TlsConnector::from(network.tls(route));
    connector.connect(name, stream).await.map_err(failed)
}

async fn serve<S>(stream: S, address: &Address, by_proxy: bool) -> Result<Connection, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = http1::Builder::new()
        .max_buf_size(MAX_HEADER_BYTES)
        .handshake(TokioIo::new(stream));
    let (sender, connection) = handshake.await.map_err(|error| Failure::Broken {
        bmc: address.authority(),
        source: error.into(),
    })?;
    let driver = AbortOnDropHandle::new(tokio::spawn(async move {
        // The request reports the same failure.
        let _ = connection.await;
    }));
    Ok(Connection {
        sender,
        by_proxy,
        _driver: driver,
    })
}
