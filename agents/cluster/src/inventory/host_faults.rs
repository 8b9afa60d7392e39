//! Publishes the faults of a `BareMetalHost`'s data as Events on it, for users. The report to the scheduler has them, too.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::BareMetalHost;
use k8s_openapi::api::core::v1::ObjectReference;
use kit::events::{EventReason, Events};
use kube::Resource as _;
use proto::inventory::v1 as wire;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use kit::placement::{HostId, ObjectKey};

use super::first_list::FirstList;

/// Time after which a fault is published. One that has ended by then is not: the watch of hosts often delivers a host before its Secret is listed.
const PUBLISH_DELAY: Duration = Duration::from_secs(2);

/// The faults that are not published yet, by host. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct HostFaults {
    waiting: Arc<Mutex<BTreeMap<ObjectKey, Faults>>>,
    added: Arc<Notify>,
}

/// The faults of one host, for messages.
#[derive(Clone, Debug)]
struct Faults {
    host: HostId,
    since: Instant,
    /// What cannot be read of it, as observed now.
    observed: Vec<String>,
    /// The last fault that the scheduler has found.
    found: Option<String>,
}

impl Faults {
    fn new(host: &HostId, since: Instant) -> Self {
        Self {
            host: host.clone(),
            since,
            observed: Vec::new(),
            found: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.observed.is_empty() && self.found.is_none()
    }

    fn note(&self) -> String {
        let all: Vec<&str> = self
            .observed
            .iter()
            .chain(&self.found)
            .map(String::as_str)
            .collect();
        all.join("; ")
    }
}

impl HostFaults {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Faults>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records what cannot be read of a host, if that has changed since the observation before.
    pub(super) fn observed(&self, host: &HostId, before: &[String], now: &[String]) {
        if now.is_empty() && !self.lock().contains_key(host.key()) {
            return;
        }
        if now.is_empty() || now != before {
            self.change(host, |faults| faults.observed = now.to_vec());
        }
    }

    /// Records a fault that the scheduler has found in the report on a host.
    pub(super) fn record_found(&self, fault: wire::HostFault) {
        let wire::HostFault { host, message } = fault;
        let Some(wire::HostRef { namespace, name, uid }) = host else {
            return;
        };
        let host = HostId::new(ObjectKey { namespace, name }, uid);
        self.change(&host, |faults| faults.found = Some(message));
    }

    fn change(&self, host: &HostId, change: impl FnOnce(&mut Faults)) {
        let mut waiting = self.lock();
        let known = waiting.remove(host.key()).filter(|known| known.host == *host);
        let mut faults = known.unwrap_or_else(|| Faults::new(host, Instant::now()));
        change(&mut faults);
        if !faults.is_empty() {
            waiting.insert(host.key().clone(), faults);
            drop(waiting);
            self.added.notify_one();
        }
    }

    /// Removes the faults of a host that is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// When the next faults are to be published.
    fn next(&self) -> Option<Instant> {
        let since = self.lock().values().map(|faults| faults.since).min();
        since.map(|since| since + PUBLISH_DELAY)
    }

    /// Removes and returns the faults that have lasted for [`PUBLISH_DELAY`].
    fn take(&self, now: Instant) -> Vec<Faults> {
        let mut waiting = self.lock();
        let settled = waiting.extract_if(.., |_, faults| now >= faults.since + PUBLISH_DELAY);
        settled.map(|(_, faults)| faults).collect()
    }

    /// Publishes an Event for each, once every watch in `listed` is complete: before that, Secrets seem to be missing.
    ///
    /// # Errors
    /// None: it runs until it is dropped.
    pub async fn publish(self, events: Events, listed: Vec<FirstList>) -> Result<(), Infallible> {
        for watch in listed {
            watch.wait().await;
        }
        loop {
            let Some(next) = self.next() else {
                self.added.notified().await;
                continue;
            };
            sleep_until(next).await;
            for faults in self.take(Instant::now()) {
                let on = reference(&faults.host);
                events
                    .publish(&on, None, EventReason::InvalidHost, &faults.note())
                    .await;
            }
        }
    }
}

fn reference(host: &HostId) -> ObjectReference {
    let ObjectKey { namespace, name } = host.key().clone();
    ObjectReference {
        api_version: Some(BareMetalHost::api_version(&()).into_owned()),
        kind: Some(BareMetalHost::kind(&()).into_owned()),
        namespace: Some(namespace),
        name: Some(name),
        uid: Some(host.uid().to_owned()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::key;

    fn h1() -> HostId {
        HostId::new(key("h1"), "uid-h1")
    }

    fn observed(faults: &HostFaults, before: &[&str], now: &[&str]) {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        faults.observed(&h1(), &texts(before), &texts(now));
    }

    fn found(faults: &HostFaults, message: &str) {
        let ObjectKey { namespace, name } = h1().key().clone();
        faults.record_found(wire::HostFault {
            host: Some(wire::HostRef {
                namespace,
                name,
                uid: h1().uid().to_owned(),
            }),
            message: message.to_owned(),
        });
    }

    /// What is published when it has settled.
    async fn published(faults: &HostFaults) -> Vec<String> {
        tokio::time::advance(PUBLISH_DELAY).await;
        let taken = faults.take(Instant::now());
        taken.iter().map(Faults::note).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_is_published_once_and_not_once_put_right() {
        let faults = HostFaults::default();
        observed(&faults, &[], &["bad"]);
        assert_eq!(published(&faults).await, ["bad"]);
        observed(&faults, &["bad"], &["bad"]);
        assert!(published(&faults).await.is_empty(), "it was published");
        observed(&faults, &["bad"], &["worse"]);
        assert_eq!(published(&faults).await, ["worse"]);
        observed(&faults, &[], &["bad"]);
        observed(&faults, &["bad"], &[]);
        assert!(published(&faults).await.is_empty(), "it was put right");
        observed(&faults, &[], &["bad"]);
        faults.forget(h1().key());
        assert!(published(&faults).await.is_empty(), "the host is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn each_host_has_its_time_to_settle() {
        let faults = HostFaults::default();
        observed(&faults, &[], &["bad"]);
        tokio::time::advance(PUBLISH_DELAY / 2).await;
        let other = HostId::new(key("h2"), "uid-h2");
        faults.observed(&other, &[], &["missing".to_owned()]);
        assert_eq!(faults.next(), Some(Instant::now() + PUBLISH_DELAY / 2));
        tokio::time::advance(PUBLISH_DELAY / 2).await;
        let taken = faults.take(Instant::now());
        assert_eq!(taken.iter().map(Faults::note).collect::<Vec<_>>(), ["bad"]);
        assert_eq!(faults.next(), Some(Instant::now() + PUBLISH_DELAY / 2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_scheduler_has_found_stands_beside_what_is_observed() {
        let faults = HostFaults::default();
        observed(&faults, &[], &["bad"]);
        found(&faults, "forged");
        assert_eq!(published(&faults).await, ["bad; forged"]);
        found(&faults, "forged");
        observed(&faults, &["bad"], &[]);
        assert_eq!(published(&faults).await, ["forged"]);
        found(&faults, "forged");
        let again = HostId::new(key("h1"), "made again");
        faults.observed(&again, &[], &[]);
        assert!(published(&faults).await.is_empty(), "it is another host");
    }
}
