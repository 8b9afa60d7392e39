//! The volumes of a jump host's pods, each with where the container of sshd has it.

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, KeyToPath, ProjectedVolumeSource, SecretVolumeSource,
    ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::interface::{
    DIRECTORY, HOME, HOST_KEYS, KUBECONFIG_KEY, POWER_AUDIENCE, POWER_CA, POWER_CA_KEY, POWER_TOKEN, TOOLS,
};
use super::plan::Plan;
use crate::api_access;

const FILES_VOLUME: &str = "files";
const PROGRAMS_VOLUME: &str = "tools";
/// Lifetime of a token for `PowerService`, in seconds; the kubelet renews it before.
const POWER_TOKEN_SECONDS: i64 = 600;

/// A volume, and its mount in the container of sshd.
type Mounted = (Volume, VolumeMount);

/// The volumes of the pod, and the mounts of the container of sshd.
pub(super) fn all(plan: &Plan<'_>) -> (Vec<Volume>, Vec<VolumeMount>) {
    let mut mounted = vec![
        files(),
        writable("home", HOME, "1Gi"),
        writable("tmp", "/tmp", "1Gi"),
        programs(),
    ];
    mounted.extend(host_keys(plan));
    mounted.push(power_token());
    mounted.push(power_ca(plan));
    mounted.extend(plan.jump_host.kubeconfig_secret().map(kubeconfig));
    let (mut volumes, mounts): (Vec<Volume>, Vec<VolumeMount>) = mounted.into_iter().unzip();
    // The sidecar alone mounts it.
    volumes.push(api_access::volume());
    (volumes, mounts)
}

/// The files that the sidecar writes, for the sidecar. They are in memory: among them are private keys.
pub(super) fn files_mount(read_only: bool) -> VolumeMount {
    mount(FILES_VOLUME, DIRECTORY, read_only)
}

/// The programs, for the container that copies them.
pub(super) fn programs_mount(read_only: bool) -> VolumeMount {
    mount(PROGRAMS_VOLUME, TOOLS, read_only)
}

fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

fn empty(name: &str, limit: &str, medium: Option<&str>) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: medium.map(str::to_owned),
            size_limit: Some(Quantity(limit.to_owned())),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn files() -> Mounted {
    (empty(FILES_VOLUME, "8Mi", Some("Memory")), files_mount(true))
}

fn programs() -> Mounted {
    (empty(PROGRAMS_VOLUME, "256Mi", None), programs_mount(true))
}

fn writable(name: &str, path: &str, limit: &str) -> Mounted {
    (empty(name, limit, None), mount(name, path, false))
}

/// Mounts only the host keys of the Secret: that of SIP contains passwords until it is taken over. `None` without a usable key: a volume with an
/// empty list of items contains the whole Secret.
fn host_keys(plan: &Plan<'_>) -> Option<Mounted> {
    let item = |name: &str| KeyToPath {
        key: name.to_owned(),
        path: name.to_owned(),
        ..KeyToPath::default()
    };
    let items: Vec<KeyToPath> = plan.host_keys.names().map(item).collect();
    if items.is_empty() {
        return None;
    }
    let volume = Volume {
        name: "host-keys".to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(plan.instance().name().to_owned()),
            items: Some(items),
            // sshd refuses keys of its own user that others can read; these are root's.
            default_mode: Some(0o440),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    };
    Some((volume, mount("host-keys", HOST_KEYS, true)))
}

fn power_token() -> Mounted {
    let token = ServiceAccountTokenProjection {
        audience: Some(POWER_AUDIENCE.to_owned()),
        expiration_seconds: Some(POWER_TOKEN_SECONDS),
        path: "token".to_owned(),
        ..ServiceAccountTokenProjection::default()
    };
    let volume = Volume {
        name: "power-token".to_owned(),
        projected: Some(ProjectedVolumeSource {
            default_mode: Some(0o440),
            sources: Some(vec![VolumeProjection {
                service_account_token: Some(token),
                ..VolumeProjection::default()
            }]),
            ..ProjectedVolumeSource::default()
        }),
        ..Volume::default()
    };
    (volume, mount("power-token", POWER_TOKEN, true))
}

fn power_ca(plan: &Plan<'_>) -> Mounted {
    let volume = Volume {
        name: "power-ca".to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: plan.instance().name().to_owned(),
            items: Some(vec![KeyToPath {
                key: POWER_CA_KEY.to_owned(),
                path: "ca.crt".to_owned(),
                ..KeyToPath::default()
            }]),
            default_mode: Some(0o444),
            // Optional, so that the pods stay the same whether or not it exists.
            optional: Some(true),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    };
    (volume, mount("power-ca", POWER_CA, true))
}

fn kubeconfig(secret: &str) -> Mounted {
    let volume = Volume {
        name: "kubeconfig".to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            items: Some(vec![KeyToPath {
                key: KUBECONFIG_KEY.to_owned(),
                path: "config".to_owned(),
                ..KeyToPath::default()
            }]),
            default_mode: Some(0o440),
            // People can log in without it.
            optional: Some(true),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    };
    (volume, mount("kubeconfig", &format!("{HOME}/.kube"), true))
}
