//! Where the load balancers of a tenant's API server are reached from its jump host.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use api::{Endpoint, SIPCluster};
use k8s_openapi::api::core::v1::Service;
use kube::{
    ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};

/// Names of load balancers in front of API servers begin so.
const API_BALANCER_PREFIX: &str = "loadbalancer-controlplane-";

/// A load balancer of a cluster in front of its API server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ApiBalancer {
    /// Name of its objects.
    pub(crate) name: String,
    /// Where it is reached.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// The load balancers of the cluster itself, with the addresses that the API server and the site's load balancer gave to their Services. An
/// address that only the spec names, as `clusterIP`, is left out: a tenant could name another machine there, and reach it through the jump host.
pub(crate) fn of_cluster(cluster: &SIPCluster, services: &Store<Service>) -> Vec<ApiBalancer> {
    let namespace = cluster.namespace().unwrap_or_default();
    let status = cluster.status.as_ref();
    let endpoints = status.into_iter().flat_map(|status| &status.endpoints);
    let names: BTreeSet<&str> = endpoints.filter_map(service_name).collect();
    let found = names
        .into_iter()
        .filter_map(|name| services.get(&ObjectRef::new(name).within(&namespace)))
        .filter(|service| is_controlled_by(service, cluster));
    found
        .map(|service| ApiBalancer {
            name: service.name_any(),
            addresses: assigned_addresses(&service),
        })
        .collect()
}

/// The Service of an endpoint of an API server. An endpoint of one of several ports has the port in its name.
fn service_name(endpoint: &Endpoint) -> Option<&str> {
    let name = endpoint.name.split(':').next()?;
    name.starts_with(API_BALANCER_PREFIX).then_some(name)
}

fn is_controlled_by(service: &Service, cluster: &SIPCluster) -> bool {
    let mut owners = service.owner_references().iter();
    owners.any(|owner| owner.controller == Some(true) && cluster.metadata.uid.as_deref() == Some(&owner.uid))
}

fn assigned_addresses(service: &Service) -> Vec<SocketAddr> {
    let status = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    let ingress = status
        .into_iter()
        .flat_map(|status| status.ingress.iter().flatten());
    let by_load_balancer = ingress.filter_map(|ingress| ingress.ip.as_deref());
    let spec = service.spec.as_ref();
    // The API server gives a cluster IP to one Service only, out of a range that contains no machines. A headless Service has the text `None`.
    let by_api_server = spec.iter().flat_map(|spec| spec.cluster_ips.iter().flatten());
    let addresses = by_load_balancer
        .chain(by_api_server.map(String::as_str))
        .filter_map(|address| address.parse::<IpAddr>().ok());
    let ports = spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let ports: Vec<u16> = ports.filter_map(|port| u16::try_from(port.port).ok()).collect();
    addresses
        .flat_map(|address| {
            ports
                .iter()
                .map(move |port| SocketAddr::new(address, *port))
                .collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector::store, watcher::Event};
    use serde_json::{Value, json};

    use super::*;

    fn cluster() -> SIPCluster {
        let endpoint = |name: &str, address: &str| json!({"name": name, "address": address, "port": 6443, "protocol": "https"});
        serde_json::from_value(json!({
            "metadata": {"name": "orders", "namespace": "shop", "uid": "7"},
            "spec": {"nodes": {}},
            "status": {"endpoints": [
                endpoint("loadbalancer-controlplane-orders", "198.51.100.9"),
                endpoint("loadbalancer-worker-orders", "192.0.2.8"),
            ]},
        }))
        .unwrap()
    }

    fn found(name: &str, owner: &str, cluster_ips: &[&str], ingress: &Value) -> Vec<ApiBalancer> {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "shop", "ownerReferences": [
                {"apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "name": "orders", "uid": owner, "controller": true},
            ]},
            "spec": {
                "ports": [{"port": 6443, "nodePort": 30_001}], "clusterIPs": cluster_ips,
                "externalIPs": ["198.51.100.8"], "loadBalancerIP": "198.51.100.9",
            },
            "status": {"loadBalancer": {"ingress": ingress}},
        }))
        .unwrap();
        let (services, mut writer) = store();
        writer.apply_watcher_event(&Event::Apply(service));
        of_cluster(&cluster(), &services)
    }

    #[test]
    fn only_addresses_that_the_site_gave_are_reached() {
        let own = "loadbalancer-controlplane-orders";
        let given = json!([{"ip": "192.0.2.7"}, {"ip": "2001:db8::7"}, {"hostname": "lb.example"}]);
        let reached = |addresses: &[&str]| {
            vec![ApiBalancer {
                name: own.to_owned(),
                addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            }]
        };
        assert_eq!(
            found(own, "7", &[], &given),
            reached(&["192.0.2.7:6443", "[2001:db8::7]:6443"])
        );
        assert_eq!(
            found(own, "7", &["10.96.0.7", "fd00::7"], &json!([])),
            reached(&["10.96.0.7:6443", "[fd00::7]:6443"]),
            "a Service with node ports"
        );
        // The status has the address that the spec names, and the site gave none.
        assert_eq!(found(own, "7", &["None"], &json!([])), reached(&[]));
        assert_eq!(
            found(own, "8", &["10.96.0.7"], &given),
            [],
            "a Service of another object"
        );
        assert_eq!(
            found("loadbalancer-worker-orders", "7", &["10.96.0.7"], &given),
            [],
            "not in front of API servers"
        );
    }
}
