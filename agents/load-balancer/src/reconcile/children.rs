//! What was applied and is still as it was: looking at a cluster again costs no write then.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::{
    ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};
use render::load_balancer::Objects;

/// Objects are applied again after this time though nothing is seen to have changed: Secrets are not watched.
pub const REFRESH: Duration = Duration::from_mins(5);

/// The Deployments and Services of this agent as the API server has them, and what this process applied last.
#[derive(Debug)]
pub struct Children {
    deployments: Store<Deployment>,
    services: Store<Service>,
    last: Mutex<BTreeMap<(String, String), Last>>,
}

/// One load balancer as it was after the last apply.
#[derive(Debug)]
struct Last {
    rendered: u64,
    service: Option<String>,
    at: Instant,
    /// Generation of the Deployment; `None` until what runs the load balancer is applied too.
    deployment: Option<i64>,
}

/// A load balancer whose last apply was of the same objects and is not long ago, and whose Service nobody has changed since.
#[derive(Debug)]
pub(super) struct Unchanged {
    pub(super) service: Service,
    /// When its Service and configuration were applied.
    pub(super) at: Instant,
    /// The Deployment, if that is as it was applied too.
    pub(super) deployment: Option<Deployment>,
}

impl Children {
    /// Over watches of the objects.
    #[must_use]
    pub fn new(deployments: Store<Deployment>, services: Store<Service>) -> Self {
        Self {
            deployments,
            services,
            last: Mutex::default(),
        }
    }

    /// The Service of a load balancer, as the watch has it.
    pub(super) fn service(&self, objects: &Objects) -> Option<Arc<Service>> {
        self.services.get(&ObjectRef::from_obj(&objects.service))
    }

    /// Whether the watch has its Deployment: it is one of ours then, by its labels.
    pub(super) fn has_deployment(&self, objects: &Objects) -> bool {
        let deployment = ObjectRef::from_obj(&objects.deployment);
        self.deployments.get(&deployment).is_some()
    }

    /// What of a load balancer is as it was applied last.
    pub(super) fn unchanged(&self, objects: &Objects) -> Option<Unchanged> {
        let service = self.service(objects)?;
        let last = self.last();
        let last = last.get(&key(objects))?;
        let same = last.rendered == digest(objects)
            && last.service == service.resource_version()
            && last.at.elapsed() < REFRESH;
        let deployment = self.deployments.get(&ObjectRef::from_obj(&objects.deployment));
        let deployment = deployment.filter(|deployment| {
            last.deployment.is_some() && deployment.metadata.generation == last.deployment
        });
        same.then(|| Unchanged {
            service: Service::clone(&service),
            at: last.at,
            deployment: deployment.map(|deployment| Deployment::clone(&deployment)),
        })
    }

    /// This is the Service as it is after it and the configuration were applied.
    pub(super) fn exposed(&self, objects: &Objects, service: &Service, at: Instant) {
        let last = Last {
            rendered: digest(objects),
            service: service.resource_version(),
            at,
            deployment: None,
        };
        self.last().insert(key(objects), last);
    }

    /// This is the Deployment as it is after it was applied for the same objects.
    pub(super) fn runs(&self, objects: &Objects, deployment: &Deployment) {
        if let Some(last) = self.last().get_mut(&key(objects)) {
            last.deployment = deployment.metadata.generation;
        }
    }

    /// The load balancer is gone.
    pub(super) fn removed(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        self.last().remove(&key);
    }

    fn last(&self) -> MutexGuard<'_, BTreeMap<(String, String), Last>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(objects: &Objects) -> (String, String) {
    (
        objects.service.namespace().unwrap_or_default(),
        objects.service.name_any(),
    )
}

/// Tells renderings of this process apart; it is never stored.
fn digest(objects: &Objects) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{objects:?}").as_bytes());
    hasher.finish()
}
