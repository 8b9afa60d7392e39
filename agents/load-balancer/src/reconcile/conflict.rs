//! Node ports that somebody else has, or has asked for earlier.

use std::collections::BTreeMap;

use api::{
    Cluster, PortSet, SIPCluster,
    conditions::load_balancer::{PORT_CONFLICT, REFUSED},
};
use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::Time};
use kube::{Api, Client, ResourceExt as _, api::ListParams, runtime::reflector::ObjectRef};

use super::{Context, Error, apply::Lack};

/// Owners that a message names; each with all of its ports.
const NAMED: usize = 10;

/// What would be refused, before anything is applied: ports of other Services, and ports that older clusters ask for,
/// whether they have them yet or not. What the Service has already is its own.
pub(super) fn foreseen(context: &Context, object: &SIPCluster, service: &Service) -> Option<Lack> {
    let held = context.services.get(&ObjectRef::from_obj(service));
    let held = held.as_deref().map(node_ports).unwrap_or_default();
    let wanted: PortSet = node_ports(service)
        .iter()
        .filter(|port| !held.contains(*port))
        .collect();
    if wanted.is_empty() {
        return None;
    }
    let services = context.services.state();
    let mut taken = taken(&wanted, service, services.iter().map(AsRef::as_ref));
    for other in context.clusters.state() {
        // What one that is being deleted has goes with its Services.
        if other.metadata.deletion_timestamp.is_some() || precedence(&other) >= precedence(object) {
            continue;
        }
        let Ok(other) = Cluster::parse(&other) else {
            continue;
        };
        let ports: PortSet = asked_for(&other).filter(|port| wanted.contains(*port)).collect();
        let by_service = taken
            .values()
            .any(|held| ports.iter().all(|port| held.contains(port)));
        if !ports.is_empty() && !by_service {
            let owner = format!(
                "SIPCluster {}/{}, which is older",
                other.namespace(),
                other.name()
            );
            taken.insert(owner, ports);
        }
    }
    lack(service, &taken)
}

/// Why the API server refuses a Service: who has its node ports, or its own words.
pub(super) async fn explain(client: &Client, service: &Service, words: &str) -> Result<Lack, Error> {
    let all = Api::<Service>::all(client.clone())
        .list(&ListParams::default())
        .await;
    let all = all.map_err(Error::kubernetes("list Services"))?;
    let taken = taken(&node_ports(service), service, all.items.iter());
    let refused = || Lack::new(REFUSED, format!("the API server refuses the Service: {words}"));
    Ok(lack(service, &taken).unwrap_or_else(refused))
}

fn lack(service: &Service, taken: &BTreeMap<String, PortSet>) -> Option<Lack> {
    if taken.is_empty() {
        return None;
    }
    let named: Vec<String> = taken
        .iter()
        .take(NAMED)
        .map(|(owner, ports)| format!("{ports} by {owner}"))
        .collect();
    let more = match taken.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and more by {more} others"),
    };
    let message = format!(
        "{}: node ports are taken: {}{more}",
        service.name_any(),
        named.join("; ")
    );
    Some(Lack::new(PORT_CONFLICT, message))
}

/// The wanted ports that other Services have, by owner.
fn taken<'a>(
    wanted: &PortSet,
    service: &Service,
    all: impl Iterator<Item = &'a Service>,
) -> BTreeMap<String, PortSet> {
    let own = (service.namespace(), service.name_any());
    let mut taken: BTreeMap<String, PortSet> = BTreeMap::new();
    for other in all.filter(|other| (other.namespace(), other.name_any()) != own) {
        for port in node_ports(other).iter().filter(|port| wanted.contains(*port)) {
            taken.entry(owner(other)).or_default().add(port);
        }
    }
    taken
}

/// Who was there first, as the scheduler orders clusters that wait.
fn precedence(cluster: &SIPCluster) -> (Option<Time>, Option<String>, String) {
    (
        cluster.creation_timestamp(),
        cluster.namespace(),
        cluster.name_any(),
    )
}

/// Every node port that the load balancers of a spec name. Those of other sections count when they are a Service's: this
/// site may have nobody who makes one.
fn asked_for(cluster: &Cluster) -> impl Iterator<Item = u16> {
    let single = cluster
        .load_balancers_control_plane()
        .iter()
        .filter_map(api::ControlPlaneBalancer::node_port);
    let ranges = cluster
        .load_balancers_worker()
        .iter()
        .filter(|balancer| balancer.service().changes().exposure().has_node_ports())
        .flat_map(|balancer| balancer.ports().ports());
    single.chain(ranges).map(std::num::NonZeroU16::get)
}

/// Those too on which nodes say whether they have a pod of it (`externalTrafficPolicy: Local`).
fn node_ports(service: &Service) -> PortSet {
    let spec = service.spec.iter();
    let ports = spec.flat_map(|spec| {
        let ports = spec.ports.iter().flatten();
        ports
            .map(|port| port.node_port)
            .chain([spec.health_check_node_port])
    });
    ports
        .flatten()
        .filter_map(|port| u16::try_from(port).ok())
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
