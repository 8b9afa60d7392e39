//! Objects for the tests: a sample with every field, changed as a test needs it.

use std::path::PathBuf;

use serde_json::Value;

use crate::{BareMetalHost, Cluster, Invalid, SIPCluster};

const SAMPLE: &str = include_str!("../samples/sipcluster.yaml");

/// The sample, as the API server would serve it.
pub(crate) fn sample() -> Value {
    let mut object: Value = serde_saphyr::from_str(SAMPLE).unwrap();
    object["metadata"]["uid"] = "5a1e".into();
    object["metadata"]["generation"] = 7.into();
    object
}

/// The sample with one value, named by a JSON pointer below `/spec`, set or (with null) taken away.
pub(crate) fn sample_with(pointer: &str, value: Value) -> Value {
    let mut object = sample();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(&format!("/spec{parent}")).unwrap();
    match (parent, value) {
        (Value::Object(fields), Value::Null) => {
            fields.remove(field);
        }
        (Value::Object(fields), value) => {
            fields.insert(field.to_owned(), value);
        }
        (Value::Array(items), value) => {
            let index: usize = field.parse().unwrap();
            items.resize(items.len().max(index + 1), Value::Null);
            items[index] = value;
        }
        (other, _) => panic!("{pointer} leads into {other}"),
    }
    object
}

pub(crate) fn parse(object: Value) -> Result<Cluster, Invalid> {
    let object: SIPCluster = serde_json::from_value(object).unwrap();
    Cluster::parse(&object)
}

/// Faults as `path is value: rule`.
pub(crate) fn faults(object: Value) -> Vec<String> {
    match parse(object) {
        Ok(_) => Vec::new(),
        Err(invalid) => invalid.faults().iter().map(ToString::to_string).collect(),
    }
}

pub(crate) fn host(yaml: &str) -> BareMetalHost {
    serde_saphyr::from_str(yaml).unwrap()
}

/// Real samples of SIP and treasuremap, which are not part of the project; empty where they are absent.
pub(crate) fn real(file: &str) -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data")
        .join(file);
    let Ok(text) = std::fs::read_to_string(path) else {
        return Vec::new();
    };
    serde_saphyr::from_multiple(&text).unwrap()
}
