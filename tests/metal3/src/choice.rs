//! Which host a `Metal3Machine` gets: `chooseHost` of CAPM3 v1.13.2, without the list and the draw.

use kube::{ResourceExt as _, api::DynamicObject};

use crate::{
    metal3_machine::Metal3Machine,
    names::{FAILURE_DOMAIN, NODE_REUSE, PAUSED, UNHEALTHY, UNHEALTHY_BEFORE},
    provisioning,
};

/// What came of a look at the hosts that match.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// It uses the one of this name already.
    Own(String),
    /// One of these, at random.
    OneOf(Vec<DynamicObject>),
    /// None is free. A host that is kept for its owner may be on its way.
    None,
}

/// Looks at hosts that match the selector: those that are kept for its owner come first, and it waits for them as long as they are not
/// available; then those in its failure domain, then all.
#[must_use]
pub fn choose(machine: &Metal3Machine, hosts: Vec<DynamicObject>) -> Choice {
    if let Some(own) = hosts.iter().find(|host| machine.uses(host)) {
        return Choice::Own(own.name_any());
    }
    let usable = hosts.into_iter().filter(|host| is_usable(machine, host));
    let (kept, rest): (Vec<_>, Vec<_>) = usable.partition(|host| host.labels().contains_key(NODE_REUSE));
    if !kept.is_empty() {
        // One that is not available yet makes CAPM3 search again, whatever it has found before it.
        let all_are = kept.iter().all(is_available);
        return one_of(if all_are { kept } else { Vec::new() });
    }
    near(machine.failure_domain.as_ref(), rest.into_iter())
}

/// Those of the failure domain that are available, or else all that are.
pub(crate) fn near(failure_domain: Option<&String>, hosts: impl Iterator<Item = DynamicObject>) -> Choice {
    let available: Vec<_> = hosts.filter(is_available).collect();
    let is_near = |host: &&DynamicObject| {
        failure_domain.is_some() && host.labels().get(FAILURE_DOMAIN) == failure_domain
    };
    let near: Vec<_> = available.iter().filter(is_near).cloned().collect();
    one_of(if near.is_empty() { available } else { near })
}

fn one_of(hosts: Vec<DynamicObject>) -> Choice {
    if hosts.is_empty() {
        Choice::None
    } else {
        Choice::OneOf(hosts)
    }
}

/// Annotations by which a host is passed over.
const PASSED_OVER: [&str; 3] = [PAUSED, UNHEALTHY, UNHEALTHY_BEFORE];

fn is_usable(machine: &Metal3Machine, host: &DynamicObject) -> bool {
    // A host that is kept for somebody else is passed over without a word; one that is kept for this owner may have a consumer.
    let is_mine = match host.labels().get(NODE_REUSE) {
        Some(owner) => Some(owner) == machine.reuses_for.as_ref(),
        None => host.data["spec"]["consumerRef"].is_null(),
    };
    is_mine && is_not_passed_over(host, &PASSED_OVER)
}

/// Whether a host stays, has no error, and none of these annotations.
pub(crate) fn is_not_passed_over(host: &DynamicObject, annotations: &[&str]) -> bool {
    host.metadata.deletion_timestamp.is_none()
        && host.data["status"]["errorMessage"]
            .as_str()
            .is_none_or(str::is_empty)
        && annotations
            .iter()
            .all(|key| !host.annotations().contains_key(*key))
}

