//! The values that an entry takes from Secrets, checked: what Dex cannot use must not stop what runs.

use std::collections::{BTreeMap, BTreeSet};

use api::{Connector, Provider, SecretKey, Source};
use serde_json::{Map, Value};

/// Types of connectors that a Secret may have. The other types of Dex let everybody log in, or trust a header that everybody can send.
const RAW_TYPES: [&str; 16] = [
    "atlassian-crowd",
    "bitbucket-cloud",
    "gitea",
    "github",
    "gitlab",
    "google",
    "keystone",
    "ldap",
    "linkedin",
    "microsoft",
    "oauth",
    "oidc",
    "openshift",
    "saml",
    "samlExperimental",
    "cloudfoundry",
];

/// Maximum size of a value, in bytes.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;
/// Maximum size of a password or a client's secret, in bytes.
const MAX_TEXT_BYTES: usize = 4096;
/// Maximum size of a raw connector, in bytes.
const MAX_RAW_BYTES: usize = 16 * 1024;
/// Maximum number of values in a raw connector: an empty one is two bytes of text, and dozens in memory.
const MAX_RAW_NODES: usize = 1000;

/// The values that an entry takes from Secrets.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Secrets {
    texts: BTreeMap<SecretKey, String>,
    raw: BTreeMap<SecretKey, RawConnector>,
    users: Vec<StaticUser>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

/// A connector as a Secret has it.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct RawConnector {
    pub(super) kind: String,
    pub(super) config: Map<String, Value>,
}

/// A user with a password of its own.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct StaticUser {
    pub(super) email: String,
    pub(super) hash: String,
}

/// A value of a Secret that cannot be used. It does not tell the value.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{key}: {rule}")]
pub struct InvalidSecret {
    key: SecretKey,
    rule: &'static str,
}

impl Secrets {
    /// Checks the values of every key that the provider names.
    ///
    /// # Errors
    /// Every value that cannot be used. A key without value counts as empty, and without that of `staticPasswords` there are no users.
    pub fn read(
        provider: &Provider,
        values: &BTreeMap<SecretKey, Vec<u8>>,
    ) -> Result<Self, Vec<InvalidSecret>> {
        let mut read = Self::default();
        let mut bad = Vec::new();
        let text = |key: &SecretKey, is_right: fn(&str) -> Result<String, &'static str>| {
            let bytes = values.get(key).map(Vec::as_slice).unwrap_or_default();
            let text = if bytes.len() > MAX_VALUE_BYTES {
                Err("must have at most 65536 bytes")
            } else {
                std::str::from_utf8(bytes).map_err(|_| "must be UTF-8")
            };
            text.and_then(is_right).map_err(|rule| InvalidSecret {
                key: key.clone(),
                rule,
            })
        };
        let mut keep = |key: &SecretKey, value: Result<String, InvalidSecret>| match value {
            Ok(value) => {
                read.texts.insert(key.clone(), value);
            }
            Err(error) => bad.push(error),
        };
        for key in passwords(provider) {
            keep(key, text(key, password));
        }
        for key in authorities(provider) {
            keep(key, text(key, certificates));
        }
        for connector in provider.connectors() {
            if let Source::Raw(key) = connector.source() {
                match text(key, |text| Ok(text.to_owned())).and_then(|text| parse_raw_connector(key, &text)) {
                    Ok(value) => {
                        read.raw.insert(key.clone(), value);
                    }
                    Err(error) => bad.push(error),
                }
            }
        }
        if let Some(key) = provider
            .static_passwords()
            .as_ref()
            .filter(|key| values.contains_key(key))
        {
            match text(key, |text| Ok(text.to_owned())).and_then(|text| parse_users(key, &text)) {
                Ok(users) => read.users = users,
                Err(error) => bad.push(error),
            }
        }
        if bad.is_empty() { Ok(read) } else { Err(bad) }
    }

    /// The password, client's secret or CA certificates of a key; empty for a key that the provider did not name.
    #[must_use]
    pub fn text(&self, key: &SecretKey) -> &str {
        self.texts.get(key).map(String::as_str).unwrap_or_default()
    }

    pub(super) fn raw(&self, key: &SecretKey) -> Option<&RawConnector> {
        self.raw.get(key)
    }

    pub(super) fn users(&self) -> &[StaticUser] {
        &self.users
    }
}

/// Passwords of directories, and secrets of clients.
fn passwords(provider: &Provider) -> BTreeSet<&SecretKey> {
    let of_connectors = provider.connectors().iter().map(Connector::source);
    let of_connectors = of_connectors.filter_map(|source| match source {
        Source::Ldap(ldap) => ldap.bind_password().as_ref(),
        Source::Oidc(oidc) => Some(oidc.client_secret()),
        Source::Github(github) => Some(github.client_secret()),
        Source::Raw(_) => None,
    });
    let of_clients = provider
        .clients()
        .iter()
        .filter_map(|client| client.secret().as_ref());
    of_connectors.chain(of_clients).collect()
}

