//! Existing instances of a cluster by name, with the node ports by which entries without a name are matched with them.

use std::collections::BTreeSet;

use api::{Endpoint, MadePorts, SIPCluster, annotations::SERVED};
use k8s_openapi::api::core::v1::Service;
use kube::{Resource as _, ResourceExt as _};

use super::{endpoints, kept_metadata, made_for, served};

/// Ports without a port on nodes that are kept of a Service, at most. A load balancer has 1,000.
const MAX_PORTS: usize = 1_024;

/// Removes what no agent reads of a Service: a tenant may write much of it.
pub(super) fn trim_service(service: &mut Service) {
    kept_metadata::trim(&mut service.metadata, &[SERVED]);
    made_for::trim(&mut service.metadata.labels);
    served::trim(&mut service.metadata.annotations);
    let is_of_cluster = made_for::Owner::of_object(&service.metadata).is_some();
    if let Some(spec) = &mut service.spec {
        spec.selector = None;
        spec.external_ips = None;
        spec.load_balancer_source_ranges = None;
        // Of other Services only the ports on nodes are read. A site has a limited number of these.
        let mut room = if is_of_cluster { MAX_PORTS } else { 0 };
        if let Some(ports) = &mut spec.ports {
            ports.retain(|port| {
                let has_room = room > 0;
                room = room.saturating_sub(1);
                has_room || port.node_port.is_some()
            });
        }
    }
}

/// The same by value, for a list.
#[must_use]
pub fn trimmed_service(mut service: Service) -> Service {
    trim_service(&mut service);
    service
}

/// The instances of a cluster whose names are `owned`, with their node ports: those of its Services, and what the status has recorded
/// where a Service is missing. `services` may have those of others.
pub fn made_ports<'a>(
    object: &SIPCluster,
    owned: impl Fn(&str) -> bool,
    services: impl IntoIterator<Item = &'a Service>,
) -> MadePorts {
    let mut made = recorded_ports(object, recorded_on_nodes);
    let services = services.into_iter();
    made.extend(
        services
            .filter(|service| service.namespace() == object.namespace() && is_owner(object, service))
            .map(|service| (service.name_any(), entry_node_ports(service))),
    );
    made.retain(|name, _| owned(name));
    made
}

/// The ports in the status. `of_endpoint`: which ports of an endpoint count.
pub(super) fn recorded_ports(
    object: &SIPCluster,
    of_endpoint: impl Fn(&Endpoint) -> BTreeSet<u16>,
) -> MadePorts {
    let mut made = MadePorts::new();
    let Some(status) = &object.status else {
        return made;
    };
    for applied in &status.applied {
        made.entry(applied.service.clone()).or_default();
    }
    for endpoint in &status.endpoints {
        let instance = endpoints::instance(endpoint).to_owned();
        made.entry(instance).or_default().extend(of_endpoint(endpoint));
    }
    made
}

/// The port of an endpoint on the nodes. If a load balancer of the site publishes another port, no entry has that one.
pub(super) fn recorded_on_nodes(endpoint: &Endpoint) -> BTreeSet<u16> {
    let node_port = endpoint.node_port.or(endpoint.port);
    let node_port = node_port.and_then(|port| u16::try_from(port).ok());
    node_port.into_iter().collect()
}

/// The node ports of a Service by which entries are matched with it: not that of its health check, which no entry names.
pub(super) fn entry_node_ports(service: &Service) -> BTreeSet<u16> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let ports = ports.filter_map(|port| u16::try_from(port.node_port?).ok());
    ports.collect()
}

fn is_owner(object: &SIPCluster, service: &Service) -> bool {
    let uid = object.uid();
    let owners = service.owner_references();
    let mut owners = owners.iter().filter(|owner| owner.kind == SIPCluster::kind(&()));
    owners.any(|owner| Some(&owner.uid) == uid.as_ref())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn large_services_take_no_memory() {
        let large = "x".repeat(200_000);
        let ports: Vec<_> = (1..3_000).map(|port| json!({"port": port})).collect();
        let on_nodes = (30_000..30_002).map(|port| json!({"port": port, "nodePort": port}));
        let ports: Vec<_> = ports.into_iter().chain(on_nodes).collect();
        for (labels, kept) in [
            (json!({}), 2),
            (
                json!({"app.kubernetes.io/part-of": "sip", "sip.airshipit.org/cluster-name": "shop"}),
                MAX_PORTS + 2,
            ),
        ] {
            let service = json!({
                "metadata": {"name": "s", "labels": labels, "annotations": {"a": large}, "finalizers": [large]},
                "spec": {
                    "ports": ports, "externalIPs": [large], "loadBalancerSourceRanges": [large],
                },
            });
            let service = trimmed_service(serde_json::from_value(service).unwrap());
            assert_eq!(service.spec.as_ref().unwrap().ports.as_ref().unwrap().len(), kept);
            assert_eq!(entry_node_ports(&service).len(), 2);
            assert!(serde_json::to_string(&service).unwrap().len() < 100_000);
        }
    }

    #[test]
    fn services_count_before_what_the_status_has_recorded() {
        let object: SIPCluster = serde_json::from_value(json!({
            "metadata": {"namespace": "tenants", "name": "shop", "uid": "now"}, "spec": {},
            "status": {
                "applied": [{"service": "auth-shop-3", "epoch": 1, "revision": 1, "generation": 1}],
                "endpoints": [
                    {"name": "auth-shop", "port": 30_001},
                    {"name": "auth-shop-1", "port": 443, "nodePort": 30_002},
                    {"name": "auth-shop-2:30003", "port": 30_003},
                    {"name": "jumphost-shop", "port": 30_009},
                ],
            },
        }))
        .unwrap();
        let service = |name: &str, uid: &str, port: u16| -> Service {
            serde_json::from_value(json!({
                "metadata": {"namespace": "tenants", "name": name, "ownerReferences": [
                    {"apiVersion": "v1", "kind": "SIPCluster", "name": "shop", "uid": uid},
                ]},
                "spec": {"ports": [{"port": 443, "nodePort": port}]},
            }))
            .unwrap()
        };
        let services = [
            service("auth-shop", "now", 30_004),
            service("auth-shop-1-1", "another", 30_005),
        ];
        let made = made_ports(&object, |name| name.starts_with("auth-"), &services);
        let expected: MadePorts = [
            ("auth-shop".to_owned(), [30_004].into()),
            ("auth-shop-1".to_owned(), [30_002].into()),
            ("auth-shop-2".to_owned(), [30_003].into()),
            ("auth-shop-3".to_owned(), [].into()),
        ]
        .into();
        assert_eq!(made, expected);
    }
}
