//! The pods of a load balancer, and the `ConfigMap` that they read.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, Container, Lifecycle, LifecycleHandler, PodSecurityContext, PodSpec,
    SleepAction, Volume, VolumeMount,
};

use super::config::{HARD_STOP_SECONDS, digest};
use super::interface::{CONFIG_FILE, HEALTH_PATH, INTERNAL_PORT_NAME, MASTER_SOCKET, MEMBERSHIP_FILE};
use super::plan::Plan;
use super::sidecar;
use crate::pod;

/// SIP's name of the container; with another, its container would stay beside ours.
const HAPROXY_CONTAINER: &str = "loadbalancer";
pub(super) const CONFIG_VOLUME: &str = "haproxy-config";
pub(super) const CONFIG_DIRECTORY: &str = "/usr/local/etc/haproxy";
/// How long a pod serves after it is deleted: no new connections reach it, and those that it has may end by themselves.
const DRAIN_SECONDS: i64 = 30;
/// After the drain, for the images whose stop signal lets connections end too.
const GRACE_SECONDS: i64 = DRAIN_SECONDS + HARD_STOP_SECONDS + 5;
const FIRST_UNPRIVILEGED_PORT: u16 = 1_024;

pub(super) fn config_map(plan: &Plan<'_>, config: &str, membership: Option<String>) -> ConfigMap {
    let config = (CONFIG_FILE.to_owned(), config.to_owned());
    let membership = membership.map(|text| (MEMBERSHIP_FILE.to_owned(), text));
    ConfigMap {
        metadata: plan.instance().metadata(),
        data: Some(std::iter::once(config).chain(membership).collect()),
        ..ConfigMap::default()
    }
}

/// Without a sidecar a new configuration starts new pods.
pub(super) fn deployment(plan: &Plan<'_>, config: &str) -> Deployment {
    let hash = plan.sidecar.is_none().then(|| digest(config));
    pod::deployment(&plan.instance(), hash, pod_spec(plan))
}

fn pod_spec(plan: &Plan<'_>) -> PodSpec {
    let instance = plan.instance();
    let volumes = match plan.sidecar {
        Some(_) => sidecar::volumes(),
        None => vec![config_volume(instance.name())],
    };
    PodSpec {
        service_account_name: plan.sidecar.map(|_| instance.name().to_owned()),
        init_containers: plan
            .sidecar
            .map(|sidecar| vec![sidecar::container(plan, sidecar)]),
        containers: vec![container(plan)],
        security_context: Some(security(plan)),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        volumes: Some(volumes),
        ..pod::spec(&instance, pod::NOBODY_UID)
    }
}

/// HAProxy needs no account, and no capability for the ports below 1,024.
pub(super) fn security(plan: &Plan<'_>) -> PodSecurityContext {
    let privileged = plan
        .ports
        .iter()
        .any(|port| port.number < FIRST_UNPRIVILEGED_PORT);
    PodSecurityContext {
        sysctls: privileged.then(|| vec![pod::any_port_is_unprivileged()]),
        ..pod::security(pod::NOBODY_UID)
    }
}

fn container(plan: &Plan<'_>) -> Container {
    let balanced = plan
        .ports
        .iter()
        .map(|port| pod::container_port(&port.name, port.number));
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
        name: HAPROXY_CONTAINER.to_owned(),
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
                .chain([pod::container_port(INTERNAL_PORT_NAME, plan.internal_port())])
                .collect(),
        ),
        readiness_probe: Some(pod::http_probe(HEALTH_PATH, INTERNAL_PORT_NAME, 5)),
        liveness_probe: Some(pod::http_probe(HEALTH_PATH, INTERNAL_PORT_NAME, 10)),
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
        resources: Some(pod::resources(
            plan.entry.resources(),
            &[("cpu", "50m"), ("memory", "64Mi")],
            &[("memory", "1Gi")],
        )),
        security_context: Some(pod::container_security()),
        volume_mounts: Some(vec![mount]),
        ..Container::default()
    }
}

/// The files of a `ConfigMap`.
pub(super) fn config_volume(config_map: &str) -> Volume {
    Volume {
        name: CONFIG_VOLUME.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: config_map.to_owned(),
            default_mode: Some(0o444),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
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
