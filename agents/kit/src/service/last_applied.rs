//! What was applied and still stands: a pass over an unchanged cluster costs no write.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::ResourceExt as _;

use super::{
    existing_ports::trim_service,
    made_for::has_owner_of,
    objects::{Exposed, Objects, Prepared},
    stores::Stores,
};

/// Within this time a watch shows what was applied. If it does not, somebody has changed the object since.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);

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
    exposure: u64,
    service: Arc<Service>,
    configuration: Vec<Option<String>>,
    /// What its pods read.
    written: Option<Written>,
    at: Instant,
    workload: Option<Workload>,
    /// Whether every pod has confirmed the configuration.
    confirmed: bool,
}

/// What runs an instance, since that was applied.
#[derive(Debug)]
struct Workload {
    digest: u64,
    uid: Option<String>,
    generation: Option<i64>,
    versions: Changed,
}

/// What pods of an instance read, as this process has written it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// The version that it had before; `None` if it was not there.
    pub(super) replaced: Option<String>,
    /// The version that the API server gave it.
    pub(super) version: String,
    /// Tells it from any other, as [`Objects::config_digest`] does.
    pub(super) digest: String,
}

impl Written {
    /// Whether this is the newest version known, given the version that a watch shows: this one, or the one that it has replaced.
    fn is_newest(&self, shown: Option<&str>) -> bool {
        shown == Some(self.version.as_str()) || shown == self.replaced.as_deref()
    }
}

/// An instance whose Service and configuration stand as they were applied.
#[derive(Debug)]
pub(super) struct Unchanged {
    pub(super) service: Service,
    /// When they were applied.
    pub(super) at: Instant,
}

impl LastApplied {
    /// The Service of an instance, if it and the configuration stand as they were applied last.
    pub(super) fn exposure(&self, stores: &Stores, objects: &Objects<Prepared>) -> Option<Unchanged> {
        let service = stores.service(objects)?;
        let configuration = stores.configuration(objects);
        let known = self.known();
        let last = known.instances.get(&key(objects))?;
        let same = last.exposure == objects.exposure_digest()
            && last.service.resource_version() == service.resource_version()
            && last.configuration == configuration
            && configuration.iter().all(Option::is_some);
        same.then(|| Unchanged {
            service: Service::clone(&service),
            at: last.at,
        })
    }

    /// The versions of the configuration of an instance when it was applied last, in the order of its children.
    pub(super) fn configuration(&self, objects: &Objects<Prepared>) -> Vec<Option<String>> {
        let known = self.known();
        let last = known.instances.get(&key(objects));
        last.map(|last| last.configuration.clone()).unwrap_or_default()
    }

    /// What pods of an instance read, if this process has made the last write of it. `shown`: the version that a watch shows.
    pub(super) fn written(&self, namespace: &str, instance: &str, shown: Option<&str>) -> Option<Written> {
        let known = self.known();
        let last = known
            .instances
            .get(&(namespace.to_owned(), instance.to_owned()))?;
        let written = last.written.as_ref();
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
        let workload = known.instances.get_mut(&key(objects))?.workload.as_mut()?;
        let same = workload.digest == objects.workload_digest()
            && workload.generation == deployment.metadata.generation
            && has_owner_of(&deployment, objects.deployment())
            && workload.versions.stands(&versions, Instant::now());
        same.then(|| Deployment::clone(&deployment))
    }

    /// Records Service and configuration as they are after they were applied.
    pub(super) fn record_exposure(
        &self,
        objects: &Objects<Prepared>,
        service: &Service,
        configuration: Vec<Option<String>>,
        written: Option<Written>,
        at: Instant,
    ) {
        let mut service = service.clone();
        trim_service(&mut service);
        let mut known = self.known();
        let workload = known
            .instances
            .remove(&key(objects))
            .and_then(|last| last.workload);
        let last = Last {
            exposure: objects.exposure_digest(),
            service: Arc::new(service),
            configuration,
            written,
            at,
            workload,
            confirmed: false,
        };
        known.instances.insert(key(objects), last);
    }

