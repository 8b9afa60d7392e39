//! HTTP requests to pods.

use std::time::Duration;

use futures::future::{Either, select};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use tokio::{net::TcpStream, time::timeout};

/// Timeout of one request to a pod.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of a response, at most.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// Where a pod listens, by the name of its port.
#[must_use]
pub fn address(pod: &Pod, port: &str) -> Option<(String, u16)> {
    let ip = pod.status.as_ref()?.pod_ip.clone()?;
    Some((ip, self::port(pod, port)?))
}

/// The number of a pod's port.
#[must_use]
pub fn port(pod: &Pod, name: &str) -> Option<u16> {
    let spec = pod.spec.as_ref()?;
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let found = containers
        .flat_map(|container| container.ports.iter().flatten())
        .find(|port| port.name.as_deref() == Some(name))?;
    u16::try_from(found.container_port).ok()
}

/// Status and body of the answer; `None` without a complete answer of at most 64 KiB within a second.
pub async fn get((ip, port): (String, u16), path: &'static str) -> Option<(StatusCode, Bytes)> {
    let request = async {
        let stream = TcpStream::connect((ip.as_str(), port)).await.ok()?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        let get = Request::get(path)
            .header(http::header::HOST, "pod")
            .body(Empty::<Bytes>::new())
            .ok()?;
        let answer = async move {
            let answer = sender.send_request(get).await.ok()?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_RESPONSE_BYTES)
                .collect()
                .await
                .ok()?;
            Some((status, body.to_bytes()))
        };
        match select(std::pin::pin!(answer), std::pin::pin!(connection)).await {
            Either::Left((answer, _)) => answer,
            // It closed the connection behind the answer.
            Either::Right((_, answer)) => answer.await,
        }
    };
    timeout(REQUEST_TIMEOUT, request).await.ok().flatten()
}
