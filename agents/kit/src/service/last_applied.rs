//! What was applied and still stands: a pass over an unchanged cluster costs no write.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::ResourceExt as _;

use super::{
    existing_ports::trim_service,
    made_for::has_owner_of,
    objects::{Exposed, Objects, Prepared},
    stores::Stores,
};

mod configuration;
mod workload;

pub(super) use configuration::{Configuration, Written};
pub(super) use workload::Outdated;
use workload::{DeploymentVersion, Workload};

/// By namespace and name of the instance.
pub(super) type Key = (String, String);

/// What this process applied last, and how far the watch of Services has come.
#[derive(Debug, Default)]
pub(super) struct LastApplied(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    instances: BTreeMap<Key, Last>,
    /// The newest version of a Service that the API server has answered to this process.
    answered: u64,
    /// The watch of Services has shown whatever they were up to this version.
    shown: u64,
}

/// One instance as it was after the last apply.
#[derive(Debug)]
struct Last {
    /// Of the Service as it was rendered.
    service_digest: u64,
    service: Arc<Service>,
    configuration: Configuration,
    /// As the API server answered with it last.
    deployment: Option<DeploymentVersion>,
    workload: Option<Workload>,
}

impl Last {
    /// Whether all that runs the instance stands as it was applied last. `shown`: the Deployment and the versions of the other objects that the
    /// watches show. An apply that was refused in part can have changed the Deployment since.
    fn runs(&mut self, digest: u64, shown: (&Deployment, &[Option<String>])) -> bool {
        let is_newest = self.deployment.as_ref() == Some(&DeploymentVersion::from(shown.0));
        let workload = self.workload.as_mut();
        is_newest && workload.is_some_and(|workload| workload.stands(digest, shown))
    }
}

/// An instance whose Service and configuration are on the API server.
#[derive(Debug)]
pub(super) struct Exposure {
    pub(super) service: Service,
    /// When the configuration was applied.
    pub(super) configured_at: Instant,
}

impl LastApplied {
    /// The Service of an instance, if it and the configuration stand as they were applied last.
    pub(super) fn exposure(&self, stores: &Stores, objects: &Objects<Prepared>) -> Option<Exposure> {
        let service = stores.service(objects)?;
        let configuration = stores.configuration(objects);
        let known = self.known();
        let last = known.instances.get(&key(objects))?;
        let same = last.service_digest == objects.service_digest()
            && last.service.resource_version() == service.resource_version()
            && last.configuration.stands(objects, &configuration);
        same.then(|| Exposure {
            service: Service::clone(&service),
            configured_at: last.configuration.at,
        })
    }

    /// The configuration of an instance, if it stands as it was applied last.
    pub(super) fn standing_configuration(
        &self,
        stores: &Stores,
        objects: &Objects<Prepared>,
    ) -> Option<Configuration> {
        let shown = stores.configuration(objects);
        let known = self.known();
        let last = &known.instances.get(&key(objects))?.configuration;
        last.stands(objects, &shown).then(|| last.clone())
    }

    /// The versions of the configuration of an instance when it was applied last, in the order of its children.
    pub(super) fn configuration(&self, objects: &Objects<Prepared>) -> Vec<Option<String>> {
        let known = self.known();
        let last = known.instances.get(&key(objects));
        last.map(|last| last.configuration.versions.clone())
            .unwrap_or_default()
    }

    /// What pods of an instance read, if this process has made the last write of it. `shown`: the version that a watch shows.
    pub(super) fn written(&self, namespace: &str, instance: &str, shown: Option<&str>) -> Option<Written> {
        let known = self.known();
        let last = known
            .instances
            .get(&(namespace.to_owned(), instance.to_owned()))?;
        let written = last.configuration.written.as_ref();
        written.filter(|written| written.is_newest(shown)).cloned()
    }

    /// The Service of an instance as this process has applied it, if the watch does not show that version yet; `shown` is the version that it
    /// shows. `None` if somebody has deleted the Service since.
    pub(super) fn newer_service(
        &self,
        namespace: &str,
        instance: &str,
        shown: Option<&str>,
    ) -> Option<Arc<Service>> {
        let known = self.known();
        let last = known
            .instances
            .get(&(namespace.to_owned(), instance.to_owned()))?;
        let is_newer = is_newer(version(&last.service)?, shown, known.shown);
        is_newer.then(|| Arc::clone(&last.service))
    }

    /// The Deployment of an instance, if everything that runs it stands as it was applied last.
    pub(super) fn workload<State>(&self, stores: &Stores, objects: &Objects<State>) -> Option<Deployment> {
        let deployment = stores.deployment(objects)?;
        let versions = stores.workload(objects);
        let mut known = self.known();
        let last = known.instances.get_mut(&key(objects))?;
        let same = has_owner_of(&deployment, objects.deployment())
            && last.runs(objects.workload_digest(), (&deployment, &versions));
        same.then(|| Deployment::clone(&deployment))
    }

    /// Records Service and configuration as they are after they were applied.
    pub(super) fn record_exposure(
        &self,
        objects: &Objects<Prepared>,
        service: &Service,
        configuration: Configuration,
    ) {
        let mut service = service.clone();
        trim_service(&mut service);
        let mut known = self.known();
        let before = known.instances.remove(&key(objects));
        let (deployment, workload) = before.map_or((None, None), |last| (last.deployment, last.workload));
        let last = Last {
            service_digest: objects.service_digest(),
            service: Arc::new(service),
            configuration,
            deployment,
            workload,
        };
        known.instances.insert(key(objects), last);
    }

    /// Records the Deployment of an instance as the API server answered with it, whatever becomes of the other objects.
    pub(super) fn record_deployment(&self, objects: &Objects<Exposed>, deployment: &Deployment) {
        if let Some(last) = self.known().instances.get_mut(&key(objects)) {
            last.deployment = Some(DeploymentVersion::from(deployment));
        }
    }

