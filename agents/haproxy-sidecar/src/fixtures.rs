//! Configurations for tests.

use serde_json::json;

use crate::members::{Members, Server, Word};

/// A server by its names.
pub(crate) fn server(backend: &str, name: &str) -> Server {
    Server {
        backend: Word::parse(backend).unwrap(),
        name: Word::parse(name).unwrap(),
    }
}

/// Members of the backend `api`, at 192.0.2.1 and so on.
pub(crate) fn members(keywords: &str, names: &[&str]) -> Members {
    let servers: Vec<_> = names
        .iter()
        .zip(1..)
        .map(|(name, last)| json!({"name": name, "address": format!("192.0.2.{last}")}))
        .collect();
    let membership = json!({
        "frame": "00ff",
        "keywords": keywords,
        "backends": [{"name": "api", "port": 6443}],
        "servers": servers,
    });
    Members::parse(membership.to_string().as_bytes()).unwrap()
}
