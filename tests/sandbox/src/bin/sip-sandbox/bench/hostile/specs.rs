//! `SIPClusters` that the API server accepts and nobody means: every text of the custom resource definition with everything in it that
//! means something to some reader.

use std::{collections::BTreeMap, path::Path};

use anyhow::Context as _;
use sandbox::inventory;
use serde_json::{Map, Value, json};

/// The name of each cluster, and its spec.
pub(super) type Specs = BTreeMap<String, Value>;

/// Node ports of these clusters, four for each. Those of the clusters that are measured are below.
const FIRST_PORT: u32 = 32_000;
/// The longest text of a spec that etcd takes many of.
const LENGTH: usize = 64 * 1024;

/// Where a text is in a spec.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// A field of an object.
    Field(String),
    /// The first item of a list.
    Item,
    /// An entry of a map, whose key is the text too.
    Entry,
}

/// Line breaks, NUL, expansions of shells and of Kubernetes, a direction override, and 64 KiB in all.
fn text() -> String {
    let nasty = "a\n\r\0${HOME}$(id)`id`\u{202e}\"'\\{{ .x }}<script>: #";
    format!("{nasty}{}", "x".repeat(LENGTH - nasty.len()))
}

/// One cluster for each text of `spec`, with everything else as it should be, and one with more entries than anybody acts on.
pub(super) fn specs(definition: &Path) -> anyhow::Result<Specs> {
    let schema = schema(definition)?;
    let mut paths = Vec::new();
    collect(&schema, &mut Vec::new(), &mut paths);
    let text = text();
    let mut specs = Specs::new();
    for (number, path) in (0..).zip(&paths) {
        let mut spec = plain(FIRST_PORT + 4 * number);
        set(&mut spec, &schema, path, &text);
        specs.insert(format!("text-{number}"), spec);
    }
    specs.insert("many".to_owned(), many());
    Ok(specs)
}

/// What a cluster with services of every kind and no host would have.
pub(super) fn plain(port: u32) -> Value {
    let entry = |image: &str, port: u32| json!({"image": image, "nodeInterfaceId": inventory::NETWORK, "nodePort": port, "replicas": 1});
    let mut auth = entry("dex:2", port + 3);
    auth["staticPasswords"] = json!({"name": "users", "key": "users"});
    let mut jump_host = entry("registry.invalid/never-starts:1", port + 2);
    jump_host["sshAuthorizedKeys"] = json!([]);
    json!({
        "nodes": {"Worker": {
            "labelSelector": {"matchLabels": {inventory::FLAVOR: "worker"}},
            "topologyKey": inventory::SERVER,
            "count": {"active": 0, "standby": 0},
        }},
        "services": {
            "loadBalancerControlPlane": [entry("haproxy:2.8", port)],
            "loadBalancerWorker": [entry("registry.invalid/never-starts:1", port + 1)],
            "jumpHost": [jump_host],
            "auth": [auth],
        },
    })
}

/// A thousand load balancers of a thousand ports each.
fn many() -> Value {
    let entry = json!({
        "image": "haproxy:2.8", "nodeInterfaceId": inventory::NETWORK,
        "nodePortRange": {"start": 31_000, "end": 31_999},
    });
    let mut spec = plain(FIRST_PORT);
    spec["services"]["loadBalancerWorker"] = vec![entry; 1_000].into();
    spec
}

/// The schema of `spec` in the definition.
fn schema(definition: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(definition).with_context(|| definition.display().to_string())?;
    let definition: Value = serde_saphyr::from_str(&text)?;
    let spec = definition.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec");
    spec.cloned().context("the definition has no schema of a spec")
}

/// Every text below this schema, and every entry of a map.
fn collect(schema: &Value, here: &mut Vec<Step>, found: &mut Vec<Vec<Step>>) {
    let mut below = |step: Step, schema: &Value| {
        here.push(step);
        collect(schema, here, found);
        here.pop();
    };
    if let Some(fields) = schema["properties"].as_object() {
        for (name, schema) in fields {
            below(Step::Field(name.clone()), schema);
        }
    } else if schema["additionalProperties"].is_object() {
        below(Step::Entry, &schema["additionalProperties"]);
    } else if schema["items"].is_object() {
        below(Step::Item, &schema["items"]);
    } else if schema["x-kubernetes-preserve-unknown-fields"] == true {
        found.push(here.iter().cloned().chain([Step::Entry]).collect());
    } else if schema["type"] == "string" || schema["x-kubernetes-int-or-string"] == true {
        found.push(here.clone());
    }
}

/// Puts the text there. What the schema requires beside it is added where it is missing.
fn set(value: &mut Value, schema: &Value, path: &[Step], text: &str) {
    let Some((step, rest)) = path.split_first() else {
        *value = text.into();
        return;
    };
    let (next, schema) = match step {
        Step::Item => {
            if value.get(0).is_none() {
                *value = json!([null]);
            }
            (&mut value[0], &schema["items"])
        }
        Step::Entry => {
            *value = Map::new().into();
            (&mut value[text], &schema["additionalProperties"])
        }
        Step::Field(name) => {
            for required in schema["required"].as_array().into_iter().flatten() {
                let required = required.as_str().unwrap_or_default();
                if value[required].is_null() {
                    value[required] = "x".into();
                }
            }
            (&mut value[name.as_str()], &schema["properties"][name.as_str()])
        }
    };
    set(next, schema, rest, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Value {
        json!({"properties": {
            "count": {"type": "integer"},
            "map": {"additionalProperties": {"type": "string"}},
            "list": {"items": {"required": ["key"], "properties": {"key": {"type": "string"}, "value": {"type": "string"}}}},
            "free": {"x-kubernetes-preserve-unknown-fields": true},
            "amount": {"x-kubernetes-int-or-string": true},
        }})
    }

    #[test]
    fn every_text_of_a_schema_is_set_once() {
        let schema = definition();
        let mut paths = Vec::new();
        collect(&schema, &mut Vec::new(), &mut paths);

        let mut specs: Vec<Value> = paths
            .iter()
            .map(|path| {
                let mut spec = json!({"count": 1});
                set(&mut spec, &schema, path, "t");
                spec
            })
            .collect();
        let mut expected = vec![
            json!({"count": 1, "map": {"t": "t"}}),
            json!({"count": 1, "list": [{"key": "t"}]}),
            json!({"count": 1, "list": [{"key": "x", "value": "t"}]}),
            json!({"count": 1, "free": {"t": "t"}}),
            json!({"count": 1, "amount": "t"}),
        ];
        specs.sort_by_key(Value::to_string);
        expected.sort_by_key(Value::to_string);
        assert_eq!(specs, expected);
    }

    #[test]
    fn a_text_is_as_long_as_it_may_be() {
        assert_eq!(text().len(), LENGTH);
    }
}
