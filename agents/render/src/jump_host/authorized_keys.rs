//! Who may log in: public keys, and authorities whose certificates may.

use std::fmt;

use ssh_key::{Algorithm, HashAlg, PublicKey, public::KeyData};

use super::options;

/// Minimum length of an RSA key that sshd accepts, in bits.
const MIN_RSA_BITS: usize = 1_024;

/// Why a line is no key that may log in; for people.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text could be more than one line.
    #[error("must have no control characters")]
    Control,
    /// The line is a comment or empty.
    #[error("must have a key")]
    NoKey,
    /// The key cannot be read.
    #[error("must be a public key: {0}")]
    Form(ssh_key::Error),
    /// sshd does not accept such keys.
    #[error("sshd does not accept keys of the algorithm {0}")]
    Algorithm(String),
    /// An RSA key that is too short.
    #[error("must have an RSA key of at least {MIN_RSA_BITS} bits, and has one of {0}")]
    Short(usize),
    /// The options before the key cannot be used.
    #[error(transparent)]
    Options(#[from] options::Error),
    /// The line of an authority has options.
    #[error("must have no options before the key: sshUserCA takes public keys only")]
    Authority,
}

/// A public key that may log in, and under which restrictions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuthorizedKey {
    options: String,
    key: PublicKey,
}

/// The public key of an authority: its certificates may log in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Authority(PublicKey);

impl AuthorizedKey {
    /// Parses a line of `authorized_keys`.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn parse(line: &str) -> Result<Self, Error> {
        let (options, key) = parse_line(line)?;
        let options = options.map_or(Ok(String::new()), options::parse)?;
        Ok(Self { options, key })
    }

    /// The same key under the same restrictions, whatever its comment is.
    #[must_use]
    pub fn without_comment(mut self) -> Self {
        self.key.set_comment("");
        self
    }
}

impl Authority {
    /// Parses a public key without options.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn parse(line: &str) -> Result<Self, Error> {
        match parse_line(line)? {
            (None, key) => Ok(Self(key)),
            (Some(_), _) => Err(Error::Authority),
        }
    }

    /// The same authority, whatever its comment is.
    #[must_use]
    pub fn without_comment(mut self) -> Self {
        self.0.set_comment("");
        self
    }
}

/// As a line of `authorized_keys`, without its end.
impl fmt::Display for AuthorizedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, key } = self;
        if !options.is_empty() {
            write!(f, "{options} ")?;
        }
        f.write_str(&line(key))
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&line(&self.0))
    }
}

/// The line of a key: algorithm, key and comment.
fn line(key: &PublicKey) -> String {
    // It was read from such a line.
    key.to_openssh().unwrap_or_default().trim_end().to_owned()
}

/// SHA-256 fingerprint of a key, in the form of `ssh-keygen -l`.
#[must_use]
pub fn fingerprint(key: &PublicKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

/// Parses a line: its options, and its key.
fn parse_line(line: &str) -> Result<(Option<&str>, PublicKey), Error> {
    if line.contains(char::is_control) {
        return Err(Error::Control);
    }
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Err(Error::NoKey);
    }
    let (options, key) = match public_key(line) {
        Ok(key) => (None, key),
        Err(alone) => {
            let Some((options, rest)) = unquoted_space(line) else {
                return Err(Error::Form(alone));
            };
            let Ok(key) = public_key(rest.trim_start()) else {
                // It begins with a key that cannot be read, or with options for nothing.
                return Err(Error::Form(alone));
            };
            (Some(options), key)
        }
    };
    check_algorithm(&key)?;
    Ok((options, key))
}

fn public_key(text: &str) -> Result<PublicKey, ssh_key::Error> {
    let mut words = text.splitn(3, ' ').map(str::trim);
    let (algorithm, key) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut read = PublicKey::from_openssh(&format!("{algorithm} {key}"))?;
    if let Some(comment) = words.next().filter(|comment| !comment.is_empty()) {
        read.set_comment(comment);
    }
    Ok(read)
}

/// Splits a line at the first space outside of quotes.
fn unquoted_space(line: &str) -> Option<(&str, &str)> {
    let mut quoted = false;
    let at = line.find(|c: char| {
        quoted ^= c == '"';
        c == ' ' && !quoted
    })?;
    Some((line.get(..at)?, line.get(at + 1..)?))
}

fn check_algorithm(key: &PublicKey) -> Result<(), Error> {
    match key.algorithm() {
        Algorithm::Ed25519
        | Algorithm::Ecdsa { .. }
        | Algorithm::SkEd25519
        | Algorithm::SkEcdsaSha2NistP256 => Ok(()),
        Algorithm::Rsa { .. } => {
            let bits = match key.key_data() {
                KeyData::Rsa(key) => key.n.as_positive_bytes().map_or(0, bit_length),
                _ => 0,
            };
            if bits < MIN_RSA_BITS {
                return Err(Error::Short(bits));
            }
            Ok(())
        }
        other => Err(Error::Algorithm(other.as_str().chars().take(40).collect())),
    }
}

fn bit_length(number: &[u8]) -> usize {
    let first = number.first().copied().unwrap_or_default();
    let leading = usize::try_from(first.leading_zeros()).unwrap_or_default();
    (number.len() * 8).saturating_sub(leading)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIHkYbTUdYkDv2VvVb4rB1V9s9yq8VxC0xZ7Tq9m2QyZq";

    #[test]
    fn lines_are_written_as_they_are_parsed() {
        for (text, expected) in [
            (format!("ssh-ed25519 {KEY}"), format!("ssh-ed25519 {KEY}")),
            (
                format!("  ssh-ed25519 {KEY} ana of the shop  "),
                format!("ssh-ed25519 {KEY} ana of the shop"),
            ),
            (
                format!("restrict,pty ssh-ed25519 {KEY}"),
                format!("restrict,pty ssh-ed25519 {KEY}"),
            ),
            (
                format!(r#"from="10.0.0.0/8" ssh-ed25519 {KEY} "quoted" # comment"#),
                format!(r#"from="10.0.0.0/8" ssh-ed25519 {KEY} "quoted" # comment"#),
            ),
        ] {
            assert_eq!(AuthorizedKey::parse(&text).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn lines_without_a_usable_key_are_refused() {
        let certificate =
            "ssh-ed25519-cert-v01@openssh.com AAAAIHNzaC1lZDI1NTE5LWNlcnQtdjAxQG9wZW5zc2guY29tAAAA";
        for (text, expected) in [
            (String::new(), "must have a key"),
            ("# ssh-ed25519 nobody".to_owned(), "must have a key"),
            (
                format!("ssh-ed25519 {KEY}\nssh-ed25519 {KEY}"),
                "must have no control characters",
            ),
            ("hello".to_owned(), "must be a public key"),
            (format!("ssh-rsa {KEY}"), "must be a public key"),
            (format!("ssh-ed25519 {}", &KEY[..40]), "must be a public key"),
            (certificate.to_owned(), "must be a public key"),
            (
                format!(r#"command="sh" ssh-ed25519 {KEY}"#),
                "option \"command\" is not allowed",
            ),
            (format!("restrict pty ssh-ed25519 {KEY}"), "must be a public key"),
        ] {
            let error = AuthorizedKey::parse(&text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn an_authority_has_no_options() {
        let line = format!("ssh-ed25519 {KEY} authority");
        assert_eq!(Authority::parse(&line).unwrap().to_string(), line);
        let with = format!("restrict {line}");
        assert!(matches!(Authority::parse(&with), Err(Error::Authority)));
    }
}
