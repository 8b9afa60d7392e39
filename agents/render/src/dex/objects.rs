//! The objects that run a provider.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use api::HttpsUrl;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{
    Container, EnvVar, HTTPGetAction, Lifecycle, LifecycleHandler, PodSecurityContext, PodSpec, Probe,
    Secret, SecretVolumeSource, Service, ServiceAccount, SleepAction, Volume, VolumeMount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use sha2::{Digest as _, Sha256};

use super::config::Config;
use super::{Certificate, DOLLAR_VARIABLE, HTTPS_PORT, METRICS_PORT, Plan, SERVICE_PORT, Storage};
use crate::exposure::{self, ExposedPort};
use crate::{guards, pod};

/// Key of the configuration in the Secret.
pub const CONFIG_FILE: &str = "dex.json";
pub(super) const CERTIFICATE_FILE: &str = "tls.crt";
pub(super) const KEY_FILE: &str = "tls.key";
pub(super) const STORAGE_AUTHORITY_FILE: &str = "storage-ca.crt";
pub(super) const CONFIG_DIRECTORY: &str = "/etc/dex";

const PORT_NAME: &str = "https";
const METRICS_PORT_NAME: &str = "metrics";
const VOLUME_NAME: &str = "config";
/// How long a pod serves after it is deleted, so that no new connection reaches it when it ends: Dex ends at once.
const DRAIN_SECONDS: i64 = 15;

/// The objects that run a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct Objects {
    /// Routes users to the pods.
    pub service: Service,
    /// What the pods read: configuration and certificate.
    pub secret: Secret,
    /// `ServiceAccount` of the pods, without any rights.
    pub account: ServiceAccount,
    /// Runs the pods: none as long as the issuer is not known.
    pub deployment: Deployment,
    /// Who may connect to them.
    pub policy: NetworkPolicy,
    /// How many may be evicted at once; `None` with fewer than two.
    pub budget: Option<PodDisruptionBudget>,
    /// Digest of the files in the Secret.
    pub digest: String,
}

/// The objects of a provider.
#[must_use]
pub fn objects(plan: &Plan<'_>) -> Objects {
    let instance = plan.instance();
    let data = data(plan);
    let digest = digest(&data);
    let port = ExposedPort {
        name: PORT_NAME,
        number: SERVICE_PORT,
        target: HTTPS_PORT,
        node_port: plan.entry.node_port().map(NonZeroU16::get),
    };
    let mut deployment = pod::deployment(&instance, Some(digest.clone()), pod_spec(plan));
    if plan.issuer.is_none() {
        deployment.spec.replicas = Some(0);
    }
    Objects {
        service: exposure::service(&instance, std::iter::once(port)),
        secret: Secret {
            metadata: instance.metadata(),
            type_: Some("Opaque".to_owned()),
            data: Some(data),
            ..Secret::default()
        },
        account: ServiceAccount {
            metadata: instance.metadata(),
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        },
        deployment,
        policy: guards::policy(
            &instance,
            Some(HTTPS_PORT..=HTTPS_PORT),
            std::iter::once(METRICS_PORT),
        ),
        budget: guards::budget(&instance),
        digest,
    }
}

fn data(plan: &Plan<'_>) -> BTreeMap<String, ByteString> {
    let Plan {
        site: _,
        cluster: _,
        entry,
        issuer,
        secrets,
        storage,
        certificate,
    } = plan;
    let Certificate {
        chain,
        key,
        bundle: _,
    } = certificate;
    let Storage { authority, .. } = storage;
    // One that cannot be read back is refused before, where it is checked.
    let config = issuer.and_then(|issuer| {
        Config::new(entry.provider(), issuer, secrets, storage)
            .to_text()
            .ok()
    });
    let files = [
        (CONFIG_FILE, config),
        (CERTIFICATE_FILE, Some(chain.clone())),
        (KEY_FILE, Some(key.clone())),
        (STORAGE_AUTHORITY_FILE, authority.clone()),
    ];
    files
        .into_iter()
        // As long as there is no certificate no pod runs.
        .filter_map(|(name, text)| Some((name.to_owned(), text.filter(|text| !text.is_empty())?)))
        .map(|(name, text)| (name, ByteString(text.into_bytes())))
        .collect()
}

