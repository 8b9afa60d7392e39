//! The Kubernetes objects, for server-side apply: everything that is ours, and nothing else.

use std::collections::BTreeMap;

use api::{Exposure, LabelKey, Resources, annotations, labels};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, HTTPGetAction, Lifecycle, LifecycleHandler, PodSecurityContext,
    PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, Secret, SecretVolumeSource,
    SecurityContext, Service, ServicePort, ServiceSpec, SleepAction, Sysctl, TopologySpreadConstraint,
    Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use sha2::{Digest as _, Sha256};

use super::{CONFIG_FILE, HEALTH_PATH, INTERNAL_PORT_NAME, MASTER_SOCKET, MEMBERSHIP_FILE, Plan, sidecar};
use crate::metadata;

/// SIP's name of the container; with another, its container would stay beside ours.
const CONTAINER: &str = "loadbalancer";
pub(super) const CONFIG_VOLUME: &str = "haproxy-config";
pub(super) const CONFIG_DIRECTORY: &str = "/usr/local/etc/haproxy";
/// How long a pod that is told to end goes on: no new connections reach it, and those that it has may end by themselves.
const DRAIN_SECONDS: i64 = 30;
/// After the drain, for the images whose stop signal lets connections end too.
const GRACE_SECONDS: i64 = DRAIN_SECONDS + super::config::HARD_STOP_SECONDS + 5;
/// `nobody`: HAProxy needs no account, and the image need not have one.
const NOBODY: i64 = 65_534;
const FIRST_UNPRIVILEGED_PORT: u16 = 1_024;

pub(super) fn pod_labels(plan: &Plan<'_>) -> BTreeMap<String, String> {
    metadata::labels(
        labels::COMPONENT_LOAD_BALANCER,
        labels::NAME_HAPROXY,
        plan.entry.object_name(),
    )
}

/// The selector's labels, and the cluster's name, so that a pod says whose it is.
fn template_labels(plan: &Plan<'_>) -> BTreeMap<String, String> {
    let mut on_pod = pod_labels(plan);
    on_pod.insert(labels::CLUSTER_NAME.to_owned(), plan.cluster.name().to_owned());
    on_pod
}

pub(super) fn child(plan: &Plan<'_>) -> ObjectMeta {
    metadata::child(plan.cluster, plan.entry.object_name(), pod_labels(plan))
}

pub(super) fn secret(plan: &Plan<'_>, config: &str, membership: Option<String>) -> Secret {
    let config = (CONFIG_FILE.to_owned(), ByteString(config.as_bytes().to_vec()));
    let membership = membership.map(|text| (MEMBERSHIP_FILE.to_owned(), ByteString(text.into_bytes())));
    Secret {
        metadata: child(plan),
        type_: Some("Opaque".to_owned()),
        data: Some(std::iter::once(config).chain(membership).collect()),
        ..Secret::default()
    }
}

/// What the spec changes comes first, so that it never takes the place of what is ours.
pub(super) fn service(plan: &Plan<'_>) -> Service {
    let ports = plan.ports.iter().map(|port| ServicePort {
        name: Some(port.name.clone()),
        port: i32::from(port.number),
        target_port: Some(IntOrString::Int(i32::from(port.number))),
        node_port: port.at_nodes.map(i32::from),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    });
    let changes = plan.entry.changes();
    let mut metadata = child(plan);
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
            selector: Some(pod_labels(plan)),
            ports: Some(ports.collect()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// Hash of the configuration, if new pods have to start for a new one, and the networks to join.
fn pod_annotations(plan: &Plan<'_>, config: &str) -> Option<BTreeMap<String, String>> {
    let hash = plan.sidecar.is_none().then(|| digest(config));
    let attachments = plan.entry.network_attachments();
    let networks = (!attachments.is_empty()).then(|| {
        let namespace = plan.cluster.namespace();
        let network = |name: &String| serde_json::json!({"name": name, "namespace": namespace});
        let networks: serde_json::Value = attachments.iter().map(network).collect();
        (annotations::NETWORKS.to_owned(), networks.to_string())
    });
    let hash = hash.map(|hash| (annotations::CONFIG_HASH.to_owned(), hash));
    let all: BTreeMap<_, _> = hash.into_iter().chain(networks).collect();
    (!all.is_empty()).then_some(all)
}

/// SHA-256 of a configuration, in hexadecimal digits.
pub(super) fn digest(config: &str) -> String {
    format!("{:x}", Sha256::digest(config.as_bytes()))
}

pub(super) fn deployment(plan: &Plan<'_>, config: &str) -> Deployment {
    Deployment {
        metadata: child(plan),
        spec: DeploymentSpec {
            replicas: Some(i32::from(plan.entry.replicas())),
            revision_history_limit: Some(3),
            selector: LabelSelector {
                match_labels: Some(pod_labels(plan)),
                match_expressions: None,
            },
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::Int(1)),
                    max_unavailable: Some(IntOrString::Int(0)),
                }),
            }),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(template_labels(plan)),
                    annotations: pod_annotations(plan, config),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod(plan)),
            },
            ..DeploymentSpec::default()
        },
        ..Deployment::default()
    }
}

