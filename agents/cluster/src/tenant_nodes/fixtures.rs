//! Nodes, and what is wanted of them, for the tests.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use k8s_openapi::api::core::v1::ObjectReference;
use kit::{
    placement::HostId,
    tenant::{Tenant, secret::User},
};
use kube::{Client, client::Body};

use super::{
    Action, Wanted, WantedMember,
    node::{Node, Readiness},
    server::Server,
};
use crate::fixtures::key;

/// Workers on these hosts, which have the addresses 192.0.2.1, 192.0.2.2 and so on.
pub(super) fn wanted(hosts: &[&str]) -> Wanted {
    let member = |(index, host): (usize, &&str)| WantedMember {
        host: HostId::new(key(host), format!("uid-{host}")),
        role: "Worker".to_owned(),
        addresses: [format!("192.0.2.{}", index + 1).parse().unwrap()].into(),
        is_balanced: true,
        action: Action::Keep,
    };
    Wanted {
        object: ObjectReference::default(),
        user: User::new("one", "one"),
        secret: "one-kubeconfig".to_owned(),
        members: hosts.iter().enumerate().map(member).collect(),
        known: api::TenantNodes::default(),
    }
}

/// A Node that is ready.
pub(super) fn node(name: &str, provider_id: &str, addresses: &[&str]) -> Node {
    Node {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        provider_id: provider_id.to_owned(),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        readiness: Readiness::Ready,
        is_cordoned: false,
        is_cordoned_by_us: false,
        is_of_cluster_api: false,
    }
}

/// Requests that a server has had, as method and path with query.
#[derive(Clone, Default)]
pub(super) struct Requests(Arc<Mutex<Vec<String>>>);

impl Requests {
    /// Those since the last call.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// An API server that answers so to a method and a path with query; with the code 0, never.
pub(super) fn api_server(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> (Client, Requests) {
    let requests = Requests::default();
    let seen = requests.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let path = request.uri().path_and_query().unwrap().as_str();
        let path = path.trim_end_matches('?');
        let request = format!("{} {path}", request.method());
        let (code, body) = answer(&request);
        seen.0.lock().unwrap().push(request);
        async move {
            if code == 0 {
                std::future::pending::<()>().await;
            }
            let response = http::Response::builder().status(code);
            Ok::<_, Infallible>(response.body(Body::from(body.into_bytes())).unwrap())
        }
    });
    (Client::new(service, "default"), requests)
}

/// That of a tenant.
pub(super) fn tenant(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> (Tenant, Requests) {
    let (client, requests) = api_server(answer);
    (Tenant::connected("https://tenant".to_owned(), client), requests)
}

/// The same for calls.
pub(super) fn server(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> (Server, Requests) {
    let (tenant, requests) = tenant(answer);
    (Server(tenant), requests)
}
