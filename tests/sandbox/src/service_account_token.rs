//! Tokens of `ServiceAccounts` that a site's API server would not make: with another end.

use std::path::Path;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use rcgen::{KeyPair, SigningKey as _};
use serde_json::Value;

/// Bytes of each number of a signature.
const NUMBER: usize = 32;

/// A token with another time at which it expires, in seconds since 1970, signed anew by the site's key (PEM); `None` if one of them cannot
/// be read.
#[must_use]
pub fn expiring(token: &str, at: i64, key: &Path) -> Option<String> {
    let mut parts = token.split('.');
    let (head, claims) = (parts.next()?, parts.next()?);
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?;
    let mut claims: Value = serde_json::from_slice(&claims).ok()?;
    claims.as_object_mut()?.insert("exp".to_owned(), at.into());
    let message = format!("{head}.{}", BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()));
    let key = KeyPair::from_pem(&std::fs::read_to_string(key).ok()?).ok()?;
    let signature = raw(&key.sign(message.as_bytes()).ok()?)?;
    Some(format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
}

/// A signature of ECDSA as JWT has it: both numbers with 32 bytes, instead of a sequence of two integers of ASN.1.
fn raw(signature: &[u8]) -> Option<Vec<u8>> {
    let mut raw = Vec::new();
    let mut rest = signature.get(2..)?;
    for _ in 0..2 {
        let length = usize::from(*rest.get(1)?);
        let number = rest.get(2..2 + length)?.iter().copied();
        let number: Vec<u8> = number.skip_while(|byte| *byte == 0).collect();
        raw.extend(std::iter::repeat_n(0, NUMBER.checked_sub(number.len())?));
        raw.extend(number);
        rest = rest.get(2 + length..)?;
    }
    Some(raw)
}
