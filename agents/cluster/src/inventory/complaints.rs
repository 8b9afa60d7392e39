//! What could not be read of a host, for people: an Event on the `BareMetalHost`, besides the report to the scheduler.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::BareMetalHost;
use k8s_openapi::api::core::v1::ObjectReference;
use kit::events::Events;
use kube::Resource as _;
use proto::inventory::v1 as wire;
use tokio::sync::Notify;

use super::{Key, Listed};

/// What has been put right within this time is not told: a host is often made before its Secret.
const SETTLED: Duration = Duration::from_secs(2);

/// Hosts of which something new cannot be read, until that is told. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Complaints {
    waiting: Arc<Mutex<BTreeMap<Key, wire::Host>>>,
    noticed: Arc<Notify>,
}

impl Complaints {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, wire::Host>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A host as it is now, and what could not be read of it before.
    pub(super) fn seen(&self, key: &Key, before: &[String], now: &wire::Host) {
        if now.problems.is_empty() {
            self.lock().remove(key);
        } else if now.problems != before {
            self.lock().insert(key.clone(), now.clone());
            self.noticed.notify_one();
        }
    }

    /// The scheduler has found a fault in what a host shows.
    pub(super) fn found(&self, fault: wire::HostFault) {
        let wire::HostFault { host, message } = fault;
        let Some(host) = host else { return };
        let key = Key {
            namespace: host.namespace.clone(),
            name: host.name.clone(),
        };
        let host = wire::Host {
            r#ref: Some(host),
            problems: vec![message],
            ..wire::Host::default()
        };
        self.lock().insert(key, host);
        self.noticed.notify_one();
    }

    /// A host that is gone.
    pub(super) fn gone(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn take(&self) -> BTreeMap<Key, wire::Host> {
        std::mem::take(&mut self.lock())
    }

    /// Publishes an Event for each, once every watch in `listed` is complete: before that, Secrets seem to be missing.
    ///
    /// # Errors
    /// None: it goes on until it is dropped.
    pub async fn tell(self, events: Events, listed: Vec<Listed>) -> Result<(), Infallible> {
        for watch in listed {
            watch.wait().await;
        }
        loop {
            self.noticed.notified().await;
            tokio::time::sleep(SETTLED).await;
            for host in self.take().into_values() {
                let note = host.problems.join("; ");
                events.warning(&reference(host), "InvalidHost", &note).await;
            }
        }
    }
}

fn reference(host: wire::Host) -> ObjectReference {
    let wire::HostRef { namespace, name, uid } = host.r#ref.unwrap_or_default();
    ObjectReference {
        api_version: Some(BareMetalHost::api_version(&()).into_owned()),
        kind: Some(BareMetalHost::kind(&()).into_owned()),
        namespace: Some(namespace),
        name: Some(name),
        uid: Some(uid),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::key;

    fn host(problems: &[&str]) -> wire::Host {
        wire::Host {
            problems: problems.iter().map(|problem| (*problem).to_owned()).collect(),
            ..wire::Host::default()
        }
    }

    #[test]
    fn a_problem_is_told_once_and_not_when_it_has_been_put_right() {
        let complaints = Complaints::default();
        let seen = |before: &[&str], now: &[&str]| {
            complaints.seen(&key("h1"), &host(before).problems, &host(now));
        };
        let told = || {
            complaints
                .take()
                .into_values()
                .map(|host| host.problems)
                .collect::<Vec<_>>()
        };
        seen(&[], &["bad"]);
        assert_eq!(told(), [["bad"]]);
        seen(&["bad"], &["bad"]);
        assert!(told().is_empty(), "it was told");
        seen(&["bad"], &["worse"]);
        assert_eq!(told(), [["worse"]]);
        seen(&[], &["bad"]);
        seen(&["bad"], &[]);
        assert!(told().is_empty(), "it was put right");
        complaints.found(wire::HostFault {
            host: host(&[]).r#ref.or(Some(wire::HostRef {
                name: key("h1").name,
                ..wire::HostRef::default()
            })),
            message: "forged".to_owned(),
        });
        assert_eq!(told(), [["forged"]], "the scheduler has found it");
        seen(&[], &["bad"]);
        complaints.gone(&key("h1"));
        assert!(told().is_empty(), "the host is gone");
    }
}