fn is_available(host: &DynamicObject) -> bool {
    let state = host.data["status"]["provisioning"]["state"].as_str();
    state.is_some_and(provisioning::can_be_claimed)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::names::{CLUSTER_API_VERSION, INFRASTRUCTURE_VERSION};

    fn machine() -> Metal3Machine {
        Metal3Machine {
            namespace: "metal".to_owned(),
            name: "m-0".to_owned(),
            uid: None,
            cluster: "shop".to_owned(),
            selector: String::new(),
            reuses_for: None,
            failure_domain: None,
            writes_network_data: false,
        }
    }

    fn host(name: &str, state: &str, change: &Value) -> DynamicObject {
        let mut object = json!({
            "metadata": {"name": name, "labels": {}, "annotations": {}},
            "spec": {}, "status": {"provisioning": {"state": state}},
        });
        for (pointer, value) in change.as_object().into_iter().flatten() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            let field = field.replace("~1", "/");
            object.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn names(choice: Choice) -> Vec<String> {
        match choice {
            Choice::Own(host) => vec![format!("own {host}")],
            Choice::OneOf(hosts) => hosts.iter().map(DynamicObject::name_any).collect(),
            Choice::None => Vec::new(),
        }
    }

    fn chosen(machine: &Metal3Machine, hosts: &[DynamicObject]) -> Vec<String> {
        names(choose(machine, hosts.to_vec()))
    }

    #[test]
    fn a_host_is_passed_over_by_each_of_these_reasons() {
        let consumer = |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "namespace": "metal", "name": name});
        for (change, passes) in [
            (json!({}), true),
            (
                json!({"/spec/consumerRef": consumer(INFRASTRUCTURE_VERSION, "Metal3Machine", "m-1")}),
                false,
            ),
            (
                json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"}),
                false,
            ),
            (json!({"/status/errorMessage": "no power"}), false),
            (json!({"/status/errorMessage": ""}), true),
            (
                json!({"/metadata/annotations/baremetalhost.metal3.io~1paused": ""}),
                false,
            ),
            (
                json!({"/metadata/annotations/capm3.metal3.io~1unhealthy": ""}),
                false,
            ),
            (
                json!({"/metadata/annotations/capi.metal3.io~1unhealthy": ""}),
                false,
            ),
            (
                json!({"/metadata/annotations/sip.airshipit.org~1cordoned": ""}),
                true,
            ),
            (
                json!({"/metadata/labels/infrastructure.cluster.x-k8s.io~1node-reuse": "other"}),
                false,
            ),
        ] {
            let expected = if passes { vec!["h"] } else { vec![] };
            assert_eq!(
                chosen(&machine(), &[host("h", "available", &change)]),
                expected,
                "{change}"
            );
        }
        for state in provisioning::STATES {
            let passes = ["available", "ready"].contains(&state);
            let expected = if passes { vec!["h"] } else { vec![] };
            assert_eq!(
                chosen(&machine(), &[host("h", state, &json!({}))]),
                expected,
                "{state}"
            );
        }
    }

    #[test]
    fn its_own_host_comes_before_every_other_one() {
        let own = |version: &str| {
            let consumer =
                json!({"apiVersion": version, "kind": "Metal3Machine", "namespace": "metal", "name": "m-0"});
            host("mine", "provisioned", &json!({"/spec/consumerRef": consumer}))
        };
        let free = host("free", "available", &json!({}));
        for version in ["v1alpha5", "v1beta1", "v1beta2"] {
            let version = format!("infrastructure.cluster.x-k8s.io/{version}");
            assert_eq!(chosen(&machine(), &[free.clone(), own(&version)]), ["own mine"]);
        }
        assert_eq!(chosen(&machine(), &[free, own("metal3.io/v1beta1")]), ["free"]);
    }

    #[test]
    fn kept_hosts_come_first_then_its_failure_domain() {
        let reusing = Metal3Machine {
            reuses_for: Some("shop-md".to_owned()),
            failure_domain: Some("west".to_owned()),
            ..machine()
        };
        let label =
            |key: &str, value: &str| json!({format!("/metadata/labels/{}", key.replace('/', "~1")): value});
        let kept = |state: &str| host("kept", state, &label(NODE_REUSE, "shop-md"));
        let (east, west) = (
            host("east", "available", &label(FAILURE_DOMAIN, "east")),
            host("west", "available", &label(FAILURE_DOMAIN, "west")),
        );
        let all = |kept: DynamicObject| [east.clone(), kept, west.clone()];
        assert_eq!(chosen(&reusing, &all(kept("available"))), ["kept"]);
        assert_eq!(
            chosen(&reusing, &all(kept("deprovisioning"))),
            [""; 0],
            "it waits for that one"
        );
        let both = [kept("available"), kept("deprovisioning")];
        assert_eq!(chosen(&reusing, &both), [""; 0], "it waits for the other one too");
        assert_eq!(chosen(&reusing, &[east.clone(), west.clone()]), ["west"]);
        assert_eq!(
            chosen(&reusing, std::slice::from_ref(&east)),
            ["east"],
            "only a preference"
        );
        assert_eq!(chosen(&machine(), &[east, west]), ["east", "west"]);
        // CAPM3 1.14 leaves the Cluster as the consumer of a host that is kept.
        let cluster = json!({"apiVersion": CLUSTER_API_VERSION, "kind": "Cluster", "namespace": "metal", "name": "shop"});
        let mut change = label(NODE_REUSE, "shop-md");
        change["/spec/consumerRef"] = cluster;
        assert_eq!(chosen(&reusing, &[host("kept", "available", &change)]), ["kept"]);
    }
}