    /// Records what runs an instance, as it is after it was applied. `before`: what the watches had shown until then.
    pub(super) fn record_workload(
        &self,
        objects: &Objects<Exposed>,
        deployment: &Deployment,
        before: Vec<Option<String>>,
        now: Vec<Option<String>>,
    ) {
        if let Some(last) = self.known().instances.get_mut(&key(objects)) {
            last.workload = Some(Workload {
                digest: objects.workload_digest(),
                uid: deployment.uid(),
                generation: deployment.metadata.generation,
                versions: Changed {
                    before,
                    now,
                    at: Instant::now(),
                },
            });
        }
    }

    /// Whether this process has applied a later version of a Deployment than the shown one, or another one of its name.
    pub(super) fn is_outdated(&self, shown: &Deployment) -> bool {
        let known = self.known();
        let key = (shown.namespace().unwrap_or_default(), shown.name_any());
        let last = known.instances.get(&key).and_then(|last| last.workload.as_ref());
        last.is_some_and(|last| last.uid != shown.uid() || last.generation > shown.metadata.generation)
    }

    /// Whether every pod has confirmed the configuration.
    pub(super) fn is_confirmed<State>(&self, objects: &Objects<State>) -> bool {
        let known = self.known();
        known
            .instances
            .get(&key(objects))
            .is_some_and(|last| last.confirmed)
    }

    /// Records that every pod has confirmed the configuration.
    pub(super) fn confirm<State>(&self, objects: &Objects<State>) {
        if let Some(last) = self.known().instances.get_mut(&key(objects)) {
            last.confirmed = true;
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
            exposure: 0,
            service: Arc::new(service),
            configuration: Vec::new(),
            written: None,
            at: Instant::now(),
            workload: None,
            confirmed: false,
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

/// The versions after an apply and those before it, which a watch may show for a while.
#[derive(Debug)]
struct Changed {
    before: Vec<Option<String>>,
    now: Vec<Option<String>>,
    at: Instant,
}

impl Changed {
    /// Whether the watches show the versions after the apply, or, while they may lag, those before.
    fn stands(&mut self, shown: &[Option<String>], now: Instant) -> bool {
        if shown == self.now {
            self.before = shown.to_vec();
            return true;
        }
        let lag = now.saturating_duration_since(self.at) < SHOWN_WITHIN;
        let each = shown.iter().zip(&self.now).zip(&self.before);
        shown.len() == self.now.len()
            && each
                .into_iter()
                .all(|((shown, now), before)| shown == now || (lag && shown == before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn versions(budget: Option<&str>, policy: Option<&str>) -> Vec<Option<String>> {
        [budget, policy]
            .map(|version| version.map(str::to_owned))
            .to_vec()
    }

    #[test]
    fn what_was_written_is_newest_until_a_watch_shows_another() {
        let written = |replaced: Option<&str>| Written {
            replaced: replaced.map(str::to_owned),
            version: "7".to_owned(),
            digest: "00ff".to_owned(),
        };
        for (replaced, shown, newest) in [
            (Some("5"), Some("7"), true),
            (Some("5"), Some("5"), true),
            (Some("5"), Some("6"), false),
            (Some("5"), Some("8"), false),
            (Some("5"), None, false),
            (None, None, true),
            (None, Some("7"), true),
            (None, Some("6"), false),
        ] {
            assert_eq!(
                written(replaced).is_newest(shown),
                newest,
                "{replaced:?} {shown:?}"
            );
        }
    }

    #[test]
    fn applied_versions_stand_until_a_watch_shows_others() {
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let before = versions(None, Some("1"));
        let now = versions(Some("1"), Some("2"));
        let applied = || Changed {
            before: before.clone(),
            now: now.clone(),
            at: start,
        };

        assert!(applied().stands(&before, later(1)), "nothing is shown yet");
        assert!(
            applied().stands(&versions(Some("1"), Some("1")), later(1)),
            "a part is"
        );
        assert!(applied().stands(&now, later(60)));
        assert!(
            !applied().stands(&before, later(5)),
            "it would have been shown by now"
        );
        assert!(
            !applied().stands(&versions(Some("1"), Some("3")), later(1)),
            "somebody has changed it"
        );
        let mut shown = applied();
        assert!(shown.stands(&now, later(1)));
        assert!(
            !shown.stands(&versions(None, Some("2")), later(2)),
            "it was there, and somebody has deleted it"
        );
    }
}
