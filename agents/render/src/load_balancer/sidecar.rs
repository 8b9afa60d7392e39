//! The container of ours beside HAProxy: it makes the running HAProxy follow the `ConfigMap`, so that members come and go without
//! a restart. It may read this one `ConfigMap`, and nothing else.

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, Probe, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::interface::REPORT_PORT_NAME;
use super::plan::{Plan, Sidecar};
pub use crate::api_access::Access;
use crate::api_access::{self, ReadableObjects};
use crate::pod;
use crate::running::STARTED_PATH;

const SIDECAR_CONTAINER: &str = "follow-config";
/// What HAProxy reads, and the socket on which its master takes commands.
pub(super) const DIRECTORY_VOLUME: &str = "haproxy";
pub(super) const DIRECTORY: &str = "/run/haproxy";
/// How long connections to a member that leaves may end by themselves.
pub const DRAIN_SECONDS: i64 = 30;

pub(super) fn access(plan: &Plan<'_>) -> Access {
    let instance = plan.instance();
    let config = ReadableObjects {
        resource: "configmaps",
        names: vec![instance.name().to_owned()],
    };
    api_access::access(&instance, [config])
}

/// Starts before HAProxy, ends after it.
pub(super) fn container(plan: &Plan<'_>, Sidecar { image }: &Sidecar) -> Container {
    let arguments = [
        ("--namespace", plan.cluster.namespace().to_owned()),
        ("--config-map", plan.entry.object_name().to_string()),
        ("--directory", DIRECTORY.to_owned()),
        ("--listen", format!("[::]:{}", plan.report_port())),
        ("--drain", format!("{DRAIN_SECONDS}s")),
    ];
    Container {
        name: SIDECAR_CONTAINER.to_owned(),
        image: Some(image.to_string()),
        restart_policy: Some("Always".to_owned()),
        args: Some(
            arguments
                .into_iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect(),
        ),
        ports: Some(vec![pod::container_port(REPORT_PORT_NAME, plan.report_port())]),
        startup_probe: Some(Probe {
            failure_threshold: Some(120),
            ..pod::http_probe(STARTED_PATH, REPORT_PORT_NAME, 1)
        }),
        liveness_probe: Some(pod::http_probe("/healthz", REPORT_PORT_NAME, 10)),
        resources: Some(pod::resources(
            None,
            &[("cpu", "10m"), ("memory", "32Mi")],
            &[("memory", "128Mi")],
        )),
        security_context: Some(pod::container_security()),
        volume_mounts: Some(vec![directory_mount(), api_access::mount()]),
        ..Container::default()
    }
}

pub(super) fn directory_mount() -> VolumeMount {
    VolumeMount {
        name: DIRECTORY_VOLUME.to_owned(),
        mount_path: DIRECTORY.to_owned(),
        ..VolumeMount::default()
    }
}

/// The directory that both containers share, and the account's token, which only the sidecar mounts: the image beside it is the
/// user's.
pub(super) fn volumes() -> Vec<Volume> {
    vec![
        Volume {
            name: DIRECTORY_VOLUME.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource {
                size_limit: Some(Quantity("16Mi".to_owned())),
                ..EmptyDirVolumeSource::default()
            }),
            ..Volume::default()
        },
        api_access::volume(),
    ]
}
