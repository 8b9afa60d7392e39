//! What all objects of Kubernetes have in common.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use placement::{NameError, Namespace};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Error;
use super::document::Document;
use crate::line::one_line;

/// Maximum number of characters of a name, a path or a parser's message in a message.
const MAX_TEXT_CHARACTERS: usize = 240;

/// In the place of the uid of an object that never was in an API server.
pub(super) const NO_UID: &str = "unknown";

/// Reads `metadata` and completes it: the default namespace where there is none, a uid where there is none.
pub(super) fn metadata(
    document: &mut Document,
    kind: &'static str,
    default: &Namespace,
) -> Result<ObjectMeta, Error> {
    let location = document.location.clone();
    let value = document.object.get("metadata").cloned().unwrap_or_default();
    let value = if value.is_null() {
        Value::Object(serde_json::Map::default())
    } else {
        value
    };
    let mut metadata: ObjectMeta = fields(value).map_err(|(path, rule)| Error::Field {
        location: location.clone(),
        kind: kind.to_owned(),
        path: format!("metadata.{path}"),
        rule,
    })?;
    let absent = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
    if absent(&metadata.name) {
        return Err(Error::Field {
            location,
            kind: kind.to_owned(),
            path: "metadata.name".to_owned(),
            rule: "must be set".to_owned(),
        });
    }
    if absent(&metadata.namespace) {
        metadata.namespace = Some(default.to_string());
    }
    if absent(&metadata.uid) {
        metadata.uid = Some(NO_UID.to_owned());
    }
    Ok(metadata)
}

/// Checks namespace and name.
pub(super) fn name<T>(
    document: &Document,
    kind: &'static str,
    metadata: &ObjectMeta,
    parse: impl FnOnce(&str, &str) -> Result<T, NameError>,
) -> Result<T, Error> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    parse(&text(&metadata.namespace), &text(&metadata.name)).map_err(|source| Error::Name {
        location: document.location.clone(),
        kind,
        source: Box::new(NameError {
            value: one_line(&source.value, MAX_TEXT_CHARACTERS),
            ..source
        }),
    })
}

/// Reads fields, or says path and rule of the first that is wrong.
pub(super) fn fields<T: DeserializeOwned>(value: Value) -> Result<T, (String, String)> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = one_line(&error.path().to_string(), MAX_TEXT_CHARACTERS);
        (
            path,
            one_line(&error.into_inner().to_string(), MAX_TEXT_CHARACTERS),
        )
    })
}
