//! What was applied and is still as it was: looking at a cluster again costs no write then.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hasher as _},
    sync::{Mutex, PoisonError},
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
    deployment: Option<i64>,
    at: Instant,
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

    /// The Service and Deployment of a load balancer, if the last apply was of the same objects, is not long ago, and
    /// nobody has changed them since.
    pub(super) fn unchanged(&self, objects: &Objects) -> Option<(Service, Deployment)> {
        let service = self.services.get(&ObjectRef::from_obj(&objects.service))?;
        let deployment = self.deployments.get(&ObjectRef::from_obj(&objects.deployment))?;
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.get(&key(objects))?;
        let same = last.rendered == digest(objects)
            && last.service == service.resource_version()
            && last.deployment == deployment.metadata.generation
            && last.at.elapsed() < REFRESH;
        same.then(|| (Service::clone(&service), Deployment::clone(&deployment)))
    }

    /// These are the objects as they are after an apply.
    pub(super) fn applied(&self, objects: &Objects, service: &Service, deployment: &Deployment) {
        let last = Last {
            rendered: digest(objects),
            service: service.resource_version(),
            deployment: deployment.metadata.generation,
            at: Instant::now(),
        };
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key(objects), last);
    }

    /// The load balancer is gone.
    pub(super) fn removed(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&key);
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
