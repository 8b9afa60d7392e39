//! Names and other short texts that cannot be wrong once they exist: private fields, one parser each.

use std::fmt;
use std::str::FromStr;

use smol_str::SmolStr;

/// A text that breaks the rule of the type it was meant for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} is not valid: {rule}")]
pub struct Error {
    /// What the text was meant to be, e.g. "label key".
    pub what: &'static str,
    /// The text as it was given, its first part only if it is long.
    pub value: String,
    /// The rule that it breaks, as a sentence for people.
    pub rule: &'static str,
}

/// Most characters of a text in an error: a text may have megabytes.
const SHOWN: usize = 300;

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

const SUBDOMAIN: &str =
    "at most 253 characters: lower-case letters, digits, '-' and '.', letter or digit at both ends";
const LABEL_VALUE: &str =
    "at most 63 characters: letters, digits, '-', '_' and '.', letter or digit at both ends, or empty";
const LABEL_KEY: &str = "an optional DNS name and '/', then 1 to 63 letters, digits, '-', '_' and '.', letter or digit at both ends";

/// The rule of Kubernetes for names of objects (RFC 1123 subdomain).
fn is_subdomain(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 253
        && text.split('.').all(|part| {
            let bytes = part.as_bytes();
            bytes.first().is_some_and(|c| inner(*c))
                && bytes.last().is_some_and(|c| inner(*c))
                && bytes.iter().all(|c| inner(*c) || *c == b'-')
        })
}

/// The part of a label key after the prefix, and a label value that is not empty.
fn is_label_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    text.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(c))
}

fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_label_name(name),
        None => is_label_name(text),
    }
}

fn is_plain_text(text: &str) -> bool {
    !text.is_empty() && text.len() <= 253 && !text.chars().any(char::is_control)
}

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $valid:expr, $rule:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(SmolStr);

        impl $name {
            /// Parses the text.
            ///
            /// # Errors
            /// The text breaks the rule of this type.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Error> {
                let text = text.as_ref();
                let valid: fn(&str) -> bool = $valid;
                if valid(text) {
                    Ok(Self(SmolStr::new(text)))
                } else {
                    Err(Error { what: $what, value: shown(text), rule: $rule })
                }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(de)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, ser: S) -> Result<S::Ok, S::Error> {
                ser.serialize_str(self.as_str())
            }
        }
    };
}

text_type!(
    /// A Kubernetes namespace.
    Namespace, "namespace",
    |t| t.len() <= 63 && !t.contains('.') && is_subdomain(t),
    "1 to 63 lower-case letters, digits and '-', letter or digit at both ends"
);
text_type!(
    /// The key of a label: an optional DNS prefix and a name.
    /// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>)
    LabelKey, "label key", is_label_key, LABEL_KEY
);
text_type!(
    /// The value of a label; may be empty.
    LabelValue, "label value", |t| t.is_empty() || is_label_name(t), LABEL_VALUE
);
text_type!(
    /// A role of a cluster's hosts: a label value that is not empty, since it becomes the value of
    /// `sip.airshipit.org/node-type`. `ControlPlane` and `Worker` are in use.
    RoleName, "role", is_label_name,
    "1 to 63 characters: letters, digits, '-', '_' and '.', letter or digit at both ends"
);
text_type!(
    /// The id of a network in a host's networkData (what SIP's `nodeInterfaceId` names).
    NetworkId, "network id", is_plain_text, "1 to 253 bytes without control characters"
);
text_type!(
    /// A Kubernetes object's uid; opaque.
    Uid, "uid", is_plain_text, "1 to 253 bytes without control characters"
);

impl RoleName {
    /// SIP's name of the role whose hosts are replaced one at a time.
    pub const CONTROL_PLANE: &'static str = "ControlPlane";

    /// Whether this is the control plane's role.
    #[must_use]
    pub fn is_control_plane(&self) -> bool {
        self.as_str() == Self::CONTROL_PLANE
    }
}

impl LabelValue {
    /// Whether the value is the empty one, which is no topology domain.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn shared(&self) -> &SmolStr {
        &self.0
    }

    pub(crate) fn of_shared(text: SmolStr) -> Self {
        Self(text)
    }
}

macro_rules! object_name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            namespace: Namespace,
            name: SmolStr,
        }

        impl $name {
            /// Parses the two parts.
            ///
            /// # Errors
            /// A part breaks the rule of Kubernetes for it.
            pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Result<Self, Error> {
                let name = name.as_ref();
                if !is_subdomain(name) {
                    return Err(Error { what: $what, value: shown(name), rule: SUBDOMAIN });
                }
                Ok(Self { namespace: Namespace::new(namespace)?, name: SmolStr::new(name) })
            }

            /// The namespace.
            #[must_use]
            pub fn namespace(&self) -> &Namespace {
                &self.namespace
            }

            /// The name within the namespace.
            #[must_use]
            pub fn name(&self) -> &str {
                &self.name
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", self.namespace, self.name)
            }
        }

        impl FromStr for $name {
            type Err = Error;
            /// Parses `namespace/name`.
            fn from_str(text: &str) -> Result<Self, Error> {
                let (namespace, name) = text.split_once('/').ok_or_else(|| Error {
                    what: $what,
                    value: shown(text),
                    rule: "namespace/name",
                })?;
                Self::new(namespace, name)
            }
        }
    };
}

object_name!(
    /// Namespace and name of a `BareMetalHost`, shown as `ns/name`. Ordered by namespace, then name.
    HostName, "host name"
);
object_name!(
    /// Namespace and name of a SIPCluster, shown as `ns/name`. Ordered by namespace, then name.
    ClusterName, "cluster name"
);

/// One `BareMetalHost` for its whole life: a host that was deleted and made again under its name is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId {
    /// Its name.
    pub name: HostName,
    /// Its uid.
    pub uid: Uid,
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_keys_follow_the_rule_of_kubernetes() {
        for good in ["a", "airshipit.org/rack", "A_b.c-d", "x.y/0"] {
            assert!(LabelKey::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/a",
            "a/",
            "a/b/c",
            "-a",
            "a-",
            "UPPER.org/a",
            "a b",
            &"a".repeat(64),
        ] {
            assert!(LabelKey::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_label_value_may_be_empty_but_a_role_may_not() {
        assert!(LabelValue::new("").is_ok_and(|v| v.is_empty()));
        assert!(RoleName::new("").is_err());
        assert!(RoleName::new("ControlPlane").is_ok_and(|r| r.is_control_plane()));
    }

    #[test]
    fn object_names_are_parsed_from_their_display() {
        let name: HostName = "metal/host-1.rack".parse().expect("valid");
        assert_eq!(name.to_string(), "metal/host-1.rack");
        for bad in [
            "metal",
            "metal/",
            "/x",
            "Metal/x",
            "metal/X",
            "metal/a..b",
            "a.b/c",
        ] {
            assert!(bad.parse::<HostName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_error_names_the_thing_the_value_and_the_rule() {
        let error = LabelKey::new("-").expect_err("invalid").to_string();
        assert!(error.starts_with("label key \"-\" is not valid: "), "{error}");
    }
}
