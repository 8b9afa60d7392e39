//! Whether the status reports an instance as one that works with the present spec and members.

use api::Applied;

use super::{members::revision, observed::Observed};

/// Whether the condition is True for the present spec.
pub(super) fn is_available(observed: &Observed<'_>) -> bool {
    let is_true = observed
        .condition()
        .is_some_and(|condition| condition.status == "True");
    is_true && observed.has_condition_of_generation()
}

/// Whether the status reports that an instance works, and that every instance is applied with the present spec and with the members that the status
/// holds. If its pods do not have the newest files, these differ from what they have by neither of the two.
#[must_use]
pub fn is_reported(observed: &Observed<'_>, instance: &str) -> bool {
    let Some(held) = observed.placement() else {
        return false;
    };
    let is_current = |applied: &Applied| {
        applied.generation == observed.generation()
            && applied.epoch == held.epoch
            && applied.revision == revision(held)
    };
    let applied = observed.applied();
    is_available(observed)
        && applied.iter().any(|applied| applied.service == instance)
        && applied.iter().all(is_current)
}

#[cfg(test)]
mod tests {
    use api::SIPCluster;
    use serde_json::{Value, json};

    use super::{super::identity::BALANCERS, *};

    const ONE: &str = "loadbalancer-one";

    fn applied(name: &str, epoch: u64, revision: u64, generation: i64) -> Value {
        json!({"service": name, "epoch": epoch, "revision": revision, "generation": generation})
    }

    /// Of a cluster at generation 3 whose newest claim has the revision 5.
    fn reported(status: &str, generation: i64, applied: &Value) -> (bool, bool) {
        let member = json!({
            "namespace": "metal", "name": "h1", "uid": "u", "role": "Worker", "state": "Bound", "revision": 5,
        });
        let condition = json!({
            "type": "LoadBalancerReady", "status": status, "reason": "Any", "message": "",
            "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let cluster: SIPCluster = serde_json::from_value(json!({
            "metadata": {"namespace": "tenant", "name": "shop", "uid": "u", "generation": 3},
            "spec": {},
            "status": {
                "placement": {"epoch": 1, "revision": 7, "generation": 3, "members": [member]},
                "conditions": [condition],
                "applied": applied,
            },
        }))
        .unwrap();
        let observed = Observed::among(&cluster, BALANCERS, Vec::new(), &[]);
        (is_available(&observed), is_reported(&observed, ONE))
    }

    #[test]
    fn an_instance_is_reported_with_its_spec_and_members() {
        let current = || applied(ONE, 1, 5, 3);
        for (status, generation, applied, expected) in [
            ("True", 3, json!([current()]), (true, true)),
            ("False", 3, json!([current()]), (false, false)),
            ("True", 2, json!([current()]), (false, false)),
            ("True", 3, json!([]), (true, false)),
            ("True", 3, json!([applied(ONE, 1, 4, 3)]), (true, false)),
            ("True", 3, json!([applied(ONE, 2, 5, 3)]), (true, false)),
            ("True", 3, json!([applied(ONE, 1, 5, 2)]), (true, false)),
            (
                "True",
                3,
                json!([current(), applied("loadbalancer-two", 1, 4, 3)]),
                (true, false),
            ),
        ] {
            let found = reported(status, generation, &applied);
            assert_eq!(found, expected, "{status} {generation} {applied}");
        }
    }
}
