//! The Service of an instance, with what the spec changes in it.

use std::collections::BTreeMap;

use api::Exposure;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::metadata::Instance;

/// A port of a Service, and of the pods behind it.
#[derive(Clone, Copy, Debug)]
pub struct ExposedPort<'a> {
    /// Name of the port.
    pub name: &'a str,
    /// Port of the Service.
    pub number: u16,
    /// Port of the pods.
    pub target: u16,
    /// Port on the site's nodes; `None`: the API server picks one, or there is none.
    pub node_port: Option<u16>,
}

/// The Service in front of an instance's pods. Labels and annotations that the spec adds never replace those that every object has.
pub fn service<'a>(instance: &Instance<'_>, ports: impl Iterator<Item = ExposedPort<'a>>) -> Service {
    let ports = ports.map(|port| ServicePort {
        name: Some(port.name.to_owned()),
        port: i32::from(port.number),
        target_port: Some(IntOrString::Int(i32::from(port.target))),
        node_port: port.node_port.map(i32::from),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    });
    let changes = instance.entry().changes();
    let mut metadata = instance.metadata();
    let labels = changes.labels().iter();
    let mut labels: BTreeMap<_, _> = labels
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    labels.extend(metadata.labels.take().unwrap_or_default());
    metadata.labels = Some(labels);
    let annotations = changes.annotations().iter();
    metadata.annotations = (!changes.annotations().is_empty()).then(|| {
        annotations
            .map(|(key, value)| (key.to_string(), value.clone()))
            .collect()
    });
    let (kind, class, allocate) = match changes.exposure() {
        Exposure::NodePort => ("NodePort", None, None),
        Exposure::LoadBalancer { class, node_ports } => ("LoadBalancer", class.clone(), Some(*node_ports)),
    };
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(kind.to_owned()),
            load_balancer_class: class,
            allocate_load_balancer_node_ports: allocate,
            external_traffic_policy: changes.keeps_clients().then(|| "Local".to_owned()),
            selector: Some(instance.labels()),
            ports: Some(ports.collect()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
