//! Whether a provider answers as its issuer, and with which keys.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use api::HttpsUrl;
use kit::tenant::{destinations::Destinations, page::First};
use rustls::ClientConfig;
use serde::Deserialize;

use crate::https;

/// Path of the discovery document, after the issuer's.
const DOCUMENT: &str = "/.well-known/openid-configuration";
/// Path of the public keys, likewise.
const KEYS: &str = "/keys";
/// Keys that are read: a provider has its current one, and earlier ones until their tokens expire.
const MOST_KEYS: usize = 64;

/// Why a provider does not answer as its issuer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no answer.
    #[error(transparent)]
    Unreachable(#[from] https::Error),
    /// The answer is not a discovery document.
    #[error("the answer is {0}, and no discovery document")]
    NoDocument(http::StatusCode),
    /// There are no public keys.
    #[error("the answer is {0}, and no public keys")]
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
/// When it cannot be had, or is another's.
pub async fn check(
    issuer: &HttpsUrl,
    tls: &Arc<ClientConfig>,
    at: Option<SocketAddr>,
    destinations: &Destinations,
) -> Result<(), Error> {
    let target = format!("{}{DOCUMENT}", issuer.path());
    let answer = https::get(issuer, &target, None, tls, at, destinations).await?;
    match serde_json::from_str(&answer.body) {
        Ok(Document { issuer: named }) if answer.status.is_success() && named == issuer.as_str() => Ok(()),
        Ok(Document { issuer: named }) if answer.status.is_success() => {
            // Another server has chosen the text.
            let shown: String = named.chars().filter(|c| !c.is_control()).take(80).collect();
            Err(Error::OtherIssuer(shown))
        }
        _ => Err(Error::NoDocument(answer.status)),
    }
}

#[derive(Deserialize)]
struct Keys {
    keys: First<Key, MOST_KEYS>,
}

#[derive(Deserialize)]
struct Key {
    kid: String,
}

/// Gets the ids of the keys by which tokens of the issuer are verified.
///
/// # Errors
/// When they cannot be had.
pub async fn key_ids(
    issuer: &HttpsUrl,
    tls: &Arc<ClientConfig>,
    at: Option<SocketAddr>,
    destinations: &Destinations,
) -> Result<BTreeSet<String>, Error> {
    let target = format!("{}{KEYS}", issuer.path());
    let answer = https::get(issuer, &target, None, tls, at, destinations).await?;
    let ids = ids(&answer.body).filter(|_| answer.status.is_success());
    ids.ok_or(Error::NoKeys(answer.status))
}

fn ids(body: &str) -> Option<BTreeSet<String>> {
    let Keys { keys: First(keys) } = serde_json::from_str(body).ok()?;
    Some(keys.into_iter().map(|key| key.kid).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_read_up_to_their_bound() {
        for (count, expected) in [
            (0, 0),
            (2, 2),
            (MOST_KEYS, MOST_KEYS),
            (10 * MOST_KEYS, MOST_KEYS),
        ] {
            let keys = (0..count).map(|key| json!({"kty": "RSA", "kid": format!("k{key}"), "n": "AQAB"}));
            let body = json!({"keys": keys.collect::<Vec<_>>()}).to_string();
            assert_eq!(ids(&body).map(|ids| ids.len()), Some(expected));
        }
        assert_eq!(ids("<html>"), None);
    }
}