fn authorities(provider: &Provider) -> BTreeSet<&SecretKey> {
    let sources = provider.connectors().iter().map(Connector::source);
    sources
        .filter_map(|source| match source {
            Source::Ldap(ldap) => ldap.root_ca().as_ref(),
            Source::Oidc(_) | Source::Github(_) | Source::Raw(_) => None,
        })
        .collect()
}

/// One line; editors and `kubectl create secret --from-file` leave a line break at its end.
fn password(text: &str) -> Result<String, &'static str> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err("must not be empty");
    }
    if text.contains(char::is_control) {
        return Err("must be one line without control characters");
    }
    if text.len() > MAX_TEXT_BYTES {
        return Err("must have at most 4096 bytes");
    }
    Ok(text.to_owned())
}

fn certificates(text: &str) -> Result<String, &'static str> {
    if text.contains("-----BEGIN CERTIFICATE-----") && !text.contains("PRIVATE KEY") {
        return Ok(text.to_owned());
    }
    Err("must be certificates in PEM, without a private key")
}

fn parse_raw_connector(key: &SecretKey, text: &str) -> Result<RawConnector, InvalidSecret> {
    let bad = |rule| InvalidSecret {
        key: key.clone(),
        rule,
    };
    if text.len() > MAX_RAW_BYTES {
        return Err(bad("must have at most 16384 bytes"));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_nodes: MAX_RAW_NODES },
    };
    let value: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|_| bad("must be YAML or JSON with at most 1000 values"))?;
    let Value::Object(mut fields) = value else {
        return Err(bad("must have the fields type and config"));
    };
    let (kind, config) = (fields.remove("type"), fields.remove("config"));
    let (Some(Value::String(kind)), Some(Value::Object(config))) = (kind, config) else {
        return Err(bad("must have the fields type and config"));
    };
    if !RAW_TYPES.contains(&kind.as_str()) {
        return Err(bad(
            "its type must be a connector of Dex that asks for a password or another provider",
        ));
    }
    // Go reads names of fields without regard to case.
    let skips = |(name, value): (&String, &Value)| {
        fold_case(name) == "insecureskipsignaturevalidation" && *value == Value::Bool(true)
    };
    if config.iter().any(skips) {
        return Err(bad(
            "must not set insecureSkipSignatureValidation: any user could log in as any other",
        ));
    }
    if config
        .iter()
        .any(|(name, value)| name.contains('$') || has_unread_dollar(value))
    {
        return Err(bad(
            "must have no '$' in names of fields and in lists of lists: releases of Dex read it differently there",
        ));
    }
    Ok(RawConnector { kind, config })
}

/// A name as Go compares names of fields: two characters of other alphabets are `s` and `k` in another case.
fn fold_case(name: &str) -> String {
    name.to_uppercase().to_lowercase()
}

