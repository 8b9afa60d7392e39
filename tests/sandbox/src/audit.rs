//! What the API server's audit log says: who asked for what, and what came of it.

use std::{fs, io, path::Path};

use serde::Deserialize;

/// One finished request to the API server.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` …
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// Who asked.
    pub user: User,
    /// The program's `User-Agent`.
    #[serde(default)]
    pub user_agent: String,
    /// Which object; nothing for requests such as `/version`.
    #[serde(default)]
    pub object_ref: Option<ObjectReference>,
    /// How it ended.
    #[serde(default)]
    pub response_status: ResponseStatus,
    /// What was noted beside it.
    #[serde(default)]
    pub annotations: Annotations,
    /// The body of a write, except of Secrets and tokens.
    #[serde(default)]
    pub request_object: serde_json::Value,
    /// RFC 3339, with microseconds.
    pub request_received_timestamp: String,
    /// RFC 3339, with microseconds: when the answer had been sent.
    pub stage_timestamp: String,
}

/// Who asked.
#[derive(Clone, Debug, Deserialize)]
pub struct User {
    /// Such as `system:serviceaccount:NAMESPACE:NAME`; empty for a token whose `ServiceAccount` is gone.
    #[serde(default)]
    pub username: String,
}

/// Which object a request was about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Plural, such as `secrets`.
    #[serde(default)]
    pub resource: String,
    /// Empty for objects without a namespace.
    #[serde(default)]
    pub namespace: String,
    /// Empty for lists and creations with a generated name.
    #[serde(default)]
    pub name: String,
    /// Such as `status`.
    #[serde(default)]
    pub subresource: String,
}

/// How a request ended.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ResponseStatus {
    /// The HTTP status; 0 while a watch is open.
    #[serde(default)]
    pub code: u16,
}

/// What the API server notes beside a request.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Annotations {
    /// `allow` or `forbid`.
    #[serde(default, rename = "authorization.k8s.io/decision")]
    pub decision: String,
}

impl Entry {
    /// Whether the API server refused it for want of rights: not for a quota, or since its namespace ends.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.annotations.decision == "forbid"
    }
}

/// Whether a line of a log may be one that [`Entry::is_forbidden`] is true of: quicker than to parse it.
#[must_use]
pub fn may_be_forbidden(line: &str) -> bool {
    line.contains(r#""authorization.k8s.io/decision":"forbid""#)
}

/// Everything in an audit log so far. A last line that is still being written is left out.
///
/// # Errors
/// When the file cannot be read, or a line is not an audit event.
pub fn read(path: &Path) -> io::Result<Vec<Entry>> {
    read_where(path, |_| true)
}

/// The same, of the lines that this is true of, as they stand in the log. The others are not parsed: a site that many tests share
/// writes tens of megabytes.
///
/// # Errors
/// When the file cannot be read, or one of these lines is not an audit event.
pub fn read_where(path: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<Entry>> {
    let text = fs::read_to_string(path)?;
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete
        .lines()
        .filter(|line| wanted(line))
        .map(|line| serde_json::from_str(line).map_err(io::Error::from))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_still_being_written_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let line = r#"{"verb":"get","requestURI":"/api/v1/nodes","user":{"username":"ana"},"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"forbid"},"requestReceivedTimestamp":"2026-11-21T00:00:00.000000Z","stageTimestamp":"2026-11-21T00:00:00.000100Z"}"#;
        fs::write(&path, format!("{line}\n{}", &line[..20])).unwrap();

        let entries = read_where(&path, may_be_forbidden).unwrap();

        assert_eq!(entries.len(), 1);
        assert!(entries[0].is_forbidden());
    }
}
