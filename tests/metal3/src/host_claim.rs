//! A `HostClaim`, by which the baremetal-operator gives a tenant a host of another namespace: which host it gets, and what is written to that.
//! `Associate` of its v0.13.2, without the lists and the draw. How a host is let go was not read there; it is as CAPM3 lets one go.

use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::{Value, json};

use crate::{
    choice::{self, Choice},
    metal3_machine::selector,
    names::{METAL3_VERSION, NODE_REUSE, PAUSED, UNHEALTHY_BEFORE},
    patches::IMAGE,
};

const KIND: &str = "HostClaim";

/// A `HostClaim`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostClaim {
    /// Its namespace, which is the tenant's.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `spec.hostSelector.inNamespace`: the only namespace in which it searches.
    pub in_namespace: Option<String>,
    /// The rest of `spec.hostSelector`, as a selector of a list.
    pub selector: String,
    /// `spec.failureDomain`.
    pub failure_domain: Option<String>,
    /// `spec.poweredOn`.
    pub powered_on: bool,
}

impl HostClaim {
    /// Reads an object.
    #[must_use]
    pub fn read(object: &DynamicObject) -> Self {
        let spec = &object.data["spec"];
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            in_namespace: text(&spec["hostSelector"]["inNamespace"]),
            selector: selector(&spec["hostSelector"]),
            failure_domain: text(&spec["failureDomain"]),
            powered_on: spec["poweredOn"] == true,
        }
    }

    /// The consumer that it makes itself.
    #[must_use]
    pub fn reference(&self) -> Value {
        json!({"apiVersion": METAL3_VERSION, "kind": KIND, "namespace": self.namespace, "name": self.name})
    }

    /// Whether a host is used by it.
    #[must_use]
    pub fn uses(&self, host: &DynamicObject) -> bool {
        let consumer = &host.data["spec"]["consumerRef"];
        let group = consumer["apiVersion"]
            .as_str()
            .and_then(|version| version.split('/').next());
        group == Some("metal3.io")
            && consumer["kind"] == KIND
            && consumer["namespace"] == *self.namespace
            && consumer["name"] == *self.name
    }

    /// Whether a `HostDeployPolicy` lets it take hosts of the policy's namespace. Of its rules only the list of names is played; a policy with
    /// others lets nobody in.
    #[must_use]
    pub fn is_let_in(&self, policy: &DynamicObject) -> bool {
        let rules = &policy.data["spec"]["hostClaimNamespaces"];
        let others = ["nameMatches", "hasLabels"];
        let names = rules["names"].as_array();
        others.iter().all(|other| rules[*other].is_null())
            && names.is_some_and(|names| names.iter().any(|name| *name == *self.namespace))
    }

    /// Chooses among hosts that match the selector. Other than CAPM3 it takes none that is kept for somebody, and knows the older one of
    /// the two marks of unhealthy hosts only.
    #[must_use]
    pub fn choose(&self, hosts: Vec<DynamicObject>) -> Choice {
        if let Some(own) = hosts.iter().find(|host| self.uses(host)) {
            return Choice::Own(own.name_any());
        }
        let usable = hosts.into_iter().filter(|host| {
            host.data["spec"]["consumerRef"].is_null()
                && !host.labels().contains_key(NODE_REUSE)
                && choice::is_not_passed_over(host, &[PAUSED, UNHEALTHY_BEFORE])
        });
        choice::near(self.failure_domain.as_ref(), usable)
    }

    /// The chosen host with this consumer. It is written with the resourceVersion that the host had when it was chosen.
    #[must_use]
    pub fn claimed(&self, chosen: &DynamicObject) -> DynamicObject {
        let mut host = chosen.clone();
        host.data["spec"]["consumerRef"] = self.reference();
        host
    }

    /// Its host as it is to be provisioned; `None` where it is already.
    #[must_use]
    pub fn provisioned(&self, host: &DynamicObject) -> Option<DynamicObject> {
        let spec = &host.data["spec"];
        if !spec["image"].is_null() && spec["online"] == self.powered_on {
            return None;
        }
        let mut host = host.clone();
        host.data["spec"]["image"] = json!({"url": IMAGE, "checksum": format!("{IMAGE}.sha256")});
        host.data["spec"]["online"] = json!(self.powered_on);
        Some(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::FAILURE_DOMAIN;

    fn claim() -> HostClaim {
        let object = json!({
            "metadata": {"namespace": "shop", "name": "c-0"},
            "spec": {
                "poweredOn": true, "failureDomain": "west",
                "hostSelector": {"inNamespace": "metal", "matchLabels": {"a": "1"}},
            },
        });
        HostClaim::read(&serde_json::from_value(object).unwrap())
    }

    fn host(name: &str, labels: &Value, spec: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels, "resourceVersion": "7"},
            "spec": spec, "status": {"provisioning": {"state": "available"}},
        }))
        .unwrap()
    }

    fn chosen(hosts: &[DynamicObject]) -> Vec<String> {
        match claim().choose(hosts.to_vec()) {
            Choice::Own(host) => vec![format!("own {host}")],
            Choice::OneOf(hosts) => hosts.iter().map(DynamicObject::name_any).collect(),
            Choice::None => Vec::new(),
        }
    }

    #[test]
    fn it_is_read_from_the_object() {
        let claim = claim();
        assert_eq!(claim.in_namespace.as_deref(), Some("metal"));
        assert_eq!((&*claim.selector, claim.powered_on), ("a=1", true));
    }

    #[test]
    fn a_policy_lets_in_the_namespaces_that_it_names() {
        for (rules, is_let_in) in [
            (json!({"names": ["bank", "shop"]}), true),
            (json!({"names": ["bank"]}), false),
            (json!({"names": []}), false),
            (Value::Null, false),
            (json!({"names": ["shop"], "nameMatches": "^b"}), false),
        ] {
            let policy = json!({"spec": {"hostClaimNamespaces": rules}});
            let policy: DynamicObject = serde_json::from_value(policy).unwrap();
            assert_eq!(claim().is_let_in(&policy), is_let_in, "{rules}");
        }
    }

    #[test]
    fn it_takes_free_hosts_and_prefers_its_failure_domain() {
        let free = |name: &str, domain: &str| host(name, &json!({FAILURE_DOMAIN: domain}), &json!({}));
        let (east, west) = (free("east", "east"), free("west", "west"));
        assert_eq!(chosen(&[east.clone(), west.clone()]), ["west"]);
        assert_eq!(chosen(std::slice::from_ref(&east)), ["east"]);
        let kept = host("kept", &json!({NODE_REUSE: "shop-md"}), &json!({}));
        assert_eq!(chosen(&[kept, east.clone()]), ["east"]);
        let other = HostClaim {
            name: "c-1".to_owned(),
            ..claim()
        };
        assert_eq!(chosen(&[other.claimed(&west), east.clone()]), ["east"]);
        assert_eq!(chosen(&[claim().claimed(&west), east]), ["own west"]);
    }

    #[test]
    fn it_writes_the_host_that_it_has_chosen() {
        let claimed = claim().claimed(&host("h", &json!({"a": "1"}), &json!({"online": false})));
        assert_eq!(claimed.resource_version().as_deref(), Some("7"));
        assert_eq!(claimed.data["spec"]["consumerRef"], claim().reference());
        assert_eq!(claimed.labels().len(), 1, "it sets no label");
        let provisioned = claim().provisioned(&claimed).unwrap();
        assert_eq!(provisioned.data["spec"]["online"], true);
        assert!(!provisioned.data["spec"]["image"].is_null());
        assert_eq!(claim().provisioned(&provisioned), None);
    }
}
