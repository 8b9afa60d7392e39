//! The generated definitions: that `deploy/crd` holds them, that they are as loose as SIP's, and that every list that
//! several agents write has keys.

use std::path::Path;

use serde_json::Value;

fn definition(kind: &str) -> Value {
    let definitions = crate::custom_resource_definitions().unwrap();
    let found = definitions
        .iter()
        .find(|(_, definition)| definition.spec.names.kind == kind);
    serde_json::to_value(&found.unwrap().1).unwrap()
}

fn schema(kind: &str) -> Value {
    definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Every object within a schema, with its path.
fn walk(value: &Value, path: &str, visit: &mut impl FnMut(&str, &serde_json::Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            visit(path, fields);
            for (name, field) in fields {
                walk(field, &format!("{path}/{name}"), visit);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, path, visit)),
        _ => {}
    }
}

#[test]
fn deploy_crd_holds_what_the_types_say() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crd");
    for (file, definition) in crate::custom_resource_definitions().unwrap() {
        let found = std::fs::read_to_string(directory.join(file)).unwrap_or_default();
        assert!(
            found == crate::crd_to_yaml(&definition).unwrap(),
            "deploy/crd/{file} differs from the types: run `cargo run -p sip-api --bin crds -- --write deploy/crd`"
        );
    }
}

#[test]
fn the_spec_of_a_sipcluster_is_no_tighter_than_that_of_sip() {
    let root = schema("SIPCluster");
    assert_eq!(root.get("required"), None);
    assert_eq!(
        root["properties"]["spec"]["default"],
        serde_json::json!({}),
        "an absent spec must stay readable"
    );
    walk(&root["properties"]["spec"], "spec", &mut |path, fields| {
        for rule in [
            "minimum",
            "maximum",
            "enum",
            "pattern",
            "minLength",
            "maxLength",
            "minItems",
            "x-kubernetes-validations",
        ] {
            // `properties` holds names of fields, not rules.
            if !path.ends_with("/properties") {
                assert!(!fields.contains_key(rule), "{path} has {rule}");
            }
        }
        if let Some(required) = fields.get("required") {
            assert!(
                path.ends_with("/matchExpressions/items"),
                "{path} requires {required}"
            );
            assert_eq!(
                *required,
                serde_json::json!(["key", "operator"]),
                "as in metav1 and so in SIP's"
            );
        }
    });
}

#[test]
fn every_list_of_the_status_is_a_map_with_keys() {
    let status = &schema("SIPCluster")["properties"]["status"];
    let mut lists = Vec::new();
    walk(status, "status", &mut |path, fields| {
        if fields.get("type") == Some(&"array".into()) {
            let name = path.rsplit('/').next().unwrap().to_owned();
            assert_eq!(
                fields.get("x-kubernetes-list-type"),
                Some(&"map".into()),
                "{path}"
            );
            lists.push((name, fields["x-kubernetes-list-map-keys"].clone()));
        }
    });
    lists.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = serde_json::json!([
        ["applied", ["service"]],
        ["conditions", ["type"]],
        ["endpoints", ["name"]],
        ["members", ["namespace", "name"]],
        ["notPreferred", ["namespace", "name"]],
        ["roles", ["role"]],
    ]);
    assert_eq!(serde_json::to_value(lists).unwrap(), expected);
}

#[test]
fn every_key_of_a_list_is_required() {
    walk(
        &schema("SIPCluster")["properties"]["status"],
        "status",
        &mut |path, fields| {
            for key in fields
                .get("x-kubernetes-list-map-keys")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                let required = fields["items"]["required"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                assert!(required.contains(key), "{path} does not require its key {key}");
            }
        },
    );
}

#[test]
fn schemas_are_structural() {
    for kind in ["SIPCluster", "BareMetalHost"] {
        let root = schema(kind);
        walk(&root, kind, &mut |path, fields| {
            for forbidden in ["$ref", "$schema", "anyOf", "oneOf", "allOf", "definitions"] {
                assert!(
                    path.ends_with("/properties") || !fields.contains_key(forbidden),
                    "{path} has {forbidden}"
                );
            }
            if let Some(Value::Object(properties)) = fields.get("properties") {
                for (name, property) in properties {
                    assert!(property.get("type").is_some(), "{path}.{name} has no type");
                }
            }
        });
    }
}

#[test]
fn people_see_readiness_reason_counts_and_age() {
    let columns = definition("SIPCluster")["spec"]["versions"][0]["additionalPrinterColumns"].clone();
    let shown: Vec<_> = columns
        .as_array()
        .unwrap()
        .iter()
        .filter(|column| column.get("priority").is_none())
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(shown, ["Ready", "Reason", "Control-Plane", "Workers", "Age"]);
    assert_eq!(
        definition("SIPCluster")["spec"]["names"]["shortNames"],
        serde_json::json!(["sip"])
    );
}
