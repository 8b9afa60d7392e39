//! Kubernetes Events about objects of the site.

pub use api::events::EventReason;
use api::events::EventType as Type;
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

    /// Publishes an Event on an object, which may name another one too. One that cannot be written is logged and dropped.
    pub async fn publish(
        &self,
        object: &ObjectReference,
        secondary: Option<ObjectReference>,
        reason: EventReason,
        note: &str,
    ) {
        let event = Event {
            type_: match reason.event_type() {
                Type::Normal => EventType::Normal,
                Type::Warning => EventType::Warning,
            },
            reason: reason.to_string(),
            note: Some(readable(note, NOTE)),
            action: reason.to_string(),
            secondary,
        };
        if let Err(error) = self.recorder.publish(&event, object).await {
            tracing::warn!(
                %reason,
                error = &error as &dyn std::error::Error,
                "an event could not be written"
            );
        }
    }
}
