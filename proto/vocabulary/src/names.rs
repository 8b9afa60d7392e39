//! Names and other short texts that cannot be wrong once they exist: private fields, one parser each.

use std::fmt;
use std::str::FromStr;

use smol_str::SmolStr;

use crate::dns;

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

impl Error {
    /// Maximum number of characters that an error quotes of a text: a text may have megabytes.
    const MAX_CHARACTERS: usize = 300;

    fn new(what: &'static str, text: &str, rule: &'static str) -> Self {
        Self {
            what,
            value: text.chars().take(Self::MAX_CHARACTERS).collect(),
            rule,
        }
    }
}

const SUBDOMAIN: &str =
    "at most 253 characters: lower-case letters, digits, '-' and '.', letter or digit at both ends";
const NAMESPACE: &str = "1 to 63 lower-case letters, digits and '-', letter or digit at both ends";
const LABEL_KEY_NAME: &str = "the name of a label key must be 1 to 63 letters, digits, '-', '_' or '.', and begin and end with a letter or digit";
const LABEL_KEY_PREFIX: &str =
    "the prefix of a label key must be a DNS subdomain of at most 253 lowercase letters, digits, '-' and '.'";
const LABEL_VALUE: &str = "a label value must be empty or at most 63 letters, digits, '-', '_' or '.', and begin and end with a letter or digit";
const ROLE: &str = "the name of a role must not be empty";
const PLAIN_TEXT: &str = "must have 1 to 253 bytes and no control characters";

/// Fails with the rule that a text breaks.
type Rule = fn(&str) -> Result<(), &'static str>;

fn follows(holds: bool, rule: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(rule) }
}

/// The part of a label key after the prefix, and a label value that is not empty.
fn is_qualified_name(text: &str) -> bool {
    dns::begins_and_ends(text, |byte| byte.is_ascii_alphanumeric())
        && text.len() <= dns::MAX_LABEL_BYTES
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn namespace(text: &str) -> Result<(), &'static str> {
    let label = text.len() <= dns::MAX_LABEL_BYTES && !text.contains('.') && dns::is_subdomain(text);
    follows(label, NAMESPACE)
}

fn label_key(text: &str) -> Result<(), &'static str> {
    let name = match text.split_once('/') {
        None => text,
        Some((prefix, name)) => {
            follows(dns::is_subdomain(prefix), LABEL_KEY_PREFIX)?;
            name
        }
    };
    follows(is_qualified_name(name), LABEL_KEY_NAME)
}

fn label_value(text: &str) -> Result<(), &'static str> {
    follows(text.is_empty() || is_qualified_name(text), LABEL_VALUE)
}

fn role(text: &str) -> Result<(), &'static str> {
    follows(!text.is_empty(), ROLE)?;
    label_value(text)
}

fn plain_text(text: &str) -> Result<(), &'static str> {
    let plain = !text.is_empty() && text.len() <= 253 && !text.chars().any(char::is_control);
    follows(plain, PLAIN_TEXT)
}

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:ident) => {
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
                let check: Rule = $rule;
                match check(text) {
                    Ok(()) => Ok(Self(SmolStr::new(text))),
                    Err(rule) => Err(Error::new($what, text, rule)),
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
    Namespace, "namespace", namespace
);
text_type!(
    /// The key of a label: an optional DNS prefix and a name.
    /// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>)
    LabelKey, "label key", label_key
);
text_type!(
    /// The value of a label; may be empty.
    LabelValue, "label value", label_value
);
text_type!(
    /// A role of a cluster's hosts: a label value that is not empty, since it becomes the value of
    /// `sip.airshipit.org/node-type`. `ControlPlane` and `Worker` are in use.
    RoleName, "role", role
);
text_type!(
    /// The id of a network in a host's networkData (what SIP's `nodeInterfaceId` names).
    NetworkId, "network id", plain_text
);
text_type!(
    /// A Kubernetes object's uid; opaque.
    Uid, "uid", plain_text
);

impl RoleName {
    /// SIP's name of the role whose members run a tenant's control plane.
    pub const CONTROL_PLANE: &'static str = "ControlPlane";
    /// SIP's name of the role whose members run a tenant's workload.
    pub const WORKER: &'static str = "Worker";

    /// Whether this is the control plane's role.
    #[must_use]
    pub fn is_control_plane(&self) -> bool {
        self.as_str() == Self::CONTROL_PLANE
    }
}

/// The empty value.
impl Default for LabelValue {
    fn default() -> Self {
        Self(SmolStr::default())
    }
}

impl LabelValue {
    /// Whether the value is the empty one, which is no topology domain.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
                if !dns::is_subdomain(name) {
                    return Err(Error::new($what, name, SUBDOMAIN));
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
                let parts = text.split_once('/');
                let (namespace, name) = parts.ok_or_else(|| Error::new($what, text, "namespace/name"))?;
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
    fn keys_follow_the_kubernetes_syntax() {
        for good in [
            "a",
            "A1",
            "x.y_z-0",
            "vino.airshipit.org/rack",
            "A_b.c-d",
            "x.y/0",
            "a-b.c/Name",
            &"k".repeat(63),
        ] {
            assert_eq!(good.parse::<LabelKey>().expect("valid").as_str(), good);
        }
        let long_prefix = format!("{}/a", "p".repeat(254));
        for (bad, rule) in [
            ("", LABEL_KEY_NAME),
            ("-a", LABEL_KEY_NAME),
            ("a-", LABEL_KEY_NAME),
            ("a b", LABEL_KEY_NAME),
            ("a\n", LABEL_KEY_NAME),
            ("ä", LABEL_KEY_NAME),
            ("a/", LABEL_KEY_NAME),
            ("a/b/c", LABEL_KEY_NAME),
            (&"k".repeat(64), LABEL_KEY_NAME),
            ("/a", LABEL_KEY_PREFIX),
            ("A/a", LABEL_KEY_PREFIX),
            ("UPPER.org/a", LABEL_KEY_PREFIX),
            ("a..b/a", LABEL_KEY_PREFIX),
            ("a_b/a", LABEL_KEY_PREFIX),
            (&long_prefix, LABEL_KEY_PREFIX),
        ] {
            let found = bad.parse::<LabelKey>().map_err(|error| error.rule);
            assert_eq!(found, Err(rule), "{bad:?}");
        }
    }

    #[test]
    fn values_follow_the_kubernetes_syntax() {
        for good in ["", "a", "Control-Plane_1.0", &"v".repeat(63)] {
            assert_eq!(good.parse::<LabelValue>().expect("valid").as_str(), good);
        }
        for bad in [" ", ".", "a/b", "a\n", "${HOME}", "é", &"v".repeat(64)] {
            let found = bad.parse::<LabelValue>().map_err(|error| error.rule);
            assert_eq!(found, Err(LABEL_VALUE), "{bad:?}");
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
