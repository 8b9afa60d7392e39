//! Where users reach an instance, by its Service.

use api::Endpoint;
use k8s_openapi::api::core::v1::Service;

use super::problem::{PROGRESSING, Problem};

/// The endpoints of a Service: on the address that the spec names or that the site's load balancer gave, or on a node port of any node; and the
/// problem if an address or port is not known yet. `protocol`: the protocol on a port of the Service. `details`: what users need to know besides
/// the address.
pub(super) fn endpoints(
    name: &str,
    service: &Service,
    address: Option<&str>,
    protocol: fn(i32) -> &'static str,
    details: &Endpoint,
) -> (Vec<Endpoint>, Option<Problem>) {
    let by_load_balancer = service
        .spec
        .as_ref()
        .is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"));
    let given = ingress(service);
    let pending = (by_load_balancer && given.is_none()).then(|| {
        Problem::new(
            PROGRESSING,
            "the site's load balancer has given the Service no address yet",
        )
    });
    let address = address.map(str::to_owned).or(given);
    let ports = service
        .spec
        .iter()
        .flat_map(|spec| spec.ports.iter().flatten())
        .collect::<Vec<_>>();
    let single = ports.len() == 1;
    let reached = ports.iter().filter_map(|port| {
        let at = if by_load_balancer {
            port.port
        } else {
            port.node_port?
        };
        Some((port.port, at, port.node_port.filter(|node_port| *node_port != at)))
    });
    let endpoints = reached.map(|(port, at, node_port)| Endpoint {
        name: if single {
            name.to_owned()
        } else {
            format!("{name}:{port}")
        },
        address: address.clone(),
        port: Some(at),
        node_port,
        protocol: Some(protocol(port).to_owned()),
        ..details.clone()
    });
    let known = pending.is_none() || address.is_some();
    (if known { endpoints.collect() } else { Vec::new() }, pending)
}

/// Name of the instance to which an endpoint belongs.
pub(super) fn instance(endpoint: &Endpoint) -> &str {
    // Names of Services have no colon.
    let name = &endpoint.name;
    name.split_once(':').map_or(name, |(name, _)| name)
}

/// The known endpoints, and those of `all` whose instance has none among the known ones.
pub(super) fn with_new(known: Vec<Endpoint>, mut all: Vec<Endpoint>) -> Vec<Endpoint> {
    all.retain(|endpoint| !known.iter().any(|known| instance(known) == instance(endpoint)));
    known.into_iter().chain(all).collect()
}

/// The address that the site's load balancer gave.
fn ingress(service: &Service) -> Option<String> {
    let status = service.status.as_ref()?.load_balancer.as_ref()?;
    let ingress = status.ingress.as_ref()?.first()?;
    ingress.ip.clone().or_else(|| ingress.hostname.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn endpoints_are_where_users_reach_the_service() {
        let port = json!([{"port": 6443, "nodePort": 30_001}]);
        let ingress = |ingress: Value| json!({"loadBalancer": {"ingress": [ingress]}});
        let by_nodes = json!({"spec": {"type": "NodePort", "ports": port}});
        let balanced =
            |status: Value| json!({"spec": {"type": "LoadBalancer", "ports": port}, "status": status});
        for (service, named, expected) in [
            (by_nodes.clone(), None, Some((None, 30_001))),
            (by_nodes, Some("192.0.2.1"), Some((Some("192.0.2.1"), 30_001))),
            (balanced(json!({})), None, None),
            (
                balanced(json!({})),
                Some("192.0.2.1"),
                Some((Some("192.0.2.1"), 6443)),
            ),
            (
                balanced(ingress(json!({"ip": "2001:db8::1"}))),
                None,
                Some((Some("2001:db8::1"), 6443)),
            ),
            (
                balanced(ingress(json!({"hostname": "lb.example"}))),
                None,
                Some((Some("lb.example"), 6443)),
            ),
        ] {
            let service: Service = serde_json::from_value(service).unwrap();
            let (endpoints, _) = endpoints("a", &service, named, |_| "tcp", &Endpoint::default());
            let found = endpoints
                .first()
                .map(|endpoint| (endpoint.address.as_deref(), endpoint.port.unwrap()));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn only_endpoints_of_new_instances_are_added() {
        let named = |names: &[&str]| -> Vec<Endpoint> {
            let names = names.iter();
            let endpoint = |name: &&str| Endpoint {
                name: (*name).to_owned(),
                ..Endpoint::default()
            };
            names.map(endpoint).collect()
        };
        let all = with_new(named(&["a:1", "b"]), named(&["a:1", "a:2", "c:1", "c:2"]));
        assert_eq!(all, named(&["a:1", "b", "c:1", "c:2"]));
    }

    #[test]
    fn every_endpoint_is_one_of_its_instance() {
        for name in ["a", "a:6443"] {
            let endpoint = Endpoint {
                name: name.to_owned(),
                ..Endpoint::default()
            };
            assert_eq!(instance(&endpoint), "a");
        }
    }
}
