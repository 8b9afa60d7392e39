//! Where the load balancers of a tenant's API server are reached from its jump host.

use std::net::{IpAddr, SocketAddr};

use api::{Endpoint, SIPCluster};
use k8s_openapi::api::core::v1::Service;
use kube::{
    ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};

/// Names of load balancers in front of API servers begin so.
const API_BALANCER: &str = "loadbalancer-controlplane-";

/// The addresses that the site's load balancer gave to the cluster's own Services. An address that only the spec names, as
/// `clusterIP`, is not one of them: a tenant could name a machine that is not its own, and connect to it by its jump host.
pub(crate) fn addresses(cluster: &SIPCluster, services: &Store<Service>) -> Vec<SocketAddr> {
    let namespace = cluster.namespace().unwrap_or_default();
    let status = cluster.status.as_ref();
    let endpoints = status.into_iter().flat_map(|status| &status.endpoints);
    let found = endpoints
        .filter_map(|endpoint| services.get(&ObjectRef::new(service_name(endpoint)?).within(&namespace)))
        .filter(|service| is_controlled_by(service, cluster));
    found.flat_map(|service| given(&service)).collect()
}

/// The Service of an endpoint of an API server. An endpoint of one of several ports has the port in its name.
fn service_name(endpoint: &Endpoint) -> Option<&str> {
    let name = endpoint.name.split(':').next()?;
    name.starts_with(API_BALANCER).then_some(name)
}

fn is_controlled_by(service: &Service, cluster: &SIPCluster) -> bool {
    let mut owners = service.owner_references().iter();
    owners.any(|owner| owner.controller == Some(true) && cluster.metadata.uid.as_deref() == Some(&owner.uid))
}

fn given(service: &Service) -> Vec<SocketAddr> {
    let status = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    let ingress = status
        .into_iter()
        .flat_map(|status| status.ingress.iter().flatten());
    let addresses = ingress.filter_map(|ingress| ingress.ip.as_ref()?.parse::<IpAddr>().ok());
    let spec = service.spec.as_ref();
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

    fn reached(name: &str, owner: &str, ingress: &Value) -> Vec<SocketAddr> {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "shop", "ownerReferences": [
                {"apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster", "name": "orders", "uid": owner, "controller": true},
            ]},
            "spec": {"ports": [{"port": 6443, "nodePort": 30_001}]},
            "status": {"loadBalancer": {"ingress": ingress}},
        }))
        .unwrap();
        let (services, mut writer) = store();
        writer.apply_watcher_event(&Event::Apply(service));
        addresses(&cluster(), &services)
    }

    #[test]
    fn only_addresses_that_the_site_gave_are_reached() {
        let own = "loadbalancer-controlplane-orders";
        let given = json!([{"ip": "192.0.2.7"}, {"ip": "2001:db8::7"}, {"hostname": "lb.example"}]);
        let by_address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let both = vec![by_address("192.0.2.7:6443"), by_address("[2001:db8::7]:6443")];
        assert_eq!(reached(own, "7", &given), both);
        // The status has the address that the spec names, and the site gave none.
        assert_eq!(reached(own, "7", &json!([])), []);
        assert_eq!(reached(own, "8", &given), [], "a Service of another object");
        assert_eq!(
            reached("loadbalancer-worker-orders", "7", &given),
            [],
            "not in front of API servers"
        );
    }
}
