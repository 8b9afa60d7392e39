//! What could not be read of a host, for people: an Event on the `BareMetalHost`, besides the report to the scheduler.

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
use tokio::sync::Notify;

use kit::placement::{HostId, ObjectKey};

use super::listed::Listed;

/// What has been put right within this time is not published: a host is often made before its Secret.
const SETTLED: Duration = Duration::from_secs(2);

/// Hosts of which something new cannot be read, until that is published. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct HostFaults {
    waiting: Arc<Mutex<BTreeMap<ObjectKey, Faults>>>,
    added: Arc<Notify>,
}

/// What cannot be read of one host, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Faults {
    host: HostId,
    faults: Vec<String>,
}

impl HostFaults {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Faults>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What cannot be read of a host as it is now, and could not be read of it before.
    pub(super) fn observed(&self, host: &HostId, before: &[String], now: &[String]) {
        if now.is_empty() {
            self.lock().remove(host.key());
        } else if now != before {
            self.add(host.clone(), now.to_vec());
        }
    }

    /// The scheduler has found a fault in what a host shows.
    pub(super) fn found(&self, fault: wire::HostFault) {
        let wire::HostFault { host, message } = fault;
        let Some(wire::HostRef { namespace, name, uid }) = host else {
            return;
        };
        self.add(HostId::new(ObjectKey { namespace, name }, uid), vec![message]);
    }

    fn add(&self, host: HostId, faults: Vec<String>) {
        self.lock().insert(host.key().clone(), Faults { host, faults });
        self.added.notify_one();
    }

    /// A host that is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    fn take(&self) -> BTreeMap<ObjectKey, Faults> {
        std::mem::take(&mut self.lock())
    }

    /// Publishes an Event for each, once every watch in `listed` is complete: before that, Secrets seem to be missing.
    ///
    /// # Errors
    /// None: it goes on until it is dropped.
    pub async fn publish(self, events: Events, listed: Vec<Listed>) -> Result<(), Infallible> {
        for watch in listed {
            watch.wait().await;
        }
        loop {
            self.added.notified().await;
            tokio::time::sleep(SETTLED).await;
            for Faults { host, faults } in self.take().into_values() {
                let note = faults.join("; ");
                events
                    .publish(&reference(&host), None, EventReason::InvalidHost, &note)
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

    #[test]
    fn a_fault_is_published_once_and_not_once_put_right() {
        let faults = HostFaults::default();
        let h1 = HostId::new(key("h1"), "uid-h1");
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let observed = |before: &[&str], now: &[&str]| faults.observed(&h1, &texts(before), &texts(now));
        let published = || {
            let taken = faults.take().into_values();
            taken.map(|faults| faults.faults).collect::<Vec<_>>()
        };
        observed(&[], &["bad"]);
        assert_eq!(published(), [["bad"]]);
        observed(&["bad"], &["bad"]);
        assert!(published().is_empty(), "it was published");
        observed(&["bad"], &["worse"]);
        assert_eq!(published(), [["worse"]]);
        observed(&[], &["bad"]);
        observed(&["bad"], &[]);
        assert!(published().is_empty(), "it was put right");
        faults.found(wire::HostFault {
            host: Some(wire::HostRef {
                name: h1.key().name.clone(),
                ..wire::HostRef::default()
            }),
            message: "forged".to_owned(),
        });
        assert_eq!(published(), [["forged"]], "the scheduler has found it");
        observed(&[], &["bad"]);
        faults.forget(h1.key());
        assert!(published().is_empty(), "the host is gone");
    }
}
