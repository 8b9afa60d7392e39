//! Which ssh key the user has logged in with, as sshd states it to the session (`ExposeAuthInfo`). The user could change that: it is a claim.

use std::{env, fs};

use ssh_key::{Certificate, HashAlg, PublicKey};

/// Bytes of the file, at most.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Fingerprint of the key, with the key id of a certificate; `None` outside of an ssh session, or when sshd states none.
pub(crate) fn key() -> Option<String> {
    let path = env::var_os("SSH_USER_AUTH")?;
    let size = fs::metadata(&path).ok()?.len();
    let text = (size <= MAX_FILE_BYTES).then(|| fs::read_to_string(&path).ok())??;
    text.lines().find_map(claim)
}

/// A line such as `publickey ssh-ed25519 AAAA…`.
fn claim(line: &str) -> Option<String> {
    let key = line.strip_prefix("publickey ")?;
    if key.chars().any(char::is_control) {
        return None;
    }
    if let Ok(key) = PublicKey::from_openssh(key) {
        return Some(key.fingerprint(HashAlg::Sha256).to_string());
    }
    let certificate = Certificate::from_openssh(key).ok()?;
    let fingerprint = certificate.public_key().fingerprint(HashAlg::Sha256);
    let allowed = |c: char| c.is_ascii_alphanumeric() || "@._-".contains(c);
    let id: String = certificate
        .key_id()
        .chars()
        .filter(|c| allowed(*c))
        .take(64)
        .collect();
    Some(format!("{fingerprint}:{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_claimed_by_its_fingerprint() {
        let line =
            "publickey ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHkYbTUdYkDv2VvVb4rB1V9s9yq8VxC0xZ7Tq9m2QyZq";
        let claimed = claim(line).unwrap();
        assert!(claimed.starts_with("SHA256:") && claimed.len() == 50, "{claimed}");
        for other in ["", "password", "publickey nonsense", "publickey ssh-ed25519 AAAA"] {
            assert_eq!(claim(other), None, "{other}");
        }
    }
}
