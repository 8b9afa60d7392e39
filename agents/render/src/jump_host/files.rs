//! The files that sshd and ssh read. The agent writes them to the `ConfigMap`; the sidecar of each pod writes them to the pod.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

/// The configuration of sshd. When it changes, sshd reads it again; sessions continue.
pub const SSHD_CONFIG: &str = "sshd_config";
/// The configuration of ssh for the nodes.
pub const SSH_CONFIG: &str = "ssh_config";
/// The keys that may log in.
pub const AUTHORIZED_KEYS: &str = "authorized_keys";
/// The authorities whose certificates may log in.
pub const AUTHORITIES: &str = "user_ca";
/// Principals that such a certificate needs one of.
pub const PRINCIPALS: &str = "principals";

/// The names of all files. They contain no secret.
pub const ALL: [&str; 5] = [SSHD_CONFIG, SSH_CONFIG, AUTHORIZED_KEYS, AUTHORITIES, PRINCIPALS];

/// Identifies the files of a `ConfigMap`: SHA-256, in hexadecimal digits.
#[must_use]
pub fn digest(data: &BTreeMap<String, String>) -> String {
    let mut hasher = Sha256::new();
    for name in ALL {
        let content = data.get(name).map_or("", String::as_str);
        hasher.update(content.len().to_be_bytes());
        hasher.update(content.as_bytes());
    }
    hex::encode(hasher.finalize())
}

/// Identifies the content of one file: SHA-256, in hexadecimal digits.
#[must_use]
pub fn file_digest(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}
