//! Kubernetes Events about objects of the site.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

pub use api::events::EventReason;
use api::events::EventType as Type;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::message::readable;

/// Bytes of a note that the API server admits.
const MAX_NOTE_BYTES: usize = 1024;
/// Time for which a recorder counts equal Events as one series.
const SERIES_DURATION: Duration = Duration::from_mins(6);
/// Notes whose Events are counted, at most. Beyond that, some Events are repeated instead.
const MAX_NOTES: usize = 4_096;

/// Publishes Events under the agent's name. Equal ones within a short time are counted, not repeated.
#[derive(Clone)]
pub struct Events {
    client: Client,
    reporter: Reporter,
    recorders: Arc<Mutex<Recorders>>,
}

/// A recorder for each note: one recorder counts the Events of an object and reason under the note of the first, whatever they state.
#[derive(Default)]
struct Recorders(HashMap<String, (Recorder, Instant)>);

impl Recorders {
    fn for_note(&mut self, note: &str, now: Instant, new: impl FnOnce() -> Recorder) -> Recorder {
        if let Some((known, used)) = self.0.get_mut(note) {
            *used = now;
            return known.clone();
        }
        if self.0.len() >= MAX_NOTES {
            self.0
                .retain(|_, (_, used)| now.saturating_duration_since(*used) < SERIES_DURATION);
        }
        if self.0.len() >= MAX_NOTES {
            self.0.clear();
        }
        let recorder = new();
        self.0.insert(note.to_owned(), (recorder.clone(), now));
        recorder
    }
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
            client,
            reporter: Reporter {
                controller: controller.to_owned(),
                instance: None,
            },
            recorders: Arc::default(),
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
        let note = readable(note, MAX_NOTE_BYTES);
        let recorder = self.recorder(&note);
        let event = Event {
            type_: match reason.event_type() {
                Type::Normal => EventType::Normal,
                Type::Warning => EventType::Warning,
            },
            reason: reason.to_string(),
            note: Some(note),
            action: reason.to_string(),
            secondary,
        };
        if let Err(error) = recorder.publish(&event, object).await {
            tracing::warn!(
                %reason,
                error = &error as &dyn std::error::Error,
                "an event could not be written"
            );
        }
    }

    fn recorder(&self, note: &str) -> Recorder {
        let mut recorders = self.recorders.lock().unwrap_or_else(PoisonError::into_inner);
        recorders.for_note(note, Instant::now(), || {
            Recorder::new(self.client.clone(), self.reporter.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::Value;

    use super::*;

    /// The method, the Event's note and how often it is counted.
    type Asked = (Method, String, Option<u64>);

    /// An API server that stores everything. Returns what it is asked for.
    fn api_server() -> (Client, Arc<Mutex<Vec<Asked>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let log = Arc::clone(&log);
            async move {
                let method = request.method().clone();
                let body = request.into_body().collect_bytes().await?;
                let event: Value = serde_json::from_slice(&body)?;
                let note = event["note"].as_str().unwrap().to_owned();
                log.lock()
                    .unwrap()
                    .push((method, note, event["series"]["count"].as_u64()));
                Ok::<_, tower::BoxError>(Response::new(Body::from(body.to_vec())))
            }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test]
    async fn only_events_with_the_same_note_are_counted() {
        let (client, asked) = api_server();
        let events = Events::new(client, "test");
        let object = ObjectReference {
            name: Some("h1".to_owned()),
            ..ObjectReference::default()
        };
        for note in ["first", "second", "first"] {
            events
                .publish(&object, None, EventReason::InvalidHost, note)
                .await;
        }
        let of = |method, note: &str, count| (method, note.to_owned(), count);
        assert_eq!(
            *asked.lock().unwrap(),
            [
                of(Method::POST, "first", None),
                of(Method::POST, "second", None),
                of(Method::PATCH, "first", Some(2)),
            ]
        );
    }

    #[tokio::test]
    async fn notes_are_known_for_a_time_and_in_a_number() {
        let (client, _) = api_server();
        let new = || Recorder::new(client.clone(), "test".into());
        let (mut recorders, start) = (Recorders::default(), Instant::now());
        for number in 0..MAX_NOTES {
            recorders.for_note(&number.to_string(), start, new);
        }
        recorders.for_note("0", start + SERIES_DURATION, new);
        recorders.for_note("next", start + SERIES_DURATION, new);
        assert_eq!(recorders.0.len(), 2, "of the others none is counted any more");
        for number in 0..MAX_NOTES {
            recorders.for_note(&number.to_string(), start + SERIES_DURATION, new);
        }
        assert!(recorders.0.len() <= MAX_NOTES);
    }
}
