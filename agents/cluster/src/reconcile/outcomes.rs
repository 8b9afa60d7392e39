//! The outcomes of a plan.

use std::{collections::BTreeMap, time::Duration};

use api::conditions::Reason;
use kit::placement::{HostId, ObjectKey};

use super::{error::Error, event::Event, machine::Machine};

/// The outcomes of a plan.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// When the cluster is reconciled again, if no watch triggers that before.
    pub(super) requeue: Option<Duration>,
    /// Hosts that cannot be written or confirmed as gone; which of it, and why, for messages.
    pub(super) refused: Vec<(ObjectKey, String)>,
    /// Objects of Cluster API whose replicas could not be set, and why.
    pub(super) unscaled: Vec<(Reason, String)>,
    /// Machines from which our annotation could not be removed, by the uid of their host: the status continues to name them.
    pub(super) stuck: BTreeMap<String, Machine>,
    /// For messages.
    pub(super) events: Vec<Event>,
    /// What ended the pass before all was done.
    pub(super) error: Option<Error>,
}

impl Outcomes {
    /// The cluster is reconciled again after this pause at the latest.
    pub(super) fn requeue_in(&mut self, pause: Duration) {
        self.requeue = Some(self.requeue.map_or(pause, |before| before.min(pause)));
    }

    /// A host has been released: that it went without its Node drained and deleted is known only now.
    pub(super) fn released(&mut self, host: &HostId, nodes_left: &[(HostId, Event)]) {
        let left = nodes_left.iter().filter(|(left, _)| left == host);
        self.events.extend(left.map(|(_, event)| event.clone()));
    }
}

#[cfg(test)]
mod tests {
    use kit::events::EventReason;

    use super::*;
    use crate::fixtures::key;

    #[test]
    fn a_node_is_left_with_the_release_of_its_host() {
        let host = |name: &str| HostId::new(key(name), format!("uid-{name}"));
        let event = |name: &str| Event::new(EventReason::NodeNotDrained, name);
        let nodes_left = ["h1", "h2"].map(|name| (host(name), event(name)));
        let mut outcomes = Outcomes::default();
        outcomes.released(&host("h2"), &nodes_left);
        outcomes.released(&host("h3"), &nodes_left);
        assert_eq!(outcomes.events, [event("h2")]);
    }
}