    /// Records what runs an instance, as it is after all of it was applied. `before`: what the watches had shown until then.
    pub(super) fn record_workload(
        &self,
        objects: &Objects<Exposed>,
        deployment: &Deployment,
        before: Vec<Option<String>>,
        now: Vec<Option<String>>,
    ) {
        if let Some(last) = self.known().instances.get_mut(&key(objects)) {
            last.workload = Some(Workload::applied(
                objects.workload_digest(),
                deployment,
                before,
                now,
            ));
        }
    }

    /// Why what a watch shows of a Deployment is not what the API server answered to this process last. `None`: it is as new.
    pub(super) fn outdated(&self, shown: &Deployment) -> Option<Outdated> {
        let known = self.known();
        let key = (shown.namespace().unwrap_or_default(), shown.name_any());
        let last = known.instances.get(&key);
        last?
            .deployment
            .as_ref()?
            .outdated(&DeploymentVersion::from(shown))
    }

    /// Whether every pod has confirmed the configuration.
    pub(super) fn is_confirmed<State>(&self, objects: &Objects<State>) -> bool {
        let known = self.known();
        known
            .instances
            .get(&key(objects))
            .is_some_and(|last| last.configuration.confirmed)
    }

    /// Records that every pod has confirmed the configuration.
    pub(super) fn confirm<State>(&self, objects: &Objects<State>) {
        if let Some(last) = self.known().instances.get_mut(&key(objects)) {
            last.configuration.confirmed = true;
        }
    }

    /// The API server has answered with this Service.
    pub(super) fn answered(&self, service: &Service) {
        let mut known = self.known();
        known.answered = known.answered.max(version(service).unwrap_or_default());
    }

    /// The newest version of any Service that is known: a list made from now on is not older.
    pub(super) fn newest(&self) -> u64 {
        let known = self.known();
        known.answered.max(known.shown)
    }

    /// Records that the watch has shown all Services up to this version.
    pub(super) fn shows(&self, version: u64) {
        let mut known = self.known();
        known.shown = known.shown.max(version);
    }

    /// Removes an instance whose Service the watch shows as deleted; its other objects are deleted with it.
    pub(super) fn service_is_deleted(&self, deleted: &Service) {
        let key = (deleted.namespace().unwrap_or_default(), deleted.name_any());
        let mut known = self.known();
        let is_gone = |last: &Last| version(&last.service) <= version(deleted);
        if known.instances.get(&key).is_some_and(is_gone) {
            known.instances.remove(&key);
        }
    }

    /// With nothing but the Service of an instance.
    #[cfg(test)]
    pub(super) fn of_service(service: Service) -> Self {
        let applied = Self::default();
        applied.record_service(service);
        applied
    }

    /// How many instances there are.
    #[cfg(test)]
    pub(super) fn instances(&self) -> usize {
        self.known().instances.len()
    }

    /// Records nothing but the Service of an instance.
    #[cfg(test)]
    pub(super) fn record_service(&self, service: Service) {
        let key = (service.namespace().unwrap_or_default(), service.name_any());
        let last = Last {
            service_digest: 0,
            service: Arc::new(service),
            configuration: Configuration::none(),
            deployment: None,
            workload: None,
        };
        self.known().instances.insert(key, last);
    }

    /// The instance is deleted.
    pub(super) fn forget(&self, namespace: &str, name: &str) {
        self.known()
            .instances
            .remove(&(namespace.to_owned(), name.to_owned()));
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The version of a Service as a number. Versions of one kind of objects ascend as decimal numbers
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>).
pub(super) fn version(service: &Service) -> Option<u64> {
    number(service.metadata.resource_version.as_deref()?)
}

fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// Whether an applied Service is newer than what the watch shows: an older version, or none while the watch has not reached its version.
fn is_newer(applied: u64, shown: Option<&str>, up_to: u64) -> bool {
    match shown {
        Some(shown) => number(shown).is_some_and(|shown| shown < applied),
        None => up_to < applied,
    }
}

fn key<State>(objects: &Objects<State>) -> Key {
    (objects.namespace(), objects.name())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_edit_taken_back_after_a_refusal_is_applied() {
        let deployment = |generation: i64| -> Deployment {
            let metadata = json!({"uid": "a", "generation": generation});
            let deployment = json!({"metadata": metadata, "spec": {"selector": {}, "template": {}}});
            serde_json::from_value(deployment).unwrap()
        };
        let (before, edited) = (deployment(5), deployment(6));
        let mut last = Last {
            service_digest: 0,
            service: Arc::new(Service::default()),
            configuration: Configuration::none(),
            deployment: Some(DeploymentVersion::from(&before)),
            workload: Some(Workload::applied(7, &before, Vec::new(), Vec::new())),
        };
        assert!(last.runs(7, (&before, &[])));
        // The Deployment of an edit was applied, and another object of it was refused.
        last.deployment = Some(DeploymentVersion::from(&edited));
        assert!(!last.runs(7, (&edited, &[])));
        assert!(!last.runs(7, (&before, &[])), "the watch lags");
    }

    #[test]
    fn a_watch_that_lags_shows_an_older_version() {
        for (shown, up_to, expected) in [
            (Some("9"), 9, true),
            // The store is a moment behind its watch.
            (Some("9"), 10, true),
            (Some("10"), 10, false),
            (Some("11"), 11, false),
            (Some("x"), 9, false),
            (None, 9, true),
            (None, 10, false),
            (None, 11, false),
        ] {
            assert_eq!(is_newer(10, shown, up_to), expected, "{shown:?} {up_to}");
        }
    }
}
