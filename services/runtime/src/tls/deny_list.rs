//! The list of callers whom a server denies, whichever CA certifies them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};

use super::Error;
use super::faults::Faults;

/// Certificates and identities that are denied.
#[derive(Debug, Clone, Default)]
pub(super) struct Denied {
    certificates: BTreeSet<[u8; 32]>,
    identities: BTreeSet<String>,
}

impl Denied {
    /// Reads a list. With an invalid line, whom that line means is not known, and it may be somebody who is denied now: everybody who is denied
    /// stays denied, and all valid lines count besides.
    pub(super) fn read(path: &Path, former: Option<&Self>, faults: &mut Faults) -> Result<Self, Error> {
        let read = fs::read(path).map_err(|source| Error::Read {
            what: "the list of denied identities",
            path: path.to_owned(),
            source,
        });
        let text = match read {
            Ok(text) => text,
            Err(fault) => return faults.or_former(Err(fault), former.cloned()),
        };
        let (mut denied, invalid) = Self::parse(&String::from_utf8_lossy(&text));
        if let Some(line) = invalid {
            let path = path.to_owned();
            let Self {
                certificates,
                identities,
            } = faults.or_former(Err(Error::DenyList { path, line }), former.cloned())?;
            denied.certificates.extend(certificates);
            denied.identities.extend(identities);
        }
        Ok(denied)
    }

    /// The valid lines of a list: in each the SHA-256 of a certificate, `sha256:HEX`, or an identity, `spiffe://…`; what follows a `#` is a
    /// comment. And the number of the first invalid line.
    fn parse(text: &str) -> (Self, Option<usize>) {
        let mut denied = Self::default();
        let mut invalid = None;
        for (line, number) in text.lines().zip(1..) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let is_text = !line.contains(char::REPLACEMENT_CHARACTER);
            if line.starts_with("spiffe://") && is_text {
                denied.identities.insert(line.to_owned());
            } else if let Some(digest) = line.strip_prefix("sha256:").and_then(digest) {
                denied.certificates.insert(digest);
            } else {
                invalid = invalid.or(Some(number));
            }
        }
        (denied, invalid)
    }

    /// Whether the list has this certificate, or the identity that it names.
    pub(super) fn holds(&self, certificate: &CertificateDer<'_>, uri: &str) -> bool {
        let Self {
            certificates,
            identities,
        } = self;
        identities.contains(uri)
            || !certificates.is_empty()
                && certificates.contains(&<[u8; 32]>::from(Sha256::digest(certificate)))
    }
}

/// 64 hexadecimal digits, with or without colons between bytes as openssl writes them.
fn digest(text: &str) -> Option<[u8; 32]> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    let mut digest = [0; 32];
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(digest)
}
