//! What a cluster asks of a service agent, by its spec and what it holds. Pure.

use api::{Cluster, Placement};

use super::{definition::Service, observed::Observed};

/// What a cluster asks of this agent.
pub(super) enum Desired<Entry> {
    /// Nothing more: it is being deleted and holds no host.
    Removed,
    /// The cluster agent reports that the spec or the placement cannot be read; what runs stays.
    Unreadable,
    /// These instances, as soon as the scheduler has accepted the size of the spec.
    Waiting(Box<(Cluster, Vec<Entry>)>),
    /// These instances and no others; `None` where the spec of a cluster that is being deleted cannot be read.
    Instances(Option<Box<(Cluster, Vec<Entry>)>>),
}

/// Validates the spec.
pub(super) fn validate<S: Service>(observed: &Observed<'_>) -> Desired<S::Entry> {
    if let Some(desired) = without_the_spec(observed) {
        return desired;
    }
    let (deleting, held) = (observed.is_deleting(), observed.placement());
    match S::parse(observed) {
        Ok(cluster) if !deleting && waits_for_room(&cluster, held) => {
            let entries = S::entries(&cluster);
            Desired::Waiting(Box::new((cluster, entries)))
        }
        Ok(cluster) => {
            let mut entries = S::entries(&cluster);
            // A cluster that is being deleted keeps what the status names, and gets nothing new: a watch may still show what was deleted.
            let applied = observed.applied();
            let stays = |entry: &S::Entry| applied.iter().any(|applied| applied.service == name::<S>(entry));
            entries.retain(|entry| !deleting || stays(entry));
            Desired::Instances(Some(Box::new((cluster, entries))))
        }
        Err(_) if deleting => Desired::Instances(None),
        Err(_) => Desired::Unreadable,
    }
}

/// What is asked whatever the spec is; `None`: the spec decides.
fn without_the_spec<Entry>(observed: &Observed<'_>) -> Option<Desired<Entry>> {
    // It may hold hosts: nothing that routes to them is deleted.
    if observed.has_unreadable_placement() {
        return Some(Desired::Unreadable);
    }
    let holds = observed.placement().is_some_and(|held| !held.members.is_empty());
    (observed.is_deleting() && !holds).then_some(Desired::Removed)
}

/// Whether a spec needs more room in the status than every cluster has, and the scheduler has not accepted it yet: beside many members there
/// may be none. Where there is no placement at all, nothing is applied in any case.
fn waits_for_room(cluster: &Cluster, held: Option<&Placement>) -> bool {
    let is_accepted = |held: &Placement| held.generation >= cluster.generation();
    cluster.other_bytes() > 0 && held.is_some_and(|held| !is_accepted(held))
}

pub(super) fn name<S: Service>(entry: &S::Entry) -> &str {
    S::service(entry).object_name().as_str()
}

pub(super) fn names<S: Service>(entries: &[S::Entry]) -> Vec<&str> {
    entries.iter().map(name::<S>).collect()
}

#[cfg(test)]
mod tests {
    use api::TolerantCluster;
    use serde_json::json;

    use super::{super::identity::BALANCERS, *};

    #[test]
    fn nothing_is_removed_by_a_placement_that_cannot_be_read() {
        let member = |state: &str| json!({"namespace": "metal", "name": "h1", "uid": "u1", "role": "Worker", "state": state, "revision": 5});
        let held = |members: &[serde_json::Value]| json!({"epoch": 1, "revision": 5, "generation": 1, "members": members});
        for (placement, is_removed, is_unreadable) in [
            (json!(null), true, false),
            (held(&[]), true, false),
            (held(&[member("Bound")]), false, false),
            (held(&[member("Moving")]), false, true),
        ] {
            let object = json!({
                "metadata": {
                    "namespace": "tenant", "name": "shop", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z",
                },
                "spec": {}, "status": {"placement": placement},
            });
            let object: TolerantCluster = serde_json::from_value(object).unwrap();
            let object = object.into_inner();
            let observed = Observed::among(&object, BALANCERS, Vec::new(), &[]);
            let found = without_the_spec::<()>(&observed);
            assert_eq!(matches!(found, Some(Desired::Removed)), is_removed, "{placement}");
            assert_eq!(
                matches!(found, Some(Desired::Unreadable)),
                is_unreadable,
                "{placement}"
            );
        }
    }
}
