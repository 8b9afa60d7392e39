//! Services that this process has applied and somebody has deleted. A watch that shows no Service may only be behind; so its events are
//! observed.

use std::{collections::BTreeMap, mem, sync::Arc};

use k8s_openapi::api::core::v1::Service;
use kube::{ResourceExt as _, runtime::watcher::Event};

use super::last_applied::{Key, LastApplied, is_older};

/// Records deletions of Services from the events of their watch.
#[derive(Debug)]
pub(super) struct DeletedServices {
    last_applied: Arc<LastApplied>,
    /// Versions that were applied before the present list of the watch began, and that it has not shown yet.
    missing: BTreeMap<Key, String>,
}

impl DeletedServices {
    pub(super) fn new(last_applied: Arc<LastApplied>) -> Self {
        Self {
            last_applied,
            missing: BTreeMap::new(),
        }
    }

    /// Records what an event tells. It has to come before the store has the event: a pass that a deletion triggers must find it recorded.
    pub(super) fn observe(&mut self, event: &Event<Service>) {
        match event {
            // The list is asked for after this: it has whatever was applied until now.
            Event::Init => self.missing = self.last_applied.services(),
            Event::InitApply(service) => {
                self.missing.remove(&key(service));
            }
            Event::InitDone => {
                for (key, version) in mem::take(&mut self.missing) {
                    self.last_applied
                        .service_is_deleted(&key, |applied| applied == version);
                }
            }
            Event::Apply(_) => {}
            // Its version is that of the deletion.
            Event::Delete(service) => {
                let version = service.metadata.resource_version.as_deref();
                self.last_applied
                    .service_is_deleted(&key(service), |applied| !is_older(version, Some(applied)));
            }
        }
    }
}

fn key(service: &Service) -> Key {
    (service.namespace().unwrap_or_default(), service.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str, version: &str) -> Service {
        let metadata = json!({"namespace": "tenant", "name": name, "resourceVersion": version});
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    /// Whether a pass that is shown no Service goes on with the one of version 10, which was applied before these events.
    fn is_expected_after(events: &[Event<Service>]) -> bool {
        let applied = Arc::new(LastApplied::of_service(service("shop", "10")));
        let mut deleted = DeletedServices::new(Arc::clone(&applied));
        for event in events {
            deleted.observe(event);
        }
        applied.newer_service("tenant", "shop", None).is_some()
    }

    #[test]
    fn only_a_deletion_ends_what_was_applied() {
        let list = |services: &[(&str, &str)]| {
            let services = services
                .iter()
                .map(|(name, version)| Event::InitApply(service(name, version)));
            let mut events = vec![Event::Init];
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
            ("it was shown", vec![Event::Apply(service("shop", "10"))], true),
            (
                "another was deleted",
                vec![Event::Delete(service("other", "12"))],
                true,
            ),
            (
                "the one before it was deleted",
                vec![Event::Delete(service("shop", "9"))],
                true,
            ),
            (
                "it was deleted",
                vec![Event::Delete(service("shop", "11"))],
                false,
            ),
            ("a list has it", whole_list(&[("shop", "10")]), true),
            (
                "a list has no such Service",
                whole_list(&[("other", "10")]),
                false,
            ),
            ("a list is not complete", list(&[]), true),
            (
                "a list began anew",
                [list(&[]), whole_list(&[("shop", "10")])].concat(),
                true,
            ),
        ] {
            assert_eq!(is_expected_after(&events), expected, "{what}");
        }
    }

    #[test]
    fn a_list_tells_nothing_of_what_was_applied_after_it_began() {
        let mut deleted = DeletedServices {
            last_applied: Arc::new(LastApplied::of_service(service("shop", "10"))),
            missing: BTreeMap::from([(("tenant".to_owned(), "shop".to_owned()), "9".to_owned())]),
        };
        deleted.observe(&Event::InitDone);
        let found = deleted.last_applied.newer_service("tenant", "shop", None);
        assert!(found.is_some(), "version 10 was applied meanwhile");
    }
}
