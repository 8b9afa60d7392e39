//! An amount of a resource as users write it.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

/// A quantity, as a number or a string. Reads every number that the API server accepts there, which may be larger than 32 bits hold.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Amount {
    /// A whole number, such as `2`.
    Int(i64),
    /// A text, such as `512Mi`; or a number that is no whole one.
    String(String),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => number.fmt(f),
            Self::String(text) => text.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written)
    }
}

struct Written;

impl de::Visitor<'_> for Written {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a text")
    }

    fn visit_i64<E>(self, number: i64) -> Result<Amount, E> {
        Ok(Amount::Int(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Amount, E> {
        Ok(i64::try_from(number).map_or_else(|_| Amount::String(number.to_string()), Amount::Int))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Amount, E> {
        Ok(Amount::String(number.to_string()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Amount, E> {
        Ok(Amount::String(text.to_owned()))
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "description": "Quantity, as a number or a string.",
        })
    }
}
