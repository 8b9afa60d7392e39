//! Secrets with networkData. No word of their content goes into a message.

use std::collections::BTreeMap;

use api::{NETWORK_DATA_KEY, NetworkData, SecretName};
use k8s_openapi::ByteString;
use placement::Namespace;
use serde_json::Value;

use super::Error;
use super::document::Document;
use super::object::fields;

/// The Secret's name; None when it cannot be read, so that nobody can name it.
pub(super) fn name(document: &Document, default: &Namespace) -> Option<SecretName> {
    let metadata = document.object.get("metadata")?;
    let text = |field: &str| {
        metadata
            .get(field)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    Some(SecretName {
        namespace: text("namespace").unwrap_or(default.as_str()).to_owned(),
        name: text("name")?.to_owned(),
    })
}

/// Its networkData; as in an API server, `stringData` goes before `data`.
pub(super) fn network_data(document: &Document, name: &SecretName) -> Result<NetworkData, Error> {
    let section = |field: &'static str| document.object.get(field).cloned().unwrap_or_default();
    let wrong = |path: &str| Error::Field {
        location: document.location.clone(),
        kind: format!("Secret {name}"),
        path: path.to_owned(),
        rule: "is not of the form that Secrets have".to_owned(),
    };
    let plain: Option<BTreeMap<String, String>> =
        fields(section("stringData")).map_err(|_| wrong("stringData"))?;
    let encoded: Option<BTreeMap<String, ByteString>> = fields(section("data")).map_err(|_| wrong("data"))?;
    let plain = plain
        .unwrap_or_default()
        .remove(NETWORK_DATA_KEY)
        .map(String::into_bytes);
    let bytes = plain.or_else(|| {
        encoded
            .unwrap_or_default()
            .remove(NETWORK_DATA_KEY)
            .map(|bytes| bytes.0)
    });
    Ok(match bytes {
        Some(bytes) => NetworkData::parse(name, &bytes),
        None => NetworkData::missing(name),
    })
}
