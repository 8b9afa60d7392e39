//! Formats of private keys that ssh and sshd read.

use rustls_pki_types::{PrivateKeyDer, pem::PemObject as _};
use ssh_key::{PrivateKey, PublicKey};

/// The format of a private key that ssh reads.
#[derive(Clone, Debug)]
pub enum Format {
    /// The format of OpenSSH, with the public key.
    OpenSsh(Box<PublicKey>, Encrypted),
    /// PKCS#1, SEC 1 or PKCS#8, as older programs write them.
    Older,
}

/// Whether a private key has a passphrase.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Encrypted {
    /// With a passphrase: only people can use it.
    Yes,
    /// Without a passphrase: programs can use it.
    No,
}

/// Detects the format of a private key; `None` if it is none.
#[must_use]
pub fn detect_format(content: &[u8]) -> Option<Format> {
    if let Ok(key) = PrivateKey::from_openssh(trimmed(content)) {
        let encrypted = if key.is_encrypted() {
            Encrypted::Yes
        } else {
            Encrypted::No
        };
        return Some(Format::OpenSsh(Box::new(key.public_key().clone()), encrypted));
    }
    PrivateKeyDer::from_pem_slice(content).ok().map(|_| Format::Older)
}

fn trimmed(content: &[u8]) -> &[u8] {
    content.trim_ascii()
}
