//! Access to the API server for a container of ours beside a user's image: to read a few objects by name. Only that container mounts the token of
//! the pod's account.

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, DownwardAPIProjection, DownwardAPIVolumeFile, KeyToPath, ObjectFieldSelector,
    ProjectedVolumeSource, ServiceAccount, ServiceAccountTokenProjection, Volume, VolumeMount,
    VolumeProjection,
};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};

use crate::metadata::Instance;

const VOLUME_NAME: &str = "api-access";
/// Where clients of the API server find the token of the pod's account.
const TOKEN_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What the container may do, as its pod's account.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The account whose token the container has.
    pub account: ServiceAccount,
    /// The right to read the objects.
    pub role: Role,
    /// Gives the role to the account.
    pub binding: RoleBinding,
}

/// Objects that may be read and watched.
#[derive(Clone, Debug)]
pub struct ReadableObjects {
    /// Plural of their kind, in the core API group.
    pub resource: &'static str,
    /// Names of the objects.
    pub names: Vec<String>,
}

/// An account of the instance's name that may read these objects of the instance's namespace, and nothing else.
#[must_use]
pub fn access(instance: &Instance<'_>, readable: impl IntoIterator<Item = ReadableObjects>) -> Access {
    let name = instance.name().to_owned();
    let rules = readable
        .into_iter()
        .map(|ReadableObjects { resource, names }| PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec![resource.to_owned()]),
            resource_names: Some(names),
            verbs: ["get", "list", "watch"].map(str::to_owned).into(),
            ..PolicyRule::default()
        });
    Access {
        account: ServiceAccount {
            metadata: instance.metadata(),
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        },
        role: Role {
            metadata: instance.metadata(),
            rules: Some(rules.collect()),
        },
        binding: RoleBinding {
            metadata: instance.metadata(),
            role_ref: RoleRef {
                api_group: Some("rbac.authorization.k8s.io".to_owned()),
                kind: "Role".to_owned(),
                name: name.clone(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name,
                namespace: Some(instance.cluster().namespace().to_owned()),
                ..Subject::default()
            }]),
        },
    }
}

/// The account's token, for the container that mounts it.
#[must_use]
pub fn volume() -> Volume {
    let projection = |path: &str| KeyToPath {
        key: path.to_owned(),
        path: path.to_owned(),
        ..KeyToPath::default()
    };
    let sources = vec![
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
    ];
    Volume {
        name: VOLUME_NAME.to_owned(),
        projected: Some(ProjectedVolumeSource {
            default_mode: Some(0o444),
            sources: Some(sources),
            ..ProjectedVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// Mounts the token where clients of the API server expect it.
#[must_use]
pub fn mount() -> VolumeMount {
    VolumeMount {
        name: VOLUME_NAME.to_owned(),
        mount_path: TOKEN_DIRECTORY.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}
