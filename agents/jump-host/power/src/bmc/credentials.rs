//! User and password of a BMC, from the Secret that a BareMetalHost names.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::HeaderValue;
use k8s_openapi::api::core::v1::Secret;
use secrecy::{ExposeSecret as _, SecretString};

/// Bytes of a user name or password, at most.
const MAX_CREDENTIAL_BYTES: usize = 256;

/// Why a Secret holds no usable credentials. It never repeats what the Secret holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Secret {secret}: key {key} {rule}")]
pub struct Incomplete {
    secret: String,
    key: &'static str,
    rule: &'static str,
}

/// Credentials of a BMC. They are never printed.
#[derive(Clone)]
pub struct Credentials {
    user: SecretString,
    password: SecretString,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads the keys `username` and `password`. A line break at the end of a value is not part of it: `echo` writes one.
    ///
    /// # Errors
    /// [`Incomplete`] names the key and the rule.
    pub fn parse(secret: &Secret) -> Result<Self, Incomplete> {
        let metadata = &secret.metadata;
        let name = format!(
            "{}/{}",
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default()
        );
        let read = |key: &'static str| {
            let wrong = |rule| Incomplete {
                secret: name.clone(),
                key,
                rule,
            };
            let bytes = secret.data.as_ref().and_then(|data| data.get(key));
            let bytes = bytes.ok_or_else(|| wrong("is absent"))?;
            let text = std::str::from_utf8(&bytes.0).map_err(|_| wrong("must be UTF-8"))?;
            let text = text.trim_end_matches(['\r', '\n']);
            if text.is_empty() || text.len() > MAX_CREDENTIAL_BYTES || text.chars().any(char::is_control) {
                return Err(wrong("must have 1 to 256 bytes and no control characters"));
            }
            Ok(SecretString::from(text))
        };
        let user = read("username")?;
        if user.expose_secret().contains(':') {
            return Err(Incomplete {
                secret: name,
                key: "username",
                rule: "must have no colon, which basic authentication does not allow",
            });
        }
        Ok(Self {
            user,
            password: read("password")?,
        })
    }

    /// The header of basic authentication, marked as sensitive so that it is not printed.
    pub(crate) fn basic(&self) -> Option<HeaderValue> {
        let pair = format!("{}:{}", self.user.expose_secret(), self.password.expose_secret());
        let mut value = HeaderValue::from_str(&format!("Basic {}", BASE64_STANDARD.encode(pair))).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// The body of a request for a session.
    pub(crate) fn session(&self) -> serde_json::Value {
        serde_json::json!({"UserName": self.user.expose_secret(), "Password": self.password.expose_secret()})
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn secret(pairs: &[(&str, &[u8])]) -> Secret {
        let data = pairs.iter();
        let mut secret = Secret {
            data: Some(
                data.map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec())))
                    .collect(),
            ),
            ..Secret::default()
        };
        secret.metadata.namespace = Some("metal".to_owned());
        secret.metadata.name = Some("a-bmc".to_owned());
        secret
    }

    #[test]
    fn credentials_lose_a_final_newline_and_are_never_printed() {
        let read = Credentials::parse(&secret(&[("username", b"root"), ("password", b"calvin\n")])).unwrap();
        assert_eq!(read.basic().unwrap(), "Basic cm9vdDpjYWx2aW4=");
        let shown = format!("{read:?} {:?}", read.basic());
        assert!(!shown.contains("calvin") && !shown.contains("cm9vd"), "{shown}");
    }

    #[test]
    fn a_secret_that_cannot_be_used_is_named_by_its_key() {
        for (pairs, expected) in [
            (vec![], "Secret metal/a-bmc: key username is absent"),
            (
                vec![("username", &b"root"[..])],
                "Secret metal/a-bmc: key password is absent",
            ),
            (
                vec![("username", &b"root"[..]), ("password", &b"\xff"[..])],
                "Secret metal/a-bmc: key password must be UTF-8",
            ),
            (
                vec![("username", &b"a:b"[..]), ("password", &b"p"[..])],
                "Secret metal/a-bmc: key username must have no colon, which basic authentication does not allow",
            ),
            (
                vec![("username", &b"root"[..]), ("password", &b"a\nb"[..])],
                "Secret metal/a-bmc: key password must have 1 to 256 bytes and no control characters",
            ),
        ] {
            let error = Credentials::parse(&secret(&pairs)).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
