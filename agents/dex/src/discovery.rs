//! Whether a provider answers as its issuer, and with which keys.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use api::HttpsUrl;
use kit::tenant::{destinations::Destinations, page::First};
use rustls::ClientConfig;
use serde::Deserialize;

use crate::https;

/// Path of the discovery document, after the issuer's.
const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";
/// Path of the public keys, after the issuer's.
const KEYS_PATH: &str = "/keys";
/// Maximum number of keys that the agent reads: a provider has its current one, and earlier ones until their tokens expire.
const MAX_KEYS: usize = 64;

/// Why a provider does not answer as its issuer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server does not answer.
    #[error(transparent)]
    Unreachable(#[from] https::Error),
    /// The answer is not a discovery document.
    #[error("the server answers {0} and no discovery document")]
    NoDocument(http::StatusCode),
    /// There are no public keys.
    #[error("the server answers {0} and no public keys")]
    NoKeys(http::StatusCode),
    /// The discovery document names another issuer.
    #[error("the discovery document names the issuer {0}")]
    OtherIssuer(String),
}

/// What the agent reads of a discovery document, which any server may have sent.
#[derive(Deserialize)]
struct Document {
    issuer: String,
}

/// Gets the discovery document and compares its issuer.
///
/// # Errors
/// When the server does not answer with it, or it names another issuer.
pub async fn check(
    issuer: &HttpsUrl,
    tls: &Arc<ClientConfig>,
    at: Option<SocketAddr>,
    destinations: &Destinations,
) -> Result<(), Error> {
    let target = format!("{}{DISCOVERY_PATH}", issuer.path());
    let answer = https::request(issuer, &target, None, tls, at, destinations).await?;
    match serde_json::from_str(&answer.body) {
        Ok(Document { issuer: named }) if answer.status.is_success() && named == issuer.as_str() => Ok(()),
        Ok(Document { issuer: named }) if answer.status.is_success() => {
            // Another server has chosen the text.
            let quoted: String = named.chars().filter(|c| !c.is_control()).take(80).collect();
            Err(Error::OtherIssuer(quoted))
        }
        _ => Err(Error::NoDocument(answer.status)),
    }
}

#[derive(Deserialize)]
struct Keys {
    keys: First<Key, MAX_KEYS>,
}

#[derive(Deserialize)]
struct Key {
    kid: String,
}

/// Gets the ids of the keys by which tokens of the issuer are verified.
///
/// # Errors
/// When the server does not answer with them.
pub async fn key_ids(
    issuer: &HttpsUrl,
    tls: &Arc<ClientConfig>,
    at: Option<SocketAddr>,
    destinations: &Destinations,
) -> Result<BTreeSet<String>, Error> {
    let target = format!("{}{KEYS_PATH}", issuer.path());
    let answer = https::request(issuer, &target, None, tls, at, destinations).await?;
    let ids = parse_key_ids(&answer.body).filter(|_| answer.status.is_success());
    ids.ok_or(Error::NoKeys(answer.status))
}

fn parse_key_ids(body: &str) -> Option<BTreeSet<String>> {
    let Keys { keys: First(keys) } = serde_json::from_str(body).ok()?;
    Some(keys.into_iter().map(|key| key.kid).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_read_up_to_their_maximum_number() {
        for (count, expected) in [(0, 0), (2, 2), (MAX_KEYS, MAX_KEYS), (10 * MAX_KEYS, MAX_KEYS)] {
            let keys = (0..count).map(|key| json!({"kty": "RSA", "kid": format!("k{key}"), "n": "AQAB"}));
            let body = json!({"keys": keys.collect::<Vec<_>>()}).to_string();
            assert_eq!(parse_key_ids(&body).map(|ids| ids.len()), Some(expected));
        }
        assert_eq!(parse_key_ids("<html>"), None);
    }
}
