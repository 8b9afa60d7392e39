//! The check of a template by the image's own haproxy: a Job that runs once, and a `ConfigMap` with what it reads.

use std::collections::BTreeMap;

use api::{Cluster, labels};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Container, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sha2::{Digest as _, Sha256};

use super::member::{Member, sort_unique};
use super::plan::Plan;
use super::pods;
use super::template::{Error, Template};
use crate::pod;

/// Number of hexadecimal digits that identify a check in its namespace.
const ID_DIGITS: usize = 24;
/// Seconds after which a check that has not completed fails: its image cannot be pulled, or no node runs it.
const DEADLINE_SECONDS: i64 = 120;
/// Seconds after which Kubernetes deletes a check that has ended.
const TTL_SECONDS: i32 = 60;
/// Maximum size of all configurations of a check, in bytes: a `ConfigMap` holds 1 MiB.
const MAX_TOTAL_BYTES: usize = 900_000;

/// Checks one template with one image for one load balancer. Which of the three it is, is in its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Identifies the check in its namespace.
    pub id: String,
    /// Apply it first: it owns the `ConfigMap`.
    pub job: Job,
    config_map: ConfigMap,
}

impl Check {
    /// What the Job reads, owned by the Job that has this uid.
    #[must_use]
    pub fn config_map(&self, job_uid: &str) -> ConfigMap {
        let mut config_map = self.config_map.clone();
        config_map.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "batch/v1".to_owned(),
            kind: "Job".to_owned(),
            name: name(&self.id),
            uid: job_uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        }]);
        config_map
    }

    /// A line of what the Job reads, from 1.
    #[must_use]
    pub fn line(&self, file: &str, number: usize) -> Option<&str> {
        let text = self.config_map.data.as_ref()?.get(file)?;
        text.split('\n').nth(number.checked_sub(1)?)
    }
}

/// Name of the objects of a check.
fn name(id: &str) -> String {
    format!("loadbalancer-check-{id}")
}

/// Checks the configuration with the current members, and as far as they fit those without members, with hosts of every kind, and with the other
/// values of what tenants can choose: members and choices change without another check.
pub(super) fn check(plan: &Plan<'_>, members: &[Member], template: &Template) -> Result<Check, Error> {
    let image = plan.entry.image().as_str();
    let mut hasher = Sha256::new();
    for part in [plan.entry.object_name().as_str(), image, template.digest()] {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    let digest = hex::encode(hasher.finalize());
    let id = digest.get(..ID_DIGITS).unwrap_or(&digest).to_owned();
    let labels = labels(plan, &id);
    let metadata = ObjectMeta {
        name: Some(name(&id)),
        labels: Some(labels.clone()),
        ..plan.instance().metadata()
    };
    let mut configs: Vec<(&str, String)> = Vec::new();
    let mut together = 0;
    let (sample, otherwise) = (sample_members(plan.cluster), plan.with_other_choices());
    let chosen = format!(
        " (with three servers, balance {}, proxy_protocol {})",
        otherwise.balance.as_str(),
        otherwise.proxy_protocol
    );
    for (case, with, plan, members) in [
        ("members", "", plan, members),
        ("none", " (with no servers)", plan, &[]),
        ("sample", " (with three servers)", plan, &sample),
        ("otherwise", &chosen, &otherwise, &sample),
    ] {
        let config = template
            .config(plan, &sort_unique(members))
            .map_err(|error| error.with_servers(with))?;
        together += config.len();
        if configs.is_empty() || together <= MAX_TOTAL_BYTES {
            configs.push((case, config));
        }
    }
    Ok(Check {
        job: job(plan, metadata.clone(), labels, &configs),
        config_map: ConfigMap {
            metadata,
            data: Some(
                configs
                    .into_iter()
                    .map(|(case, config)| (file(case), config))
                    .collect(),
            ),
            ..ConfigMap::default()
        },
        id,
    })
}

/// Hosts of one name in two namespaces, of both families, one of them a backup; nothing connects to these addresses.
fn sample_members(cluster: &Cluster) -> Vec<Member> {
    [
        ("a", "node-1", [192, 0, 2, 1].into(), false),
        ("a", "node-2", [192, 0, 2, 2].into(), true),
        ("b", "node-1", [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(), false),
    ]
    .map(|(namespace, name, address, is_backup)| Member {
        namespace: format!("{}-{namespace}", cluster.namespace()),
        name: name.to_owned(),
        address,
        is_backup,
    })
    .into()
}

fn file(case: &str) -> String {
    format!("{case}.cfg")
}

/// Those of the load balancer's pods, with another name: no selector of a load balancer selects a check.
fn labels(plan: &Plan<'_>, id: &str) -> BTreeMap<String, String> {
    let mut labels = plan.instance().labels();
    let own = [
        (labels::NAME, labels::NAME_CHECK),
        (labels::CLUSTER_NAME, plan.cluster.name()),
        (labels::TEMPLATE_CHECK, id),
    ];
    labels.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels
}

fn job(
    plan: &Plan<'_>,
    metadata: ObjectMeta,
    on_pod: BTreeMap<String, String>,
    configs: &[(&str, String)],
) -> Job {
    let volume = pods::config_volume(metadata.name.as_deref().unwrap_or_default());
    Job {
        spec: Some(JobSpec {
            backoff_limit: Some(0),
            active_deadline_seconds: Some(DEADLINE_SECONDS),
            ttl_seconds_after_finished: Some(TTL_SECONDS),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(on_pod),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec {
                    restart_policy: Some("Never".to_owned()),
                    automount_service_account_token: Some(false),
                    enable_service_links: Some(false),
                    // Where the load balancer runs, since an image may not run everywhere.
                    node_selector: pod::node_selector(&plan.instance()),
                    security_context: Some(pods::security(plan)),
                    containers: configs.iter().map(|(case, _)| container(plan, case)).collect(),
                    volumes: Some(vec![volume]),
                    ..PodSpec::default()
                }),
            },
            ..JobSpec::default()
        }),
        metadata,
        ..Job::default()
    }
}

fn container(plan: &Plan<'_>, case: &str) -> Container {
    let config = format!("{}/{}", pods::CONFIG_DIRECTORY, file(case));
    Container {
        name: case.to_owned(),
        image: Some(plan.entry.image().to_string()),
        command: Some(["haproxy", "-c", "-f", &config].map(str::to_owned).into()),
        // Haproxy's output is read from the pod's status; no right to read logs is needed.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        resources: Some(pod::resources(
            None,
            &[("cpu", "10m"), ("memory", "64Mi")],
            &[("cpu", "1"), ("memory", "1Gi")],
        )),
        security_context: Some(pod::container_security()),
        volume_mounts: Some(vec![pods::config_mount()]),
        ..Container::default()
    }
}
