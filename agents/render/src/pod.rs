//! What the pods of every service share: how they roll out and spread, which nodes they run on, and what they may do. They meet the
//! Pod Security Standard *restricted*.

use std::collections::BTreeMap;

use api::{LabelKey, Resources, annotations};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Capabilities, ContainerPort, HTTPGetAction, PodSecurityContext, PodSpec, PodTemplateSpec, Probe,
    ResourceRequirements, SeccompProfile, SecurityContext, Sysctl, TCPSocketAction, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::metadata::Instance;

/// The user `nobody`, for software that needs no account; images need not have one.
pub const NOBODY_UID: i64 = 65_534;

/// Runs an instance: `replicas` of its entry, a new pod before an old one ends. `config_hash`: a change of it rolls out new pods.
#[must_use]
pub fn deployment(instance: &Instance<'_>, config_hash: Option<String>, pod: PodSpec) -> Deployment {
    Deployment {
        metadata: instance.metadata(),
        spec: DeploymentSpec {
            replicas: Some(i32::from(instance.entry().replicas())),
            revision_history_limit: Some(3),
            selector: instance.selector(),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::Int(1)),
                    max_unavailable: Some(IntOrString::Int(0)),
                }),
            }),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(instance.pod_labels()),
                    annotations: annotations(instance, config_hash),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod),
            },
            ..DeploymentSpec::default()
        },
        ..Deployment::default()
    }
}

/// Hash of the configuration, if new pods have to start for a new one, and the networks to join.
fn annotations(instance: &Instance<'_>, config_hash: Option<String>) -> Option<BTreeMap<String, String>> {
    let attachments = instance.entry().network_attachments();
    let networks = (!attachments.is_empty()).then(|| {
        let namespace = instance.cluster().namespace();
        let network = |name: &String| serde_json::json!({"name": name, "namespace": namespace});
        let networks: serde_json::Value = attachments.iter().map(network).collect();
        (annotations::NETWORKS.to_owned(), networks.to_string())
    });
    let hash = config_hash.map(|hash| (annotations::CONFIG_HASH.to_owned(), hash));
    let all: BTreeMap<_, _> = hash.into_iter().chain(networks).collect();
    (!all.is_empty()).then_some(all)
}

/// A pod of an instance, without its containers: on nodes with the entry's labels, spread over them, as `user`, without a token of
/// its account and without variables for every Service of the namespace.
#[must_use]
pub fn spec(instance: &Instance<'_>, user: i64) -> PodSpec {
    PodSpec {
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        node_selector: node_selector(instance),
        security_context: Some(security(user)),
        topology_spread_constraints: Some(vec![TopologySpreadConstraint {
            max_skew: 1,
            topology_key: "kubernetes.io/hostname".to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            label_selector: Some(instance.selector()),
            ..TopologySpreadConstraint::default()
        }]),
        ..PodSpec::default()
    }
}

/// The nodes that may run an instance's pods; `None`: any.
#[must_use]
pub fn node_selector(instance: &Instance<'_>) -> Option<BTreeMap<String, String>> {
    let node_labels = instance.entry().node_labels();
    let selector = || {
        node_labels
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    };
    (!node_labels.is_empty()).then(selector)
}

/// What a pod may do: nothing as root, and only the system calls of the runtime's default profile.
#[must_use]
pub fn security(user: i64) -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(user),
        run_as_group: Some(user),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        ..PodSecurityContext::default()
    }
}

/// Lets processes without capabilities listen on every port of their pod. A pod has a network of its own, so no other is concerned.
#[must_use]
pub fn any_port_is_unprivileged() -> Sysctl {
    Sysctl {
        name: "net.ipv4.ip_unprivileged_port_start".to_owned(),
        value: "0".to_owned(),
    }
}

/// What a container may do: no privileges, no capabilities, no writes to its image.
#[must_use]
pub fn container_security() -> SecurityContext {
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

/// A TCP port on which a container listens.
#[must_use]
pub fn container_port(name: &str, number: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(number),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

/// Asks for a path on a port, by the port's name.
#[must_use]
pub fn http_probe(path: &str, port: &str, period_seconds: i32) -> Probe {
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

/// Asks whether a port, by its name, accepts connections.
#[must_use]
pub fn tcp_probe(port: &str, period_seconds: i32) -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::String(port.to_owned()),
            host: None,
        }),
        period_seconds: Some(period_seconds),
        ..Probe::default()
    }
}

/// What a container requests and may use, by resource and amount. What the entry asks for replaces both.
#[must_use]
pub fn resources(
    asked: Option<&Resources>,
    requests: &[(&str, &str)],
    limits: &[(&str, &str)],
) -> ResourceRequirements {
    let own = |amounts: &[(&str, &str)]| {
        let quantity = |(name, amount): &(&str, &str)| ((*name).to_owned(), Quantity((*amount).to_owned()));
        (!amounts.is_empty()).then(|| amounts.iter().map(quantity).collect())
    };
    let quantities = |amounts: &BTreeMap<LabelKey, String>| {
        let quantity = |(name, amount): (&LabelKey, &String)| (name.to_string(), Quantity(amount.clone()));
        (!amounts.is_empty()).then(|| amounts.iter().map(quantity).collect())
    };
    let (requests, limits) = match asked {
        Some(asked) => (quantities(asked.requests()), quantities(asked.limits())),
        None => (own(requests), own(limits)),
    };
    ResourceRequirements {
        requests,
        limits,
        ..ResourceRequirements::default()
    }
}