/// The files of a provider's Secret. Others may add keys to it, which pods do not read.
const SECRET_FILES: [&str; 4] = [CONFIG_FILE, CERTIFICATE_FILE, KEY_FILE, STORAGE_AUTHORITY_FILE];

/// Digest of the files in the Secret of a provider, which the annotation [`api::annotations::CONFIG_HASH`] of its pods has.
#[must_use]
pub fn digest(data: &BTreeMap<String, ByteString>) -> String {
    let mut hash = Sha256::new();
    let files = data
        .iter()
        .filter(|(name, _)| SECRET_FILES.contains(&name.as_str()));
    for (name, ByteString(bytes)) in files {
        for part in [name.as_bytes(), bytes] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    }
    hex::encode(hash.finalize())
}

/// Whether the Secret of a provider has this certificate.
#[must_use]
pub fn has_certificate(data: &BTreeMap<String, ByteString>, certificate: &Certificate) -> bool {
    let chain = data.get(CERTIFICATE_FILE);
    chain.is_some_and(|ByteString(chain)| chain == certificate.chain.as_bytes())
}

fn pod_spec(plan: &Plan<'_>) -> PodSpec {
    let instance = plan.instance();
    PodSpec {
        service_account_name: Some(instance.name().to_owned()),
        containers: vec![container(plan)],
        security_context: Some(PodSecurityContext {
            // The group that may read the private key.
            fs_group: Some(pod::NOBODY_UID),
            ..pod::security(pod::NOBODY_UID)
        }),
        termination_grace_period_seconds: Some(DRAIN_SECONDS + 15),
        volumes: Some(vec![Volume {
            name: VOLUME_NAME.to_owned(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(instance.name().to_owned()),
                default_mode: Some(0o440),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        }]),
        ..pod::spec(&instance, pod::NOBODY_UID)
    }
}

fn container(plan: &Plan<'_>) -> Container {
    let path = plan.issuer.map(HttpsUrl::path).unwrap_or_default();
    let answers = |document: &str, period: i32| Probe {
        http_get: Some(HTTPGetAction {
            path: Some(format!("{path}{document}")),
            port: IntOrString::String(PORT_NAME.to_owned()),
            scheme: Some("HTTPS".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(5),
        ..Probe::default()
    };
    let variable = |name: &str, value: &str| EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        ..EnvVar::default()
    };
    Container {
        name: "dex".to_owned(),
        image: Some(plan.entry.service().image().to_string()),
        // Ours rather than the image's: those of some releases expand templates first.
        command: Some(vec![
            "dex".to_owned(),
            "serve".to_owned(),
            format!("{CONFIG_DIRECTORY}/{CONFIG_FILE}"),
        ]),
        env: Some(vec![
            variable(DOLLAR_VARIABLE, "$"),
            variable("DEX_EXPAND_ENV", "true"),
        ]),
        ports: Some(vec![
            pod::container_port(PORT_NAME, HTTPS_PORT),
            pod::container_port(METRICS_PORT_NAME, METRICS_PORT),
        ]),
        // Dex answers this path only while it reaches its storage.
        readiness_probe: Some(answers("/healthz", 5)),
        // This path does not need the storage: Dex does not start without it, and continues when it is back.
        liveness_probe: Some(Probe {
            failure_threshold: Some(12),
            ..answers("/.well-known/openid-configuration", 10)
        }),
        lifecycle: Some(Lifecycle {
            // No command, since the image may have none but dex.
            pre_stop: Some(LifecycleHandler {
                sleep: Some(SleepAction {
                    seconds: DRAIN_SECONDS,
                }),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        resources: Some(pod::resources(
            plan.entry.service().resources(),
            &[("cpu", "50m"), ("memory", "64Mi")],
            &[("memory", "512Mi")],
        )),
        security_context: Some(pod::container_security()),
        volume_mounts: Some(vec![VolumeMount {
            name: VOLUME_NAME.to_owned(),
            mount_path: CONFIG_DIRECTORY.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        }]),
        ..Container::default()
    }
}
