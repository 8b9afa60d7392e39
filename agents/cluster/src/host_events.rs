//! Events on `BareMetalHost`s that a cluster labels or releases. Each is a call of the API server, so a task of its own publishes them, and no
//! label and no status waits for an Event.

use std::convert::Infallible;

use api::{BareMetalHost, SIPCluster};
use k8s_openapi::api::core::v1::ObjectReference;
use kit::{
    events::{EventReason, Events},
    placement::{ClusterId, HostId, ObjectKey},
};
use kube::Resource;
use tokio::sync::mpsc;

/// Events that wait for the API server, at most. Further ones are dropped and logged: labels and statuses have the same information.
const MAX_QUEUED_EVENTS: usize = 4_096;

/// One Event: a cluster has labelled or released a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEvent {
    /// The host.
    pub host: HostId,
    /// The cluster, which the Event names as the related object.
    pub cluster: ClusterId,
    /// The reason of the Event.
    pub reason: EventReason,
    /// For messages.
    pub note: String,
}

/// Queues Events on hosts for the [`Publisher`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HostEvents(mpsc::Sender<HostEvent>);

/// Publishes the queued Events.
#[derive(Debug)]
pub struct Publisher(mpsc::Receiver<HostEvent>);

/// A new queue: its sender and its receiver.
#[must_use]
pub fn queue() -> (HostEvents, Publisher) {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_EVENTS);
    (HostEvents(sender), Publisher(receiver))
}

impl HostEvents {
    /// Queues an Event without waiting; drops and logs it if the queue is full.
    pub fn add(&self, event: HostEvent) {
        if let Err(refused) = self.0.try_send(event) {
            let (mpsc::error::TrySendError::Full(event) | mpsc::error::TrySendError::Closed(event)) = refused;
            let HostEvent { host, reason, .. } = event;
            tracing::debug!(%host, %reason, "an Event on a host was dropped: the queue is full");
        }
    }
}

impl Publisher {
    /// Publishes Events until it is dropped.
    ///
    /// # Errors
    /// None: an Event that cannot be written is logged.
    pub async fn run(mut self, events: Events) -> Result<(), Infallible> {
        while let Some(event) = self.0.recv().await {
            let HostEvent {
                host,
                cluster,
                reason,
                note,
            } = event;
            let on = reference::<BareMetalHost>(host.key(), host.uid());
            let related = reference::<SIPCluster>(cluster.key(), cluster.uid());
            events.publish(&on, Some(related), reason, &note).await;
        }
        // The process ends: the context held the other end.
        std::future::pending().await
    }
}

fn reference<K: Resource<DynamicType = ()>>(key: &ObjectKey, uid: &str) -> ObjectReference {
    let ObjectKey { namespace, name } = key.clone();
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: Some(namespace),
        name: Some(name),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::key;

    #[test]
    fn a_full_queue_drops_events_and_blocks_nobody() {
        let (events, mut publisher) = queue();
        for number in 0..=MAX_QUEUED_EVENTS {
            events.add(HostEvent {
                host: HostId::new(key("h1"), "uid-h1"),
                cluster: ClusterId::new(key("shop"), "uid-shop"),
                reason: EventReason::Labeled,
                note: number.to_string(),
            });
        }
        let waiting = std::iter::from_fn(|| publisher.0.try_recv().ok());
        assert_eq!(waiting.count(), MAX_QUEUED_EVENTS);
        drop(publisher);
        events.add(HostEvent {
            host: HostId::new(key("h1"), "uid-h1"),
            cluster: ClusterId::new(key("shop"), "uid-shop"),
            reason: EventReason::Labeled,
            note: String::new(),
        });
    }
}
