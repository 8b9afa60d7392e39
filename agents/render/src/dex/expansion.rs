//! Texts in connectors and in the storage's configuration. Dex expands variables of its environment in them, `$NAME` and `${NAME}`, and has no
//! escape for `$`. So one variable holds it: Dex does not expand the value of a variable again.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// Name of the variable of Dex's environment whose value has to be `$`.
pub const DOLLAR_VARIABLE: &str = "DEX_DOLLAR";

/// A text in a part of the configuration in which Dex expands variables, written so that Dex reads this text after the expansion.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct Expanded(String);

impl fmt::Debug for Expanded {
    /// Shows nothing: the text may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Expanded")
    }
}

impl Expanded {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

pub(super) fn escape(text: &str) -> String {
    text.replace('$', &format!("${{{DOLLAR_VARIABLE}}}"))
}

/// The expansion by Dex of a text that has no other variables.
pub(super) fn expand(text: &str) -> String {
    text.replace(&format!("${{{DOLLAR_VARIABLE}}}"), "$")
}

impl Serialize for Expanded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&escape(&self.0))
    }
}

impl<'de> Deserialize<'de> for Expanded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(expand(&text)))
    }
}

/// The configuration of a raw connector, written so that Dex reads every text in it unchanged. It has no `$` where only some releases expand
/// variables: in names, and in lists of lists.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct ExpandedMap(pub(super) Map<String, Value>);

impl fmt::Debug for ExpandedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExpandedMap")
    }
}

impl Serialize for ExpandedMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        map_texts_of_fields(&self.0, &escape).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ExpandedMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer)
            .map(|map| Self(map_texts_of_fields(&map, &expand).into_iter().collect()))
    }
}

fn map_texts_of_fields(
    map: &Map<String, Value>,
    change: &impl Fn(&str) -> String,
) -> BTreeMap<String, Value> {
    map.iter()
        .map(|(name, value)| (name.clone(), map_texts(value, change)))
        .collect()
}

fn map_texts(value: &Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(values) => values.iter().map(|value| map_texts(value, change)).collect(),
        Value::Object(map) => Value::Object(map_texts_of_fields(map, change).into_iter().collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
