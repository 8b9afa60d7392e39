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

/// Objects of files in this project's samples, and of such files of SIP and treasuremap where a copy lies beside the checkout, by file.
pub(crate) fn samples(own: &[&str], beside: &[&str]) -> Vec<(PathBuf, Vec<Value>)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let own = own.iter().map(|file| root.join("tests/site/samples").join(file));
    let beside = beside.iter().map(|file| root.join("../shared/data").join(file));
    own.chain(beside.filter(|file| file.is_file()))
        .map(|file| {
            let text = std::fs::read_to_string(&file).unwrap();
            let objects = serde_saphyr::from_multiple(&text).unwrap();
            (file, objects)
        })
        .collect()
}

/// Those of this kind.
pub(crate) fn of_kind(objects: Vec<Value>, kind: &str) -> Vec<Value> {
    let found: Vec<Value> = objects
        .into_iter()
        .filter(|object| object["kind"] == kind)
        .collect();
    assert!(!found.is_empty(), "{kind}");
    found
}
