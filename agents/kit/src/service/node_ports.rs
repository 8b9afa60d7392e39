//! The node ports of a Service, and the Service without some of them.

use api::PortSet;
use k8s_openapi::api::core::v1::Service;

/// The node ports of a Service, with that of its health check (`externalTrafficPolicy: Local`).
pub(super) fn node_ports(service: &Service) -> PortSet {
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

/// The Service without these node ports, which another one still has.
pub(super) fn leave_ports(service: &Service, taken: &PortSet) -> Service {
    let is_taken = |port: i32| u16::try_from(port).is_ok_and(|port| taken.contains(port));
    let mut left = service.clone();
    match left.spec.as_mut() {
        // The site's load balancer gives it an address whatever its node ports are.
        Some(spec) if spec.type_.as_deref() == Some("LoadBalancer") => {
            for port in spec.ports.iter_mut().flatten() {
                port.node_port = port.node_port.filter(|port| !is_taken(*port));
            }
            spec.health_check_node_port = spec.health_check_node_port.filter(|port| !is_taken(*port));
            left
        }
        _ => {
            let ports = node_ports(service);
            let kept: PortSet = ports.iter().filter(|port| !taken.contains(*port)).collect();
            without_ports(service, &kept)
        }
    }
}

/// The Service with those of its node ports that it has already; without node ports where it has none of them.
pub(super) fn without_ports(service: &Service, held: &PortSet) -> Service {
    let mut kept = service.clone();
    let Some(spec) = kept.spec.as_mut() else {
        return kept;
    };
    let has = |port: i32| u16::try_from(port).is_ok_and(|port| held.contains(port));
    let ports = spec.ports.get_or_insert_default();
    if ports.iter().any(|port| port.node_port.is_some_and(has)) {
        ports.retain(|port| port.node_port.is_some_and(has));
        return kept;
    }
    for port in ports {
        port.node_port = None;
    }
    spec.type_ = Some("ClusterIP".to_owned());
    spec.allocate_load_balancer_node_ports = None;
    spec.external_traffic_policy = None;
    spec.health_check_node_port = None;
    spec.load_balancer_class = None;
    spec.load_balancer_source_ranges = None;
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn ports_of_another_service_are_left_to_it() {
        let service = |spec: Value| -> Service { serde_json::from_value(json!({"spec": spec})).unwrap() };
        let taken = [2].into_iter().collect();
        for (given, expected) in [
            (
                json!({"type": "NodePort", "ports": [{"port": 2, "nodePort": 2}, {"port": 3, "nodePort": 3}]}),
                json!({"type": "NodePort", "ports": [{"port": 3, "nodePort": 3}]}),
            ),
            (
                json!({"type": "NodePort", "ports": [{"port": 2, "nodePort": 2}]}),
                json!({"type": "ClusterIP", "ports": [{"port": 2}]}),
            ),
            (
                json!({"type": "LoadBalancer", "healthCheckNodePort": 2, "ports": [{"port": 2, "nodePort": 2}]}),
                json!({"type": "LoadBalancer", "ports": [{"port": 2}]}),
            ),
        ] {
            assert_eq!(leave_ports(&service(given), &taken), service(expected));
        }
    }

    #[test]
    fn ports_that_stay_are_kept() {
        let service = |ports: Value| -> Service {
            serde_json::from_value(json!({"spec": {"type": "NodePort", "ports": ports}})).unwrap()
        };
        let both = service(json!([{"port": 2, "nodePort": 2}, {"port": 3, "nodePort": 3}]));
        let held = |ports: &[u16]| ports.iter().copied().collect();
        let kept = service(json!([{"port": 2, "nodePort": 2}]));
        assert_eq!(without_ports(&both, &held(&[1, 2])), kept);
        let spec = without_ports(&both, &held(&[1])).spec.unwrap();
        assert_eq!(spec.type_.as_deref(), Some("ClusterIP"));
        assert_eq!(
            node_ports(&Service {
                spec: Some(spec),
                ..Service::default()
            }),
            PortSet::default()
        );
    }
}