pub(super) fn node_selector(plan: &Plan<'_>) -> Option<BTreeMap<String, String>> {
    let node_labels = plan.entry.node_labels();
    let selector = || {
        node_labels
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    };
    (!node_labels.is_empty()).then(selector)
}

fn pod(plan: &Plan<'_>) -> PodSpec {
    let volumes = match plan.sidecar {
        Some(_) => sidecar::volumes(),
        None => vec![Volume {
            name: CONFIG_VOLUME.to_owned(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(plan.entry.object_name().to_string()),
                default_mode: Some(0o444),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        }],
    };
    PodSpec {
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        service_account_name: plan.sidecar.map(|_| plan.entry.object_name().to_string()),
        init_containers: plan
            .sidecar
            .map(|sidecar| vec![sidecar::container(plan, sidecar)]),
        containers: vec![container(plan)],
        node_selector: node_selector(plan),
        security_context: Some(pod_security(plan)),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        topology_spread_constraints: Some(vec![TopologySpreadConstraint {
            max_skew: 1,
            topology_key: "kubernetes.io/hostname".to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            label_selector: Some(LabelSelector {
                match_labels: Some(pod_labels(plan)),
                match_expressions: None,
            }),
            ..TopologySpreadConstraint::default()
        }]),
        volumes: Some(volumes),
        ..PodSpec::default()
    }
}

pub(super) fn pod_security(plan: &Plan<'_>) -> PodSecurityContext {
    let privileged = plan
        .ports
        .iter()
        .any(|port| port.number < FIRST_UNPRIVILEGED_PORT);
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(NOBODY),
        run_as_group: Some(NOBODY),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        // The pod has a network of its own, so this concerns nobody else; it spares HAProxy a capability.
        sysctls: privileged.then(|| {
            vec![Sysctl {
                name: "net.ipv4.ip_unprivileged_port_start".to_owned(),
                value: "0".to_owned(),
            }]
        }),
        ..PodSecurityContext::default()
    }
}

fn container(plan: &Plan<'_>) -> Container {
    let balanced = plan
        .ports
        .iter()
        .map(|port| container_port(&port.name, port.number));
    let (directory, mount) = match plan.sidecar {
        Some(_) => (sidecar::DIRECTORY, sidecar::directory_mount()),
        None => (CONFIG_DIRECTORY, config_mount()),
    };
    let master = plan
        .sidecar
        .map(|_| ["-S".to_owned(), format!("{directory}/{MASTER_SOCKET},mode,600")]);
    let config = ["-f".to_owned(), format!("{directory}/{CONFIG_FILE}")];
    let command = ["haproxy", "-W", "-db"].map(str::to_owned).into_iter();
    Container {
        name: CONTAINER.to_owned(),
        image: Some(plan.entry.image().to_string()),
        // Ours rather than the image's, which may want to be root or a daemon.
        command: Some(
            command
                .chain(master.into_iter().flatten())
                .chain(config)
                .collect(),
        ),
        ports: Some(
            balanced
                .chain([container_port(INTERNAL_PORT_NAME, plan.internal_port())])
                .collect(),
        ),
        readiness_probe: Some(probe(HEALTH_PATH, INTERNAL_PORT_NAME, 5)),
        liveness_probe: Some(probe(HEALTH_PATH, INTERNAL_PORT_NAME, 10)),
        lifecycle: Some(Lifecycle {
            // No command, since the image may have none but haproxy.
            pre_stop: Some(LifecycleHandler {
                sleep: Some(SleepAction {
                    seconds: DRAIN_SECONDS,
                }),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        resources: Some(resources(plan.entry.resources())),
        security_context: Some(container_security()),
        volume_mounts: Some(vec![mount]),
        ..Container::default()
    }
}

pub(super) fn container_security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        run_as_non_root: Some(true),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            add: None,
        }),
        ..SecurityContext::default()
    }
}

pub(super) fn config_mount() -> VolumeMount {
    VolumeMount {
        name: CONFIG_VOLUME.to_owned(),
        mount_path: CONFIG_DIRECTORY.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}

pub(super) fn container_port(name: &str, number: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(number),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

pub(super) fn probe(path: &str, port: &str, period_seconds: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String(port.to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        ..Probe::default()
    }
}

/// What the user says replaces what we would.
fn resources(asked: Option<&Resources>) -> ResourceRequirements {
    let quantities = |amounts: &BTreeMap<LabelKey, String>| {
        let quantity = |(name, amount): (&LabelKey, &String)| (name.to_string(), Quantity(amount.clone()));
        (!amounts.is_empty()).then(|| amounts.iter().map(quantity).collect())
    };
    let quantity = |(name, amount): (&str, &str)| (name.to_owned(), Quantity(amount.to_owned()));
    let (requests, limits) = match asked {
        Some(asked) => (quantities(asked.requests()), quantities(asked.limits())),
        None => (
            Some([("cpu", "50m"), ("memory", "64Mi")].map(quantity).into()),
            Some([("memory", "1Gi")].map(quantity).into()),
        ),
    };
    ResourceRequirements {
        requests,
        limits,
        ..ResourceRequirements::default()
    }
}
