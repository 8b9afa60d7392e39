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
    objects::{Exposed, Objects, Prepared},
    stores::Stores,
};

/// A watch shows what was applied within this time, or it was changed since.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);

/// By namespace and name of the instance.
pub(super) type Key = (String, String);

/// What this process applied last, by instance.
#[derive(Debug, Default)]
pub(super) struct LastApplied(Mutex<BTreeMap<Key, Last>>);

/// One instance as it was after the last apply.
#[derive(Debug)]
struct Last {
    exposure: u64,
    /// `None`: it was deleted since.
    service: Option<Arc<Service>>,
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
    /// Whether it is the newest that is known, where a watch shows this version: it shows this one, or does not show it yet.
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
        let last = self.last();
        let last = last.get(&key(objects))?;
        let applied = last.service.as_deref()?;
        let same = last.exposure == objects.exposure_digest()
            && applied.resource_version() == service.resource_version()
            && last.configuration == configuration
            && configuration.iter().all(Option::is_some);
        same.then(|| Unchanged {
            service: Service::clone(&service),
            at: last.at,
        })
    }

    /// The versions of the configuration of an instance when it was applied last, in the order of its children.
    pub(super) fn configuration(&self, objects: &Objects<Prepared>) -> Vec<Option<String>> {
        let last = self.last();
        let last = last.get(&key(objects));
        last.map(|last| last.configuration.clone()).unwrap_or_default()
    }

    /// What pods of an instance read, if this process has written it last: `shown` is the version that a watch shows of it.
    pub(super) fn written(&self, namespace: &str, instance: &str, shown: Option<&str>) -> Option<Written> {
        let last = self.last();
        let last = last.get(&(namespace.to_owned(), instance.to_owned()))?;
        let written = last.written.as_ref();
        written.filter(|written| written.is_newest(shown)).cloned()
    }

    /// The Service of an instance as this process has applied it, if a watch does not show that one yet: it shows the version `shown`. One
    /// that was deleted since is none.
    pub(super) fn newer_service(
        &self,
        namespace: &str,
        instance: &str,
        shown: Option<&str>,
    ) -> Option<Arc<Service>> {
        let last = self.last();
        let last = last.get(&(namespace.to_owned(), instance.to_owned()))?;
        let service = last.service.as_ref()?;
        let applied = service.metadata.resource_version.as_deref();
        is_older(shown, applied).then(|| Arc::clone(service))
    }

    /// The Deployment of an instance, if everything that runs it stands as it was applied last.
    pub(super) fn workload<State>(&self, stores: &Stores, objects: &Objects<State>) -> Option<Deployment> {
        let deployment = stores.deployment(objects)?;
        let versions = stores.workload(objects);
        let mut last = self.last();
        let workload = last.get_mut(&key(objects))?.workload.as_mut()?;
        let same = workload.digest == objects.workload_digest()
            && workload.generation == deployment.metadata.generation
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
        let mut all = self.last();
        let workload = all.remove(&key(objects)).and_then(|last| last.workload);
        let last = Last {
            exposure: objects.exposure_digest(),
            service: Some(Arc::new(service)),
            configuration,
            written,
            at,
            workload,
            confirmed: false,
        };
        all.insert(key(objects), last);
    }

    /// Records what runs an instance, as it is after it was applied. `before`: what the watches had shown until then.
    pub(super) fn record_workload(
        &self,
        objects: &Objects<Exposed>,
        deployment: &Deployment,
        before: Vec<Option<String>>,
        now: Vec<Option<String>>,
    ) {
        if let Some(last) = self.last().get_mut(&key(objects)) {
            last.workload = Some(Workload {
                digest: objects.workload_digest(),
                generation: deployment.metadata.generation,
                versions: Changed {
                    before,
                    now,
                    at: Instant::now(),
                },
            });
        }
    }

    /// Whether every pod has confirmed the configuration.
    pub(super) fn is_confirmed<State>(&self, objects: &Objects<State>) -> bool {
        self.last().get(&key(objects)).is_some_and(|last| last.confirmed)
    }

    /// Records that every pod has confirmed the configuration.
    pub(super) fn confirm<State>(&self, objects: &Objects<State>) {
        if let Some(last) = self.last().get_mut(&key(objects)) {
            last.confirmed = true;
        }
    }

    /// The Service of an instance is deleted, if it still is the one that was applied last: `deleted` tells from its version.
    pub(super) fn service_is_deleted(&self, key: &Key, deleted: impl Fn(&str) -> bool) {
        if let Some(last) = self.last().get_mut(key) {
            last.service.take_if(|service| {
                let applied = service.metadata.resource_version.as_deref();
                applied.is_some_and(&deleted)
            });
        }
    }

    /// The versions of all Services as they were applied last.
    pub(super) fn services(&self) -> BTreeMap<Key, String> {
        let last = self.last();
        let services = last.iter().filter_map(|(key, last)| {
            let version = last.service.as_ref()?.resource_version()?;
            Some((key.clone(), version))
        });
        services.collect()
    }

    /// With nothing but the Service of an instance.
    #[cfg(test)]
    pub(super) fn of_service(service: Service) -> Self {
        let key = (service.namespace().unwrap_or_default(), service.name_any());
        let last = Last {
            exposure: 0,
            service: Some(Arc::new(service)),
            configuration: Vec::new(),
            written: None,
            at: Instant::now(),
            workload: None,
            confirmed: false,
        };
        Self(Mutex::new(BTreeMap::from([(key, last)])))
    }

    /// The instance is deleted.
    pub(super) fn forget(&self, namespace: &str, name: &str) {
        self.last().remove(&(namespace.to_owned(), name.to_owned()));
    }

    fn last(&self) -> MutexGuard<'_, BTreeMap<Key, Last>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an object was changed from one version to another. Versions of one object ascend as decimal numbers
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>); `None`: there was none.
pub(super) fn is_older(shown: Option<&str>, applied: Option<&str>) -> bool {
    let number = |version: &str| version.parse::<u64>().ok();
    let Some(applied) = applied.and_then(number) else {
        return false;
    };
    shown.is_none_or(|shown| number(shown).is_some_and(|shown| shown < applied))
}

fn key<State>(objects: &Objects<State>) -> Key {
    (objects.namespace(), objects.name())
}

/// The versions that were applied, and those before: a watch shows these for a while after.
#[derive(Debug)]
struct Changed {
    before: Vec<Option<String>>,
    now: Vec<Option<String>>,
    at: Instant,
}

impl Changed {
    /// Whether the watches show what was applied, or what there was before as long as they may lag.
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
        for (shown, applied, expected) in [
            (Some("9"), Some("10"), true),
            (None, Some("10"), true),
            (Some("10"), Some("10"), false),
            (Some("11"), Some("10"), false),
            (Some("x"), Some("10"), false),
            (Some("9"), Some("x"), false),
            (None, None, false),
        ] {
            assert_eq!(is_older(shown, applied), expected, "{shown:?} {applied:?}");
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
