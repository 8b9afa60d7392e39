//! Kubernetes Events about objects of the site.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::message::readable;

/// Longest note that the API server admits, in bytes.
const NOTE: usize = 1024;

/// Publishes Events under the agent's name. Equal ones within a short time are counted, not repeated.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// Events by the controller of that name.
    #[must_use]
    pub fn new(client: Client, controller: &str) -> Self {
        Self {
            recorder: Recorder::new(
                client,
                Reporter {
                    controller: controller.to_owned(),
                    instance: None,
                },
            ),
        }
    }

    /// Publishes an Event of type Normal.
    pub async fn normal(&self, object: &ObjectReference, reason: &str, note: &str) {
        self.publish(object, None, EventType::Normal, reason, note).await;
    }

    /// Publishes an Event of type Normal that names another object too.
    pub async fn normal_related(
        &self,
        object: &ObjectReference,
        related: ObjectReference,
        reason: &str,
        note: &str,
    ) {
        self.publish(object, Some(related), EventType::Normal, reason, note)
            .await;
    }

    /// Publishes an Event of type Warning: a person may have to act.
    pub async fn warning(&self, object: &ObjectReference, reason: &str, note: &str) {
        self.publish(object, None, EventType::Warning, reason, note).await;
    }

    /// An Event that cannot be written is logged and dropped.
    async fn publish(
        &self,
        object: &ObjectReference,
        secondary: Option<ObjectReference>,
        type_: EventType,
        reason: &str,
        note: &str,
    ) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(readable(note, NOTE)),
            action: reason.to_owned(),
            secondary,
        };
        if let Err(error) = self.recorder.publish(&event, object).await {
            tracing::warn!(
                reason,
                error = &error as &dyn std::error::Error,
                "an event could not be written"
            );
        }
    }
}
