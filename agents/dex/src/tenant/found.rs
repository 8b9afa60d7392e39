//! What the agent reads of a binding in a tenant's cluster. The tenant chooses all of it: fields beyond those of the agent's own bindings are
//! skipped.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::api::rbac::v1::{RoleRef, Subject};
use kit::tenant::page::First;
use kube::ResourceExt as _;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

use super::Binding;

/// Maximum number of subjects that are kept: the agent's bindings have one.
const MAX_SUBJECTS: usize = 2;
/// Maximum number of labels that are kept: the agent's bindings have three.
const MAX_LABELS: usize = 16;
/// Prefixes of the labels of the agent's bindings.
const LABEL_PREFIXES: [&str; 2] = ["app.kubernetes.io/", "sip.airshipit.org/"];

/// A binding, as far as it is compared.
#[derive(Debug, Deserialize)]
pub(super) struct FoundBinding {
    #[serde(default)]
    pub(super) metadata: Metadata,
    #[serde(default, rename = "roleRef")]
    role: RoleRef,
    #[serde(default)]
    subjects: First<Subject, MAX_SUBJECTS>,
}

/// The metadata by which bindings are compared.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) uid: Option<String>,
    pub(super) labels: Labels,
}

/// Labels like those of the agent's bindings, up to a bound.
#[derive(Debug, Default)]
pub(super) struct Labels(BTreeMap<String, String>);

impl FoundBinding {
    /// Whether both are the same object, from different lists.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.metadata.uid.is_some() && self.metadata.uid == other.metadata.uid
    }

    /// Whether it is the desired object and binds the same role: the role of a binding cannot be changed.
    pub(super) fn is_for<K: Binding>(&self, desired: &K) -> bool {
        self.metadata.name == desired.name_any()
            && self.metadata.namespace == desired.namespace()
            && self.role == *desired.role()
    }

    /// Whether it is the desired object, without any difference.
    pub(super) fn is_current<K: Binding>(&self, desired: &K) -> bool {
        let Labels(labels) = &self.metadata.labels;
        self.is_for(desired)
            && self.subjects.0 == desired.subjects()
            && desired
                .labels()
                .iter()
                .all(|(label, value)| labels.get(label) == Some(value))
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LabelsVisitor)
    }
}

struct LabelsVisitor;

impl<'de> Visitor<'de> for LabelsVisitor {
    type Value = Labels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Labels::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut labels = BTreeMap::new();
        while let Some(label) = map.next_key::<String>()? {
            let is_kept =
                labels.len() < MAX_LABELS && LABEL_PREFIXES.iter().any(|prefix| label.starts_with(prefix));
            if is_kept {
                labels.insert(label, map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Labels(labels))
    }
}

#[cfg(test)]
mod tests {
    use kit::tenant::{MAX_ANSWER_BYTES, page::Page};
    use serde_json::{Value, json};

    use super::*;
    use k8s_openapi::api::rbac::v1::RoleBinding;

    fn binding() -> Value {
        json!({
            "metadata": {
                "name": "sip-oidc-a", "namespace": "apps", "uid": "u",
                "labels": {"app.kubernetes.io/part-of": "sip", "sip.airshipit.org/identity-provider": "p"},
            },
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "edit"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "oidc:admins"}],
        })
    }

    #[test]
    fn only_a_binding_without_differences_is_current() {
        let desired: RoleBinding = serde_json::from_value(binding()).unwrap();
        let stands = |change: &dyn Fn(&mut Value)| {
            let mut found = binding();
            change(&mut found);
            let found: FoundBinding = serde_json::from_value(found).unwrap();
            (found.is_for(&desired), found.is_current(&desired))
        };
        assert_eq!(stands(&|_| {}), (true, true));
        assert_eq!(
            stands(&|found| found["metadata"]["labels"]["z"] = json!("more")),
            (true, true)
        );
        for change in [
            (|found| found["subjects"] = json!([])) as fn(&mut Value),
            |found| found["subjects"] = json!(null),
            |found| {
                let one = found["subjects"][0].clone();
                found["subjects"] = json!([one.clone(), one.clone(), one]);
            },
            |found| found["metadata"]["labels"] = json!(null),
            |found| found["metadata"]["labels"]["sip.airshipit.org/identity-provider"] = json!("q"),
        ] {
            assert_eq!(stands(&change), (true, false));
        }
        for change in [
            (|found| found["roleRef"]["name"] = json!("view")) as fn(&mut Value),
            |found| found["metadata"]["namespace"] = json!(null),
            |found| found["metadata"]["name"] = json!("sip-oidc-b"),
        ] {
            assert_eq!(stands(&change), (false, false));
        }
    }

    #[test]
    fn no_answer_takes_much_more_memory_than_its_length() {
        let many = |one: &str, count| vec![one; count].join(",");
        let items = format!(r#"{{"items":[{}]}}"#, many("{}", 300_000));
        let subjects = format!(r#"{{"items":[{{"subjects":[{}]}}]}}"#, many("{}", 300_000));
        let labels: Vec<String> = (0..60_000).map(|n| format!(r#""l{n}":"""#)).collect();
        let labels = format!(
            r#"{{"items":[{{"metadata":{{"labels":{{{}}}}}}}]}}"#,
            labels.join(",")
        );
        for (answer, kept) in [(&items, 500), (&subjects, 1), (&labels, 1)] {
            assert!(answer.len() < MAX_ANSWER_BYTES);
            let page: Page<FoundBinding, 500> = kit::tenant::parsed(answer.as_bytes()).unwrap();
            assert_eq!(page.items.0.len(), kept);
            let first = &page.items.0[0];
            assert!(first.subjects.0.len() <= MAX_SUBJECTS && first.metadata.labels.0.len() <= MAX_LABELS);
        }
    }
}
