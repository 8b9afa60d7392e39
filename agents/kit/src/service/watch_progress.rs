//! How far the watch of Services has come. If the watch does not show a Service that this process has applied, it may be behind, or somebody has
//! deleted the Service: only its progress tells which.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::Event;

use super::last_applied::{LastApplied, version};

/// How far the watch of Services has come, by its events.
#[derive(Debug)]
pub(super) struct WatchProgress {
    last_applied: Arc<LastApplied>,
    /// The current list of the watch includes all Services up to this version.
    listed: u64,
}

impl WatchProgress {
    pub(super) fn new(last_applied: Arc<LastApplied>) -> Self {
        Self {
            last_applied,
            listed: 0,
        }
    }

    /// Records an event. To be called after the store has the event and before the event triggers a pass, so that the pass finds the store and
    /// the record consistent.
    pub(super) fn observe(&mut self, event: &Event<Service>) {
        match event {
            // The watch requests its list after this event.
            Event::Init => self.listed = self.last_applied.newest(),
            Event::InitApply(service) => self.listed = self.listed.max(version(service).unwrap_or_default()),
            Event::InitDone => self.last_applied.shows(self.listed),
            Event::Apply(service) => self.shows(service),
            Event::Delete(service) => {
                // The version in the event is that of the deletion.
                self.last_applied.service_is_deleted(service);
                self.shows(service);
            }
        }
    }

    fn shows(&self, service: &Service) {
        self.last_applied.shows(version(service).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str, version: &str) -> Service {
        let metadata = json!({"namespace": "tenant", "name": name, "resourceVersion": version});
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    /// Whether the Service of version 10 still counts where the watch shows none after these events. The API server answered with it before
    /// them. `recorded_first`: it was also recorded before them, and not only after the other objects of its instance were applied.
    fn is_expected_after(events: &[Event<Service>], recorded_first: bool) -> bool {
        let applied = if recorded_first {
            LastApplied::of_service(service("shop", "10"))
        } else {
            LastApplied::default()
        };
        let applied = Arc::new(applied);
        applied.answered(&service("shop", "10"));
        let mut progress = WatchProgress::new(Arc::clone(&applied));
        for event in events {
            progress.observe(event);
        }
        if !recorded_first {
            applied.record_service(service("shop", "10"));
        }
        applied.newer_service("tenant", "shop", None).is_some()
    }

    #[test]
    fn a_service_counts_until_the_watch_has_come_so_far() {
        let list = |services: &[(&str, &str)]| {
            let mut events = vec![Event::Init];
            let services = services
                .iter()
                .map(|(name, version)| Event::InitApply(service(name, version)));
            events.extend(services);
            events
        };
        let whole_list = |services: &[(&str, &str)]| {
            let mut events = list(services);
            events.push(Event::InitDone);
            events
        };
        for (what, events, expected) in [
            ("nothing was shown", vec![], true),
            (
                "an older one was shown",
                vec![Event::Apply(service("other", "9"))],
                true,
            ),
            (
                "one before it was deleted",
                vec![Event::Delete(service("shop", "9"))],
                true,
            ),
            (
                "it was deleted",
                vec![Event::Delete(service("shop", "11"))],
                false,
            ),
            (
                "a later one is shown",
                vec![Event::Apply(service("other", "12"))],
                false,
            ),
            (
                "another has its name",
                vec![Event::Apply(service("shop", "12"))],
                false,
            ),
            ("a list that is not complete", list(&[("other", "12")]), true),
            ("a list without it", whole_list(&[("other", "3")]), false),
            (
                "a list that begins anew",
                [list(&[("other", "12")]), list(&[])].concat(),
                true,
            ),
        ] {
            for recorded_first in [true, false] {
                let found = is_expected_after(&events, recorded_first);
                assert_eq!(found, expected, "{what}; recorded first: {recorded_first}");
            }
        }
    }

    #[test]
    fn nothing_is_kept_of_a_deleted_service() {
        let applied = Arc::new(LastApplied::of_service(service("shop", "10")));
        let mut progress = WatchProgress::new(Arc::clone(&applied));
        progress.observe(&Event::Delete(service("shop", "9")));
        assert_eq!(applied.instances(), 1, "it was made again since");
        progress.observe(&Event::Delete(service("shop", "11")));
        assert_eq!(applied.instances(), 0);
    }
}
