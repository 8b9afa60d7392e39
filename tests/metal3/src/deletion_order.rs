//! Which Machines go when their owner is scaled down: `machineset_delete_policy.go` of Cluster API v1.13.4.

use kube::{ResourceExt as _, api::DynamicObject};

use crate::names::DELETE_MACHINE;

/// `spec.deletePolicy` of a `MachineSet`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In the order of their names, where nothing else tells them apart.
    #[default]
    Random,
    /// The newest first; a control plane does the opposite.
    Newest,
    /// The oldest first.
    Oldest,
}

impl Order {
    /// What the field says; Random where it says nothing.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            Some("Newest") => Self::Newest,
            Some("Oldest") => Self::Oldest,
            Some(_) | None => Self::Random,
        }
    }
}

/// How soon a Machine goes: the smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    /// It is being deleted.
    Deleting,
    /// It has the annotation [`DELETE_MACHINE`].
    Annotated,
    /// It has no Node, or an unhealthy one.
    Unhealthy,
    /// By the order.
    Other,
}

/// The Machines that go so that `replicas` stay, those that are being deleted already included.
#[must_use]
pub fn surplus(machines: &[DynamicObject], replicas: usize, order: Order) -> Vec<DynamicObject> {
    let mut sorted = machines.to_vec();
    sorted.sort_by(|one, other| {
        let by_priority = priority(one).cmp(&priority(other));
        let made = |machine: &DynamicObject| machine.creation_timestamp().map(|time| time.0);
        let by_age = if priority(one) == Priority::Other {
            match order {
                Order::Random => std::cmp::Ordering::Equal,
                Order::Newest => made(other).cmp(&made(one)),
                Order::Oldest => made(one).cmp(&made(other)),
            }
        } else {
            std::cmp::Ordering::Equal
        };
        by_priority
            .then(by_age)
            .then_with(|| one.name_any().cmp(&other.name_any()))
    });
    sorted.truncate(machines.len().saturating_sub(replicas));
    sorted
}

fn priority(machine: &DynamicObject) -> Priority {
    let conditions = machine.data["status"]["conditions"].as_array();
    let is_false = |kind: &str| {
        let mut all = conditions.into_iter().flatten();
        all.any(|condition| condition["type"] == kind && condition["status"] == "False")
    };
    if machine.metadata.deletion_timestamp.is_some() {
        Priority::Deleting
    } else if machine.annotations().contains_key(DELETE_MACHINE) {
        Priority::Annotated
    } else if machine.data["status"]["nodeRef"].is_null()
        || is_false("NodeHealthy")
        || is_false("HealthCheckSucceeded")
    {
        Priority::Unhealthy
    } else {
        Priority::Other
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A healthy Machine, made in this minute.
    fn machine(name: &str, minute: u8) -> Value {
        json!({
            "metadata": {"name": name, "annotations": {}, "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z")},
            "status": {"nodeRef": {"name": name}},
        })
    }

    fn annotated(mut object: Value) -> Value {
        object["metadata"]["annotations"][DELETE_MACHINE] = json!("");
        object
    }

    fn deleted(mut object: Value) -> Value {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:00Z");
        object
    }

    fn without_node(mut object: Value) -> Value {
        object["status"] = json!({});
        object
    }

    fn unhealthy(mut object: Value, kind: &str) -> Value {
        object["status"]["conditions"] = json!([{"type": kind, "status": "False"}]);
        object
    }

    fn going(machines: Vec<Value>, replicas: usize, order: Order) -> Vec<String> {
        let machines: Vec<DynamicObject> = machines
            .into_iter()
            .map(|object| serde_json::from_value(object).unwrap())
            .collect();
        surplus(&machines, replicas, order)
            .iter()
            .map(DynamicObject::name_any)
            .collect()
    }

    #[test]
    fn annotated_machines_go_before_unhealthy_and_healthy_ones() {
        let all = || {
            vec![
                machine("a", 1),
                without_node(machine("b", 2)),
                annotated(machine("c", 3)),
                deleted(machine("d", 4)),
                unhealthy(machine("e", 5), "HealthCheckSucceeded"),
                unhealthy(machine("f", 6), "NodeHealthy"),
                unhealthy(machine("g", 7), "Other"),
            ]
        };
        let order = ["d", "c", "b", "e", "f", "a", "g"];
        for going_count in 0..=7 {
            assert_eq!(going(all(), 7 - going_count, Order::Random), order[..going_count]);
        }
        assert_eq!(going(all(), 9, Order::Random), [""; 0]);
    }

    #[test]
    fn a_machine_given_up_by_remediation_goes_like_others() {
        // CAPM3 v1.13.2 sets the condition of v1beta1, and Cluster API v1.13.4 reads only that of v1beta2.
        let all = || vec![machine("a", 2), unhealthy(machine("b", 1), "OwnerRemediated")];
        assert_eq!(going(all(), 2, Order::Random), [""; 0]);
        assert_eq!(going(all(), 1, Order::Random), ["a"]);
    }

    #[test]
    fn age_counts_only_among_healthy_ones() {
        let all = || {
            vec![
                machine("a", 2),
                machine("b", 1),
                machine("c", 3),
                annotated(machine("z", 2)),
            ]
        };
        assert_eq!(going(all(), 2, Order::Newest), ["z", "c"]);
        assert_eq!(going(all(), 2, Order::Oldest), ["z", "b"]);
        assert_eq!(going(all(), 2, Order::Random), ["z", "a"]);
        for (text, order) in [
            (None, Order::Random),
            (Some(""), Order::Random),
            (Some("Newest"), Order::Newest),
            (Some("Oldest"), Order::Oldest),
        ] {
            assert_eq!(Order::parse(text), order);
        }
    }
}
