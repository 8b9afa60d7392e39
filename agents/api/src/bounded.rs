//! Deserializers for JSON that a user may have nested without limit. A usual parser refuses a value that is nested too deep, and with it the
//! whole list that contains the object; these drop the inner levels instead.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Levels of an object that are read. Known fields are less deep, and parsers of JSON stop at 128 levels.
const MAX_DEPTH: usize = 64;
/// Levels of an `override` that are read. The deepest known texts are at the fifth.
const MAX_OVERRIDE_DEPTH: usize = 8;
/// Bytes of memory that each value takes, approximately, besides the bytes of a text.
const VALUE_OVERHEAD_BYTES: usize = 32;

/// Reads the first [`MAX_DEPTH`] levels of a value.
pub(crate) fn value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Levels(MAX_DEPTH).deserialize(deserializer)
}

/// Reads the first [`MAX_OVERRIDE_DEPTH`] levels of an `override`; null is `None`. Deeper lists and maps are empty, and the parser of the spec
/// refuses them there like any other value.
pub(crate) fn shallow<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    let value = Levels(MAX_OVERRIDE_DEPTH).deserialize(deserializer)?;
    Ok(Some(value).filter(|value| !value.is_null()))
}

/// Truncates every list and map in the value to its first `items` entries.
pub(crate) fn cut(value: &mut Value, items: usize) {
    match value {
        Value::Array(list) => {
            list.truncate(items);
            for value in list {
                cut(value, items);
            }
        }
        Value::Object(map) => {
            let more: Vec<String> = map.keys().skip(items).cloned().collect();
            for key in more {
                map.remove(&key);
            }
            for value in map.values_mut() {
                cut(value, items);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Bytes of memory that a value takes, approximately.
pub(crate) fn memory(value: &Value) -> usize {
    let more = match value {
        Value::Array(list) => list.iter().map(memory).fold(0, usize::saturating_add),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| key.len().saturating_add(memory(value)))
            .fold(0, usize::saturating_add),
        Value::String(text) => text.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    VALUE_OVERHEAD_BYTES.saturating_add(more)
}

/// Reads a value of at most so many levels of lists and objects; lists and objects below them are empty.
#[derive(Clone, Copy)]
struct Levels(usize);

impl<'de> DeserializeSeed<'de> for Levels {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Levels {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        match self.0.checked_sub(1).map(Self) {
            Some(inner) => {
                while let Some(item) = items.next_element_seed(inner)? {
                    list.push(item);
                }
            }
            None => while items.next_element::<IgnoredAny>()?.is_some() {},
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        match self.0.checked_sub(1).map(Self) {
            Some(inner) => {
                while let Some(key) = entries.next_key::<String>()? {
                    let item = entries.next_value_seed(inner)?;
                    map.insert(key, item);
                }
            }
            None => while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {},
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn what_is_nested_without_end_is_cut() {
        let text = nested(100_000);
        let mut deserializer = serde_json::Deserializer::from_str(&text);
        let read = value(&mut deserializer).unwrap();
        deserializer.end().unwrap();
        assert_eq!(read.to_string(), nested(MAX_DEPTH + 1));
    }

    #[test]
    fn what_is_not_deep_is_read_as_it_is() {
        let all = json!({"a": [1, -2, 1.5, true, null, "x", {"b": {}}], "c": 18_446_744_073_709_551_615_u64});
        let text = all.to_string();
        assert_eq!(
            value(&mut serde_json::Deserializer::from_str(&text)).unwrap(),
            all
        );
    }
}
