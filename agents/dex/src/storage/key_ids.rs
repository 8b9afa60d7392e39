//! Which keys a provider has, by the record that Dex keeps of them. A tenant's Dex writes it, so it is bounded. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

/// Maximum size, in bytes, of a record of a provider's keys: enough for some hundred keys. The provider's password suffices to write it.
const MAX_RECORD_BYTES: usize = 256 * 1024;
/// Maximum number of keys that the agent reads of it.
const MAX_KEYS: usize = 512;

/// The ids of the JSON Web Keys in a record of Dex.
pub(super) fn from_record(record: &[u8]) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let short = (record.len() <= MAX_RECORD_BYTES).then_some(record);
    if let Some(value) = short.and_then(|record| serde_json::from_slice(record).ok()) {
        collect_ids(&value, &mut ids);
    }
    ids
}

/// The ids of all JSON Web Keys in a value: releases of Dex name the fields differently.
fn collect_ids(value: &Value, ids: &mut BTreeSet<String>) {
    if ids.len() >= MAX_KEYS {
        return;
    }
    match value {
        Value::Object(fields) => {
            ids.extend(fields.get("kid").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| collect_ids(value, ids));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_ids(value, ids)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_read_up_to_its_limits() {
        let keys = |count: usize| -> Vec<Value> {
            let each = (0..count).map(|key| json!({"publicKey": {"kty": "RSA", "kid": format!("k{key}")}}));
            each.collect()
        };
        for (count, expected) in [(0, 0), (3, 3), (MAX_KEYS, MAX_KEYS), (MAX_KEYS + 1, MAX_KEYS)] {
            let record = json!({"signingKeyPub": {"kid": "k0"}, "verificationKeys": keys(count)});
            assert_eq!(
                from_record(record.to_string().as_bytes()).len(),
                expected.max(1),
                "{count}"
            );
        }
        let mut record = json!({"kid": "k", "more": ""}).to_string();
        record += &" ".repeat(MAX_RECORD_BYTES - record.len());
        assert_eq!(from_record(record.as_bytes()).len(), 1);
        record += " ";
        assert_eq!(from_record(record.as_bytes()).len(), 0, "it is too long");
        assert_eq!(from_record(b"{"), BTreeSet::new());
    }
}
