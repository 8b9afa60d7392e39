//! A `Metal3Machine` with what its Machine and its template say.

use kube::{ResourceExt as _, api::DynamicObject};
use serde_json::{Value, json};

use crate::names::{CLUSTER, INFRASTRUCTURE_VERSION};

const KIND: &str = "Metal3Machine";

/// A `Metal3Machine`, and what its Machine and its template say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metal3Machine {
    /// Its namespace, and that of its hosts.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, where it is an object: only such a one can own a host.
    pub uid: Option<String>,
    /// The Cluster that its Machine belongs to.
    pub cluster: String,
    /// `spec.hostSelector`, as a selector of a list.
    pub selector: String,
    /// Owner of the Machine, where its template says `nodeReuse`.
    pub reuses_for: Option<String>,
    /// `spec.failureDomain` of its Machine.
    pub failure_domain: Option<String>,
    /// Whether it has a `Metal3DataTemplate` that writes networkData.
    pub writes_network_data: bool,
}

impl Metal3Machine {
    /// Reads an object. `machine`: its Machine; `template`: that it was made from; `owner`: the `MachineDeployment`, `MachineSet` or control
    /// plane of the Machine.
    #[must_use]
    pub fn read(
        object: &DynamicObject,
        machine: &DynamicObject,
        template: Option<&DynamicObject>,
        owner: &str,
    ) -> Self {
        let template_spec = template.map_or(&Value::Null, |template| &template.data["spec"]);
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            uid: object.uid(),
            cluster: object.labels().get(CLUSTER).cloned().unwrap_or_default(),
            selector: selector(&object.data["spec"]["hostSelector"]),
            reuses_for: (template_spec["nodeReuse"] == true).then(|| owner.to_owned()),
            failure_domain: machine.data["spec"]["failureDomain"].as_str().map(str::to_owned),
            writes_network_data: !object.data["spec"]["dataTemplate"].is_null(),
        }
    }

    /// The consumer that it makes itself.
    #[must_use]
    pub fn reference(&self) -> Value {
        json!({"apiVersion": INFRASTRUCTURE_VERSION, "kind": KIND, "namespace": self.namespace, "name": self.name})
    }

    /// The owner that it makes itself, where it is an object.
    #[must_use]
    pub fn owner(&self) -> Option<Value> {
        let uid = self.uid.as_ref()?;
        Some(json!({
            "apiVersion": INFRASTRUCTURE_VERSION, "kind": KIND, "name": self.name, "uid": uid, "controller": true,
        }))
    }

    /// Whether a host is used by it. The version of the reference does not matter.
    #[must_use]
    pub fn uses(&self, host: &DynamicObject) -> bool {
        let consumer = &host.data["spec"]["consumerRef"];
        let group = consumer["apiVersion"].as_str().map(group);
        group == Some(group_of_infrastructure())
            && consumer["kind"] == KIND
            && consumer["namespace"] == *self.namespace
            && consumer["name"] == *self.name
    }
}

fn group(version: &str) -> &str {
    version.split('/').next().unwrap_or_default()
}

fn group_of_infrastructure() -> &'static str {
    group(INFRASTRUCTURE_VERSION)
}

/// `matchLabels` and `matchExpressions` as a selector of a list; operators are those of Kubernetes, in whatever case.
pub(crate) fn selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    let expressions = expressions.map(|one| {
        let key = one["key"].as_str().unwrap_or_default();
        let values: Vec<&str> = one["values"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let values = values.join(",");
        match one["operator"]
            .as_str()
            .unwrap_or_default()
            .to_lowercase()
            .as_str()
        {
            "exists" => key.to_owned(),
            "doesnotexist" | "!" => format!("!{key}"),
            "notin" => format!("{key} notin ({values})"),
            "=" | "==" => format!("{key}={values}"),
            "!=" => format!("{key}!={values}"),
            _ => format!("{key} in ({values})"),
        }
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_selector_is_a_selector_of_a_list() {
        let written = json!({
            "matchLabels": {"a": "1", "b": ""},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["x", "y"]},
                {"key": "d", "operator": "notin", "values": ["z"]},
                {"key": "e", "operator": "Exists"},
                {"key": "f", "operator": "DoesNotExist"},
            ],
        });
        assert_eq!(selector(&written), "a=1,b=,c in (x,y),d notin (z),e,!f");
        assert_eq!(selector(&Value::Null), "", "every host of the namespace");
    }
}
