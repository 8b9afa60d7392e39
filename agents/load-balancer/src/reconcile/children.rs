//! What was applied and is still as it was: looking at a cluster again costs no write then.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    hash::{DefaultHasher, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Secret, Service},
};
use kube::{
    ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};
use render::load_balancer::Objects;

use super::{
    guards::{self, Guards, Versions},
    shown::{Shown, version},
};

/// The objects of this agent as the API server has them, and what this process applied last.
#[derive(Debug)]
pub struct Children {
    deployments: Store<Deployment>,
    services: Store<Service>,
    secrets: Shown,
    guards: Guards,
    last: Mutex<BTreeMap<(String, String), Last>>,
}

/// One load balancer as it was after the last apply.
#[derive(Debug)]
struct Last {
    exposed: u64,
    service: Option<String>,
    secret: Option<String>,
    at: Instant,
    runs: Option<Runs>,
    /// Whether every pod has been seen to follow it.
    followed: bool,
}

/// What runs it, since that was applied.
#[derive(Debug)]
struct Runs {
    rendered: u64,
    generation: Option<i64>,
    guards: guards::Applied,
}

/// A load balancer whose Service and configuration are as they were applied not long ago.
#[derive(Debug)]
pub(super) struct Unchanged {
    pub(super) service: Service,
    /// When they were applied.
    pub(super) at: Instant,
}

impl Children {
    /// Over watches of the objects.
    #[must_use]
    pub fn new(
        deployments: Store<Deployment>,
        services: Store<Service>,
        secrets: Shown,
        guards: Guards,
    ) -> Self {
        Self {
            deployments,
            services,
            secrets,
            guards,
            last: Mutex::default(),
        }
    }

    /// The Service of a load balancer, as the watch has it.
    pub(super) fn service(&self, objects: &Objects) -> Option<Arc<Service>> {
        self.services.get(&ObjectRef::from_obj(&objects.service))
    }

    /// Every Deployment of a load balancer, as the watch has it.
    pub(super) fn deployments(&self) -> Vec<Arc<Deployment>> {
        self.deployments.state()
    }

    /// Whether the watch has its Deployment: it is one of ours then, by its labels.
    pub(super) fn has_deployment(&self, objects: &Objects) -> bool {
        let deployment = ObjectRef::from_obj(&objects.deployment);
        self.deployments.get(&deployment).is_some()
    }

    /// The Service and the configuration of a load balancer, if they are as they were applied last.
    pub(super) fn exposes(&self, objects: &Objects) -> Option<Unchanged> {
        let service = self.service(objects)?;
        let secret = self.secrets.of(&objects.secret)?;
        let last = self.last();
        let last = last.get(&key(objects))?;
        let same = last.exposed == exposed(objects)
            && last.service == service.resource_version()
            && last.secret == Some(secret);
        same.then(|| Unchanged {
            service: Service::clone(&service),
            at: last.at,
        })
    }

    /// The Deployment of a load balancer, if it and what guards its pods are as they were applied last.
    pub(super) fn runs(&self, objects: &Objects) -> Option<Deployment> {
        let deployment = self.deployments.get(&ObjectRef::from_obj(&objects.deployment))?;
        let guards = self.guards.versions(objects);
        let mut last = self.last();
        let runs = last.get_mut(&key(objects))?.runs.as_mut()?;
        let same = runs.rendered == running(objects)
            && runs.generation == deployment.metadata.generation
            && runs.guards.stands(&guards, Instant::now());
        same.then(|| Deployment::clone(&deployment))
    }

    /// Whether every pod has been seen to follow the configuration.
    pub(super) fn followed(&self, objects: &Objects) -> bool {
        self.last().get(&key(objects)).is_some_and(|last| last.followed)
    }

    /// These are Service and Secret as they are after they were applied.
    pub(super) fn exposed(&self, objects: &Objects, service: &Service, secret: &Secret, at: Instant) {
        let mut all = self.last();
        let runs = all.remove(&key(objects)).and_then(|last| last.runs);
        let last = Last {
            exposed: exposed(objects),
            service: service.resource_version(),
            secret: version(secret),
            at,
            runs,
            followed: false,
        };
        all.insert(key(objects), last);
    }

    /// What guards the pods of a load balancer, as the watches have it.
    pub(super) fn guards(&self, objects: &Objects) -> Versions {
        self.guards.versions(objects)
    }

    /// This is the Deployment, and what guards its pods, as they are after they were applied.
    pub(super) fn deployed(&self, objects: &Objects, deployment: &Deployment, guards: guards::Applied) {
        if let Some(last) = self.last().get_mut(&key(objects)) {
            last.runs = Some(Runs {
                rendered: running(objects),
                generation: deployment.metadata.generation,
                guards,
            });
        }
    }

    /// Every pod follows the configuration.
    pub(super) fn follows(&self, objects: &Objects) {
        if let Some(last) = self.last().get_mut(&key(objects)) {
            last.followed = true;
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

fn exposed(objects: &Objects) -> u64 {
    digest(&(&objects.service, &objects.secret))
}

fn running(objects: &Objects) -> u64 {
    let Objects {
        secret: _,
        service: _,
        config: _,
        deployment,
        budget,
        policy,
        access,
    } = objects;
    digest(&(deployment, budget, policy, access))
}

/// Tells renderings of this process apart; it is never stored.
fn digest(rendered: &impl Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{rendered:?}").as_bytes());
    hasher.finish()
}
