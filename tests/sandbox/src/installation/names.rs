//! A name server for the pods of a real node, as every cluster has one: it answers with the addresses of Services.

use std::net::Ipv4Addr;

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use simple_dns::{
    CLASS, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE,
    rdata::{A, RData},
};
use tokio::{net::UdpSocket, task::JoinSet};

use super::{Error, api_error, node_of};
use crate::site::Site;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "kube-dns";
const ZONE: [&str; 3] = ["svc", "cluster", "local"];

/// What a name outside of the cluster means.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// A machine.
    Address(Ipv4Addr),
    /// A Service, by name and namespace: as a site's own name servers know its load balancer.
    Service(&'static str, &'static str),
}

/// A running name server. It ends when it is dropped.
#[derive(Debug)]
pub struct Names {
    _serving: JoinSet<()>,
}

impl Names {
    /// Serves on the host, and makes the Service that leads pods there. `outside`: names that are none of Services.
    ///
    /// # Errors
    /// When the site has no real node, there is no socket, or the API server refuses the Service.
    pub async fn serve(site: &Site, outside: Vec<(&'static str, Target)>) -> Result<Self, Error> {
        let node = node_of(site)?;
        let socket = UdpSocket::bind((node.host_address(), 0)).await;
        let socket = socket.map_err(Error::Listen)?;
        let port = socket.local_addr().map_err(Error::Listen)?.port();
        let params = PatchParams::apply("sandbox");
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME},
            "spec": {
                "clusterIP": node.name_server(),
                "ports": [{"name": "dns", "port": 53, "protocol": "UDP", "targetPort": port}],
            },
        });
        let services: Api<Service> = Api::namespaced(site.client(), NAMESPACE);
        let applied = services.patch(NAME, &params, &Patch::Apply(service)).await;
        applied.map_err(api_error("apply the Service of the name server"))?;
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": NAME, "labels": {"kubernetes.io/service-name": NAME}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [node.host_address()], "conditions": {"ready": true}}],
            "ports": [{"name": "dns", "port": port, "protocol": "UDP"}],
        });
        let slices: Api<EndpointSlice> = Api::namespaced(site.client(), NAMESPACE);
        let applied = slices.patch(NAME, &params, &Patch::Apply(slice)).await;
        applied.map_err(api_error("apply the EndpointSlice of the name server"))?;
        let client = site.client();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut buffer = [0; 4096];
            loop {
                if let Ok((length, from)) = socket.recv_from(&mut buffer).await
                    && let Some(reply) = reply(&client, &outside, &buffer[..length]).await
                {
                    let _ = socket.send_to(&reply, from).await;
                }
            }
        });
        Ok(Self { _serving: serving })
    }
}

async fn reply(client: &Client, outside: &[(&'static str, Target)], request: &[u8]) -> Option<Vec<u8>> {
    let query = Packet::parse(request).ok()?;
    let question = query.questions.first()?.clone().into_owned();
    let asked = question.qname.to_string();
    let addresses = match outside.iter().find(|(name, _)| *name == asked) {
        Some((_, Target::Address(address))) => vec![*address],
        Some((_, Target::Service(name, namespace))) => addresses(client, name, namespace).await,
        None => match service_name(&asked) {
            Some((name, namespace)) => addresses(client, &name, &namespace).await,
            None => Vec::new(),
        },
    };
    let mut reply = query.into_reply();
    reply.set_flags(PacketFlag::AUTHORITATIVE_ANSWER);
    if addresses.is_empty() {
        *reply.rcode_mut() = RCODE::NameError;
    }
    // Of a name that there is, nothing else is known.
    if question.qtype == QTYPE::TYPE(TYPE::A) {
        let records = addresses.into_iter().map(|address| {
            let data = RData::A(A {
                address: address.into(),
            });
            ResourceRecord::new(question.qname.clone(), CLASS::IN, 1, data)
        });
        reply.answers.extend(records);
    }
    reply.build_bytes_vec().ok()
}

/// `NAME.NAMESPACE.svc.cluster.local`.
fn service_name(asked: &str) -> Option<(String, String)> {
    let labels: Vec<&str> = asked.trim_end_matches('.').split('.').collect();
    match labels[..] {
        [name, namespace, ref zone @ ..] if *zone == ZONE => Some((name.to_owned(), namespace.to_owned())),
        [..] => None,
    }
}

/// That of a Service, or those of its ready pods if it has none.
async fn addresses(client: &Client, name: &str, namespace: &str) -> Vec<Ipv4Addr> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = services.get_opt(name).await.ok().flatten();
    let Some(address) = service.and_then(|service| service.spec?.cluster_ip) else {
        return Vec::new();
    };
    if let Ok(address) = address.parse() {
        return vec![address];
    }
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let own = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
    let Ok(slices) = slices.list(&own).await else {
        return Vec::new();
    };
    let endpoints = slices
        .items
        .into_iter()
        .filter_map(|slice| slice.endpoints)
        .flatten();
    let ready = endpoints.filter(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        conditions.and_then(|conditions| conditions.ready) == Some(true)
    });
    ready
        .flat_map(|endpoint| endpoint.addresses)
        .filter_map(|address| address.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_services_of_the_cluster_have_names() {
        let named = |name: &str, namespace: &str| Some((name.to_owned(), namespace.to_owned()));

        assert_eq!(service_name("a.b.svc.cluster.local"), named("a", "b"));
        assert_eq!(service_name("a.b.svc.b.svc.cluster.local"), None);
        assert_eq!(service_name("a.example"), None);
    }
}
