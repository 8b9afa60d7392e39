//! The container of ours beside HAProxy: it makes the running HAProxy follow the Secret, so that members come and go without
//! a restart. It may read this one Secret, and nothing else.

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, Container, DownwardAPIProjection, DownwardAPIVolumeFile, EmptyDirVolumeSource,
    KeyToPath, ObjectFieldSelector, Probe, ProjectedVolumeSource, ServiceAccount,
    ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::interface::REPORT_PORT_NAME;
use super::plan::{Plan, Sidecar};
use super::running::STARTED_PATH;
use crate::pod;

const CONTAINER: &str = "follow-config";
/// What HAProxy reads, and the socket on which its master takes commands.
pub(super) const DIRECTORY_VOLUME: &str = "haproxy";
pub(super) const DIRECTORY: &str = "/run/haproxy";
const TOKEN_VOLUME: &str = "api-access";
/// Where clients of the API server find the token of the pod's account.
const TOKEN_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// How long connections to a member that leaves may end by themselves.
pub const DRAIN_SECONDS: i64 = 30;

/// What the container may do, as its pod's account.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// Whose token the container has.
    pub account: ServiceAccount,
    /// Reading the Secret with the configuration.
    pub role: Role,
    /// The account has the role.
    pub binding: RoleBinding,
}

pub(super) fn access(plan: &Plan<'_>) -> Access {
    let name = plan.entry.object_name().to_string();
    Access {
        account: ServiceAccount {
            metadata: plan.instance().metadata(),
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        },
        role: Role {
            metadata: plan.instance().metadata(),
            rules: Some(vec![PolicyRule {
                api_groups: Some(vec![String::new()]),
                resources: Some(vec!["secrets".to_owned()]),
                resource_names: Some(vec![name.clone()]),
                verbs: ["get", "list", "watch"].map(str::to_owned).into(),
                ..PolicyRule::default()
            }]),
        },
        binding: RoleBinding {
            metadata: plan.instance().metadata(),
            role_ref: RoleRef {
                api_group: Some("rbac.authorization.k8s.io".to_owned()),
                kind: "Role".to_owned(),
                name: name.clone(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name,
                namespace: Some(plan.cluster.namespace().to_owned()),
                ..Subject::default()
            }]),
        },
    }
}

/// Starts before HAProxy, ends after it.
pub(super) fn container(plan: &Plan<'_>, Sidecar { image }: &Sidecar) -> Container {
    let arguments = [
        ("--namespace", plan.cluster.namespace().to_owned()),
        ("--secret", plan.entry.object_name().to_string()),
        ("--directory", DIRECTORY.to_owned()),
        ("--listen", format!("[::]:{}", plan.report_port())),
        ("--drain", format!("{DRAIN_SECONDS}s")),
    ];
    Container {
        name: CONTAINER.to_owned(),
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
        volume_mounts: Some(vec![
            directory_mount(),
            VolumeMount {
                name: TOKEN_VOLUME.to_owned(),
                mount_path: TOKEN_DIRECTORY.to_owned(),
                read_only: Some(true),
                ..VolumeMount::default()
            },
        ]),
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
    let projection = |path: &str| KeyToPath {
        key: path.to_owned(),
        path: path.to_owned(),
        ..KeyToPath::default()
    };
    vec![
        Volume {
            name: DIRECTORY_VOLUME.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource {
                size_limit: Some(Quantity("16Mi".to_owned())),
                ..EmptyDirVolumeSource::default()
            }),
            ..Volume::default()
        },
        Volume {
            name: TOKEN_VOLUME.to_owned(),
            projected: Some(ProjectedVolumeSource {
                default_mode: Some(0o444),
                sources: Some(vec![
                    VolumeProjection {
                        service_account_token: Some(ServiceAccountTokenProjection {
                            path: "token".to_owned(),
                            expiration_seconds: Some(3_607),
                            ..ServiceAccountTokenProjection::default()
                        }),
                        ..VolumeProjection::default()
                    },
                    VolumeProjection {
                        config_map: Some(ConfigMapProjection {
                            name: "kube-root-ca.crt".to_owned(),
                            items: Some(vec![projection("ca.crt")]),
                            optional: None,
                        }),
                        ..VolumeProjection::default()
                    },
                    VolumeProjection {
                        downward_api: Some(DownwardAPIProjection {
                            items: Some(vec![DownwardAPIVolumeFile {
                                path: "namespace".to_owned(),
                                field_ref: Some(ObjectFieldSelector {
                                    api_version: Some("v1".to_owned()),
                                    field_path: "metadata.namespace".to_owned(),
                                }),
                                ..DownwardAPIVolumeFile::default()
                            }]),
                        }),
                        ..VolumeProjection::default()
                    },
                ]),
                ..ProjectedVolumeSource::default()
            }),
            ..Volume::default()
        },
    ]
}