/// Whether there is a `$` where some releases expand variables and others do not: 2.13 everywhere, later ones in texts and lists of texts.
fn has_unread_dollar(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| name.contains('$') || has_unread_dollar(value)),
        Value::Array(values) => values.iter().any(|value| match value {
            Value::Array(_) => value.to_string().contains('$'),
            value => has_unread_dollar(value),
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn parse_users(key: &SecretKey, text: &str) -> Result<Vec<StaticUser>, InvalidSecret> {
    let bad = || InvalidSecret {
        key: key.clone(),
        rule: "must have lines EMAIL:BCRYPT with a different email each and a cost of 10 or more",
    };
    let mut users: Vec<StaticUser> = Vec::new();
    let mut emails = BTreeSet::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (email, hash) = line.split_once(':').ok_or_else(bad)?;
        if !emails.insert(email.to_ascii_lowercase()) || !is_email(email) || !is_bcrypt(hash) {
            return Err(bad());
        }
        users.push(StaticUser {
            email: email.to_owned(),
            hash: hash.to_owned(),
        });
    }
    if users.is_empty() { Err(bad()) } else { Ok(users) }
}

fn is_email(text: &str) -> bool {
    let graphic = text.bytes().all(|byte| byte.is_ascii_graphic());
    graphic
        && text
            .split_once('@')
            .is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
}

fn is_bcrypt(text: &str) -> bool {
    let Some(rest) = ["$2a$", "$2b$", "$2y$"]
        .iter()
        .find_map(|version| text.strip_prefix(version))
    else {
        return false;
    };
    let cost = rest.get(..2).and_then(|cost| cost.parse::<u8>().ok());
    let salted = rest.get(3..).unwrap_or_default();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'/';
    cost.is_some_and(|cost| (10..=16).contains(&cost))
        && rest.get(2..3) == Some("$")
        && salted.len() == 53
        && salted.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_connectors_that_skip_checks_are_refused() {
        let provider: api::SIPCluster = serde_json::from_value(serde_json::json!({
            "metadata": {"namespace": "tenants", "name": "shop", "uid": "u"},
            "spec": {"services": {"auth": [{"image": "dex:2", "nodeInterfaceId": "oam",
                "connectors": [{"id": "raw", "name": "Raw", "raw": {"name": "raw", "key": "config"}}]}]}},
        }))
        .unwrap();
        let cluster = api::Cluster::parse(&provider).unwrap();
        let provider = cluster.auth()[0].provider();
        let key = provider.secret_keys().into_iter().next().unwrap().clone();
        for (config, is_read) in [
            (
                r#"{"a": "$HOME", "b": ["$HOME", {"c": "$"}], "d": {"e": "$"}}"#,
                true,
            ),
            (r#"{"a": [["b"]]}"#, true),
            (r#"{"insecureSkipSignatureValidation": false}"#, true),
            (r#"{"insecureSkipSignatureValidation": true}"#, false),
            (r#"{"InsecureSkipSignatureValidation": true}"#, false),
            (r#"{"in\u017fecureS\u212aipSignatureValidation": true}"#, false),
            (
                r#"{"insecureSkipSignatureValidation": false, "INSECURESKIPSIGNATUREVALIDATION": true}"#,
                false,
            ),
            (r#"{"$HOME": "a"}"#, false),
            (r#"{"a": {"b$": 1}}"#, false),
            (r#"{"a": [{"b$": 1}]}"#, false),
            (r#"{"a": [["$HOME"]]}"#, false),
            (r#"{"a": [[{"b": "$"}]]}"#, false),
        ] {
            let text = format!(r#"{{"type": "ldap", "config": {config}}}"#);
            let values = BTreeMap::from([(key.clone(), text.into_bytes())]);
            assert_eq!(Secrets::read(provider, &values).is_ok(), is_read, "{config}");
        }
    }

    #[test]
    fn oversized_values_are_refused() {
        let provider: api::SIPCluster = serde_json::from_value(serde_json::json!({
            "metadata": {"namespace": "tenants", "name": "shop", "uid": "u"},
            "spec": {"services": {"auth": [{"image": "dex:2", "nodeInterfaceId": "oam",
                "connectors": [
                    {"id": "raw", "name": "Raw", "raw": {"name": "all", "key": "raw"}},
                    {"id": "ldap", "name": "Directory", "ldap": {
                        "host": "ldap.example.org", "rootCA": {"name": "all", "key": "authority"},
                        "userSearch": {"baseDN": "ou=people", "username": "uid"}}},
                ],
                "staticPasswords": {"name": "all", "key": "users"}}]}},
        }))
        .unwrap();
        let cluster = api::Cluster::parse(&provider).unwrap();
        let provider = cluster.auth()[0].provider();
        let hash = format!("$2y$10${}", "a".repeat(53));
        let users = |count: usize| {
            let lines = (0..count).map(|n| format!("u{n}@example.org:{hash}"));
            lines.collect::<Vec<_>>().join("\n")
        };
        let certificates = |count| "-----BEGIN CERTIFICATE-----\n".repeat(count);
        let raw = |count| format!("{{type: ldap, config: {{a: [{}]}}}}", vec!["{}"; count].join(","));
        for (authority, connector, file, expected) in [
            (certificates(1), raw(1), users(1), None),
            (certificates(2_000), raw(900), users(700), None),
            (
                certificates(3_000),
                raw(1),
                users(1),
                Some("authority of Secret all: must have at most 65536 bytes"),
            ),
            (
                certificates(1),
                raw(1),
                users(5_000),
                Some("users of Secret all: must have at most 65536 bytes"),
            ),
            (
                certificates(1),
                raw(2_000),
                users(1),
                Some("raw of Secret all: must be YAML or JSON with at most 1000 values"),
            ),
            (
                certificates(1),
                raw(6_000),
                users(1),
                Some("raw of Secret all: must have at most 16384 bytes"),
            ),
        ] {
            let values = provider.secret_keys().into_iter().map(|key| {
                let text = match key.key() {
                    "authority" => &authority,
                    "raw" => &connector,
                    _ => &file,
                };
                (key.clone(), text.clone().into_bytes())
            });
            let bad = Secrets::read(provider, &values.collect())
                .err()
                .unwrap_or_default();
            let bad: Vec<String> = bad.iter().map(ToString::to_string).collect();
            match expected {
                None => assert_eq!(bad, Vec::<String>::new()),
                Some(rule) => assert!(bad.len() == 1 && bad[0].ends_with(rule), "{bad:?}"),
            }
        }
    }

    #[test]
    fn only_slow_hashes_of_users_with_emails_are_accepted() {
        let hash = format!("$2y$10${}", "a".repeat(53));
        for (line, expected) in [
            (format!("ada@example.org:{hash}"), true),
            (format!("ada@example.org:{}", hash.replace("$10$", "$04$")), false),
            (format!("ada@example.org:{}", hash.replace("$2y$", "$1$")), false),
            (format!("ada:{hash}"), false),
            ("ada@example.org:secret".to_owned(), false),
            (String::new(), false),
            (format!("a@b:{hash}\nA@b:{hash}"), false),
        ] {
            let (user, hashes) = line.split_once(':').unwrap_or((&line, ""));
            let found = line.lines().count() == 1 && is_email(user) && is_bcrypt(hashes);
            assert_eq!(found, expected, "{line}");
        }
    }
}
