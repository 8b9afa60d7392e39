//! Syntax of Kubernetes labels.
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>

use std::fmt;
use std::str::FromStr;

const NAME_BYTES: usize = 63;
const PREFIX_BYTES: usize = 253;

/// Which rule of the syntax a text breaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// The part of a key after the slash.
    #[error(
        "the name of a label key must be 1 to 63 letters, digits, '-', '_' or '.', and begin and end with a letter or digit"
    )]
    KeyName,
    /// The part of a key before the slash.
    #[error(
        "the prefix of a label key must be a DNS subdomain of at most 253 lowercase letters, digits, '-' and '.'"
    )]
    KeyPrefix,
    /// A value.
    #[error(
        "a label value must be empty or at most 63 letters, digits, '-', '_' or '.', and begin and end with a letter or digit"
    )]
    Value,
}

/// Key of a label: an optional DNS subdomain with a slash, then a name.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LabelKey(String);

/// Value of a label. May be empty.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LabelValue(String);

impl LabelKey {
    /// The key as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl LabelValue {
    /// The value as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LabelKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let name = match text.split_once('/') {
            None => text,
            Some((prefix, _)) if !is_dns_subdomain(prefix) => return Err(Error::KeyPrefix),
            Some((_, name)) => name,
        };
        if is_qualified_name(name) {
            Ok(Self(text.to_owned()))
        } else {
            Err(Error::KeyName)
        }
    }
}

impl FromStr for LabelValue {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.is_empty() || is_qualified_name(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(Error::Value)
        }
    }
}

impl fmt::Display for LabelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for LabelValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_qualified_name(text: &str) -> bool {
    begins_and_ends(text, |byte| byte.is_ascii_alphanumeric())
        && text.len() <= NAME_BYTES
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// RFC 1123 subdomain as Kubernetes checks it: lowercase labels of any length, 253 bytes in all.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= PREFIX_BYTES && text.split('.').all(is_lowercase_label)
}

/// RFC 1035 label as the API server checks the name of a Service.
pub(crate) fn is_dns_label(text: &str) -> bool {
    text.len() <= NAME_BYTES
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && is_lowercase_label(text)
}

fn is_lowercase_label(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    begins_and_ends(text, alphanumeric) && text.bytes().all(|byte| alphanumeric(byte) || byte == b'-')
}

fn begins_and_ends(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [first, ..] => allowed(*first) && text.as_bytes().last().is_some_and(|last| allowed(*last)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_the_kubernetes_syntax() {
        for good in [
            "a",
            "A1",
            "x.y_z-0",
            "vino.airshipit.org/rack",
            "a-b.c/Name",
            &"k".repeat(63),
        ] {
            assert_eq!(good.parse::<LabelKey>().unwrap().as_str(), good);
        }
        let long_prefix = format!("{}/a", "p".repeat(254));
        for (bad, error) in [
            ("", Error::KeyName),
            ("-a", Error::KeyName),
            ("a-", Error::KeyName),
            ("a b", Error::KeyName),
            ("a\n", Error::KeyName),
            ("ä", Error::KeyName),
            ("a/", Error::KeyName),
            ("a/b/c", Error::KeyName),
            (&"k".repeat(64), Error::KeyName),
            ("/a", Error::KeyPrefix),
            ("A/a", Error::KeyPrefix),
            ("a..b/a", Error::KeyPrefix),
            ("a_b/a", Error::KeyPrefix),
            (&long_prefix, Error::KeyPrefix),
        ] {
            assert_eq!(bad.parse::<LabelKey>(), Err(error), "{bad:?}");
        }
    }

    #[test]
    fn values_follow_the_kubernetes_syntax() {
        for good in ["", "a", "Control-Plane_1.0", &"v".repeat(63)] {
            assert_eq!(good.parse::<LabelValue>().unwrap().as_str(), good);
        }
        for bad in [" ", ".", "a/b", "a\n", "${HOME}", "é", &"v".repeat(64)] {
            assert_eq!(bad.parse::<LabelValue>(), Err(Error::Value), "{bad:?}");
        }
    }

    #[test]
    fn a_service_name_is_a_dns_label_that_begins_with_a_letter() {
        assert!(is_dns_label("a-1"));
        for bad in ["", "1a", "a.b", "a-", "A", &"n".repeat(64)] {
            assert!(!is_dns_label(bad), "{bad:?}");
        }
    }
}
