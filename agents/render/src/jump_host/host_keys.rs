//! The host keys of a jump host. They are in its Secret; they are made once, and no program ever changes them.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use sha2::{Digest as _, Sha256};
use ssh_key::PublicKey;

use super::authorized_keys::fingerprint;
use super::private_keys::{Encrypted, Format, detect_format};

/// Key of the Secret for the host key that the agent generates.
pub const GENERATED_KEY: &str = "ssh_host_ed25519_key";

/// The host keys of a Secret.
#[derive(Clone, Debug, Default)]
pub struct HostKeys {
    keys: BTreeMap<String, HostKey>,
    unusable: Vec<String>,
}

#[derive(Clone, Debug)]
struct HostKey {
    /// `None` where only the private key is there, in an older form.
    public: Option<PublicKey>,
    /// SHA-256 of what the Secret has.
    digest: [u8; 32],
}

/// Whether a key of a Secret is a host key, by sshd's names.
#[must_use]
pub fn is_host_key(name: &str) -> bool {
    let inner = name
        .strip_prefix("ssh_host_")
        .and_then(|name| name.strip_suffix("_key"));
    inner.is_some_and(|inner| !inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

impl HostKeys {
    /// Parses the host keys of a Secret.
    #[must_use]
    pub fn read(data: &BTreeMap<String, ByteString>) -> Self {
        let mut read = Self::default();
        for (name, content) in data.iter().filter(|(name, _)| is_host_key(name)) {
            let public = match detect_format(&content.0) {
                Some(Format::OpenSsh(public, Encrypted::No)) => Some(*public),
                Some(Format::Older) => {
                    let beside = data.get(&format!("{name}.pub"));
                    let public = beside.and_then(|public| std::str::from_utf8(&public.0).ok());
                    public.and_then(|public| PublicKey::from_openssh(public.trim()).ok())
                }
                Some(Format::OpenSsh(_, Encrypted::Yes)) | None => {
                    read.unusable.push(name.clone());
                    continue;
                }
            };
            let digest = Sha256::digest(&content.0).into();
            read.keys.insert(name.clone(), HostKey { public, digest });
        }
        read
    }

    /// Whether the Secret has none, usable or not.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.unusable.is_empty()
    }

    /// Names of those that sshd can use.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// Names of those that sshd cannot use.
    #[must_use]
    pub fn unusable(&self) -> &[String] {
        &self.unusable
    }

    /// Identifies these keys: SHA-256 of their names and private keys, in hexadecimal digits.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        for (name, HostKey { digest, public: _ }) in &self.keys {
            hasher.update(name.as_bytes());
            hasher.update([0]);
            hasher.update(digest);
        }
        hex::encode(hasher.finalize())
    }

    /// The public keys in base64, by algorithm.
    #[must_use]
    pub fn public(&self) -> BTreeMap<String, String> {
        self.by_algorithm(|key| {
            let line = key.to_openssh().unwrap_or_default();
            line.split(' ').nth(1).unwrap_or_default().to_owned()
        })
    }

    /// The fingerprints of the host keys, by algorithm.
    #[must_use]
    pub fn fingerprints(&self) -> BTreeMap<String, String> {
        self.by_algorithm(fingerprint)
    }

    fn by_algorithm(&self, value: impl Fn(&PublicKey) -> String) -> BTreeMap<String, String> {
        let keys = self.keys.values().filter_map(|key| key.public.as_ref());
        keys.map(|key| (key.algorithm().as_str().to_owned(), value(key)))
            .collect()
    }
}
