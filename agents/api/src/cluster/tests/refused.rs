mod auth;
mod scaled;
mod services;

use serde_json::{Value, json};

use crate::fixtures::{faults, parse, sample, sample_with};

const KEY_NAME: &str = "the name of a label key must be 1 to 63 letters, digits, '-', '_' or '.', and begin and end with a letter or digit";
const KEY_PREFIX: &str =
    "the prefix of a label key must be a DNS subdomain of at most 253 lowercase letters, digits, '-' and '.'";
pub(super) const VALUE: &str = "a label value must be empty or at most 63 letters, digits, '-', '_' or '.', and begin and end with a letter or digit";

/// The one fault of the sample with one value changed.
#[track_caller]
fn refused(pointer: &str, value: Value, expected: &str) {
    assert_eq!(faults(sample_with(pointer, value)), [expected]);
}

#[test]
fn counts() {
    for (pointer, value, expected) in [
        (
            "/nodes/Worker/count",
            Value::Null,
            "spec.nodes[Worker].count is absent: must be set: the number of hosts of the role",
        ),
        (
            "/nodes/Worker/count/active",
            json!(-1),
            "spec.nodes[Worker].count.active is -1: must not be negative",
        ),
        (
            "/nodes/Worker/count/standby",
            json!(i64::MIN),
            "spec.nodes[Worker].count.standby is -9223372036854775808: must not be negative",
        ),
        (
            "/nodes/Worker/count/active",
            json!(4_294_967_296_i64),
            "spec.nodes[Worker].count.active is 4294967296: must be at most 4294967295",
        ),
        (
            "/nodes/Worker/count/active",
            json!(4_294_967_295_i64),
            "spec.nodes[Worker].count is 4294967295 + 1: active and standby together must be at most 4294967295",
        ),
    ] {
        refused(pointer, value, expected);
    }
}

#[test]
fn selectors() {
    let operators = "must be In, NotIn, Exists or DoesNotExist";
    let at = "spec.nodes[Worker].labelSelector";
    for (selector, expected) in [
        (
            Value::Null,
            format!("{at} is absent: must be set; {{}} selects every host"),
        ),
        (
            json!({ "matchExpressions": [{ "key": "a", "operator": "Gt", "values": ["1"] }] }),
            format!("{at}.matchExpressions[0].operator is \"Gt\": {operators}"),
        ),
        (
            json!({ "matchExpressions": [{ "key": "a", "operator": "in", "values": ["1"] }] }),
            format!("{at}.matchExpressions[0].operator is \"in\": {operators}"),
        ),
        (
            json!({ "matchExpressions": [{ "key": "a", "operator": "In" }] }),
            format!(
                "{at}.matchExpressions[0].values is absent: must have at least one value with operator In"
            ),
        ),
        (
            json!({ "matchExpressions": [{ "key": "a", "operator": "NotIn", "values": [] }] }),
            format!(
                "{at}.matchExpressions[0].values is absent: must have at least one value with operator NotIn"
            ),
        ),
        (
            json!({ "matchExpressions": [{ "key": "a", "operator": "Exists", "values": ["x", "y"] }] }),
            format!("{at}.matchExpressions[0].values is 2 values: must be empty with operator Exists"),
        ),
        (
            json!({ "matchExpressions": [{ "key": "a", "operator": "DoesNotExist", "values": ["x"] }] }),
            format!("{at}.matchExpressions[0].values is 1 values: must be empty with operator DoesNotExist"),
        ),
        (
            json!({ "matchExpressions": [{ "key": "a b", "operator": "Exists" }] }),
            format!("{at}.matchExpressions[0].key is \"a b\": {KEY_NAME}"),
        ),
        (
            json!({ "matchExpressions": [{ "key": "a", "operator": "In", "values": ["ok", "not ok"] }] }),
            format!("{at}.matchExpressions[0].values[1] is \"not ok\": {VALUE}"),
        ),
        (
            json!({ "matchLabels": { "": "x" } }),
            format!("{at}.matchLabels[] is \"\": {KEY_NAME}"),
        ),
        (
            json!({ "matchLabels": { "a": "x/y" } }),
            format!("{at}.matchLabels[a] is \"x/y\": {VALUE}"),
        ),
    ] {
        refused("/nodes/Worker/labelSelector", selector, &expected);
    }
}

#[test]
fn roles() {
    let set = json!({ "labelSelector": {}, "count": {} });
    refused(
        "/nodes/",
        set.clone(),
        "spec.nodes[] is \"\": the name of a role must not be empty",
    );
    refused(
        "/nodes/not a label",
        set,
        &format!(
            "spec.nodes[not a label] is \"not a label\": the name of a role becomes the label sip.airshipit.org/node-type: {VALUE}"
        ),
    );
    refused(
        "/nodes/Worker/topologyKey",
        json!("Rack/"),
        &format!("spec.nodes[Worker].topologyKey is \"Rack/\": {KEY_PREFIX}"),
    );
    for bad in ["soon", "-5m", "5"] {
        refused(
            "/nodes/Worker/replaceAfterError",
            json!(bad),
            &format!(
                "spec.nodes[Worker].replaceAfterError is \"{bad}\": must be a duration that is not negative, such as 30m or 1h30m, or empty for 10 minutes"
            ),
        );
    }
}

#[test]
fn an_object_without_identity() {
    let mut object = sample();
    for field in ["name", "namespace", "uid"] {
        object["metadata"][field] = Value::Null;
    }
    let faults = faults(object);
    for field in ["namespace", "name", "uid"] {
        assert!(
            faults.contains(&format!("metadata.{field} is absent: must be set")),
            "{faults:#?}"
        );
    }
}

#[test]
fn faults_are_listed_in_the_order_of_the_fields() {
    let mut object = sample();
    object["spec"]["nodes"]["ControlPlane"]["count"]["active"] = (-3).into();
    object["spec"]["nodes"]["Worker"]["labelSelector"] = Value::Null;
    object["spec"]["services"]["jumpHost"][0]["image"] = Value::Null;
    let invalid = parse(object).unwrap_err();
    assert_eq!(
        invalid.to_string(),
        "SIPCluster tenants/shop: spec.nodes[ControlPlane].count.active is -3: must not be negative; \
         spec.nodes[Worker].labelSelector is absent: must be set; {} selects every host; \
         spec.services.jumpHost[0].image is absent: must be set"
    );
    assert_eq!(invalid.object(), "SIPCluster tenants/shop");
}
