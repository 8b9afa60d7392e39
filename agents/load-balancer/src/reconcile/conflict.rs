//! Node ports that somebody else has.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use super::Error;

/// Ports that a message names.
const NAMED: usize = 5;

/// Why the API server refuses a Service: who has its node ports, or its own words.
pub(super) async fn explain(
    client: &Client,
    service: &Service,
    words: String,
) -> Result<(&'static str, String), Error> {
    let wanted = node_ports(service);
    let all = Api::<Service>::all(client.clone())
        .list(&ListParams::default())
        .await;
    let all = all.map_err(Error::kubernetes("list Services"))?;
    let own = (service.namespace(), service.name_any());
    let others = all
        .items
        .iter()
        .filter(|other| (other.namespace(), other.name_any()) != own);
    let taken: BTreeMap<i32, String> = others
        .flat_map(|other| node_ports(other).into_iter().map(|port| (port, owner(other))))
        .filter(|(port, _)| wanted.contains(port))
        .collect();
    if taken.is_empty() {
        return Ok(("Refused", format!("the API server refuses the Service: {words}")));
    }
    let named: Vec<String> = taken
        .iter()
        .take(NAMED)
        .map(|(port, owner)| format!("node port {port} is taken by {owner}"))
        .collect();
    let more = match taken.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    Ok((
        "PortConflict",
        format!("{}: {}{more}", service.name_any(), named.join("; ")),
    ))
}

fn node_ports(service: &Service) -> BTreeSet<i32> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports
        .filter_map(|port| port.node_port)
        .filter(|port| *port != 0)
        .collect()
}

/// The Service, and the `SIPCluster` that it belongs to if it is one's.
fn owner(service: &Service) -> String {
    let namespace = service.namespace().unwrap_or_default();
    let cluster = service
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "SIPCluster");
    let of = cluster
        .map(|cluster| format!(" of SIPCluster {namespace}/{}", cluster.name))
        .unwrap_or_default();
    format!("Service {namespace}/{}{of}", service.name_any())
}
