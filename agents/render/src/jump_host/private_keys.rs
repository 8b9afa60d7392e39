//! Forms of private keys that ssh and sshd read.

use rustls_pki_types::{PrivateKeyDer, pem::PemObject as _};
use ssh_key::{PrivateKey, PublicKey};

/// A private key, in a form that ssh reads.
#[derive(Clone, Debug)]
pub enum Form {
    /// OpenSSH's own, with its public key.
    OpenSsh(Box<PublicKey>, Encrypted),
    /// PKCS#1, SEC 1 or PKCS#8, as older programs write it.
    Older,
}

/// Whether a passphrase is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Encrypted {
    /// Only people can use it.
    Yes,
    /// Programs can use it.
    No,
}

/// What form a private key has; `None` if it is none.
#[must_use]
pub fn form(content: &[u8]) -> Option<Form> {
    if let Ok(key) = PrivateKey::from_openssh(trimmed(content)) {
        let encrypted = if key.is_encrypted() {
            Encrypted::Yes
        } else {
            Encrypted::No
        };
        return Some(Form::OpenSsh(Box::new(key.public_key().clone()), encrypted));
    }
    PrivateKeyDer::from_pem_slice(content).ok().map(|_| Form::Older)
}

fn trimmed(content: &[u8]) -> &[u8] {
    content.trim_ascii()
}
