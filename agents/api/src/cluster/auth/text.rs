//! Texts in the entry of an identity provider that have a syntax of their own: URLs, addresses, attributes, filters.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use vocabulary::dns;

use crate::host_port::host_port;

/// Longest text of a spec, in characters.
pub(super) const MAX_CHARACTERS: usize = 1024;

/// A key of a Secret in the SIPCluster's namespace.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct SecretKey {
    name: String,
    key: String,
}

impl SecretKey {
    pub(super) fn new(name: &str, key: &str) -> Self {
        Self {
            name: name.to_owned(),
            key: key.to_owned(),
        }
    }

    /// Name of the Secret.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Key of the value in it.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {} of Secret {}", self.key, self.name)
    }
}

/// Whether a text can be the key of a Secret.
pub(super) fn is_secret_key(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.len() <= 253 && text.bytes().all(allowed) && text != "." && text != ".."
}

/// An `https` URL of a host, an optional port and a path: no user, no query, no fragment, no slash at its end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HttpsUrl {
    text: String,
    host: String,
    port: u16,
    path: String,
}

impl HttpsUrl {
    pub(super) const RULE: &'static str = "must be an https URL of a host, a port if it is not 443, and a path of letters, digits, '-', '.', '_', '~' and '/' that does not end with '/'";

    pub(super) fn new(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("https://")?;
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = host_and_port(authority)?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
        let whole = path.bytes().all(allowed) && !path.ends_with('/') && !path.contains("//");
        (whole && text.len() <= MAX_CHARACTERS).then(|| Self {
            text: text.to_owned(),
            host,
            port: port.unwrap_or(443),
            path: path.to_owned(),
        })
    }

    /// Of a host, which is a DNS name or an IP address, a port and a path that begins with a slash or is empty.
    #[must_use]
    pub fn from_parts(host: &str, port: u16, path: &str) -> Option<Self> {
        let host = match host.parse::<Ipv6Addr>() {
            Ok(address) => format!("[{address}]"),
            Err(_) => host.to_owned(),
        };
        match port {
            443 => Self::new(&format!("https://{host}{path}")),
            port => Self::new(&format!("https://{host}:{port}{path}")),
        }
    }

    /// The URL as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The DNS name or the IP address in it, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path: empty, or with a slash at its begin and none at its end.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for HttpsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Where a directory is reached.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LdapAddress {
    host: String,
    port: u16,
}

impl LdapAddress {
    pub(super) const RULE: &'static str = "must be a DNS name or an IP address, with ':' and a port if it is not the usual one; an IPv6 address in brackets";

    pub(super) fn new(text: &str, start_tls: bool) -> Option<Self> {
        let (host, port) = host_and_port(text)?;
        let usual = if start_tls { 389 } else { 636 };
        Some(Self {
            host,
            port: port.unwrap_or(usual),
        })
    }

    /// The DNS name or the IP address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for LdapAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&host_port(&self.host, self.port))
    }
}

/// A host, lowercase or not, and a port.
fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        (address.to_string(), rest)
    } else {
        let (host, port) = text.find(':').map_or((text, ""), |at| text.split_at(at));
        (is_host(host).then(|| host.to_owned())?, port)
    };
    let digits = port.strip_prefix(':');
    let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let port = match digits {
        Some(digits) => Some(digits.parse().ok().filter(|port| *port != 0)?),
        None if port.is_empty() => None,
        None => return None,
    };
    Some((host, port))
}

/// Whether it is a DNS name or an IPv4 address.
fn is_host(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4())
        || dns::is_subdomain(&text.to_ascii_lowercase())
}

/// Whether a text is the name of an attribute of a directory: letters, digits and '-', or numbers with dots. Such a name has no character with a
/// meaning in a filter.
pub(super) fn is_attribute(text: &str) -> bool {
    let named = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let numbered = text
        .split('.')
        .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    text.len() <= 128 && (named || (numbered && text.contains('.')))
}

/// Whether a text is one filter (RFC 4515), also when Dex inserts it into another filter. Dex parses filters at each login, so an invalid one
/// would make every login fail.
pub(super) fn is_filter(text: &str) -> bool {
    let mut open: Vec<Open> = Vec::new();
    let mut rest = text;
    loop {
        if let Some(inner) = rest.strip_prefix('(') {
            match open.last_mut() {
                Some(Open::Not { is_filled: true }) => return false,
                Some(Open::Not { is_filled }) => *is_filled = true,
                Some(Open::Several) | None => {}
            }
            if let Some(inner) = inner.strip_prefix(['&', '|']) {
                open.push(Open::Several);
                rest = inner;
            } else if let Some(inner) = inner.strip_prefix('!') {
                open.push(Open::Not { is_filled: false });
                rest = inner;
            } else if let Some((_, after)) = inner.split_once(')').filter(|(item, _)| is_item(item)) {
                rest = after;
            } else {
                return false;
            }
        } else if let Some(after) = rest.strip_prefix(')') {
            match open.pop() {
                Some(Open::Several | Open::Not { is_filled: true }) => rest = after,
                Some(Open::Not { is_filled: false }) | None => return false,
            }
        } else {
            return false;
        }
        if open.is_empty() {
            return rest.is_empty();
        }
    }
}

/// An open parenthesis of a filter, by the operator that follows it.
enum Open {
    /// `&` or `|` of any number of filters.
    Several,
    /// `!` of one filter.
    Not { is_filled: bool },
}

/// Whether a text is an item of a filter: an attribute with options and a rule, an operator and a value.
fn is_item(text: &str) -> bool {
    let Some((described, value)) = text.split_once('=') else {
        return false;
    };
    // A matching rule stands between `:` and `:=`, and allows no other operator.
    let compared = described.strip_suffix(['~', '<', '>']);
    if described.contains(':') && (compared.is_some() || !described.ends_with(':')) {
        return false;
    }
    let described = compared.unwrap_or(described);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-.;:_".contains(&byte);
    let is_described =
        described.bytes().all(allowed) && described.contains(|c: char| c.is_ascii_alphanumeric());
    // Two hexadecimal digits follow each `\`.
    let mut escapes = value.split('\\').skip(1);
    let is_escaped = escapes.all(|escape| {
        let digits = escape.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    is_described && is_escaped && !value.contains('(')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuers_have_host_port_and_path() {
        for (text, expected) in [
            (
                "https://sso.example.org:30556/dex",
                Some(("sso.example.org", 30_556, "/dex")),
            ),
            ("https://192.0.2.1", Some(("192.0.2.1", 443, ""))),
            (
                "https://[2001:db8::1]:8443/a/b",
                Some(("2001:db8::1", 8443, "/a/b")),
            ),
            ("http://sso.example.org/dex", None),
            ("https://user@sso.example.org/dex", None),
            ("https://sso.example.org/dex?a=b", None),
            ("https://sso.example.org/dex#a", None),
            ("https://sso.example.org/dex/", None),
            ("https://sso.example.org/$HOME", None),
            ("https://sso.example.org/a\nb", None),
            ("https://sso.example.org:0/dex", None),
            ("https://sso.example.org:+1/dex", None),
            ("https://sso.example.org:/dex", None),
            ("https:///dex", None),
            ("https://2001:db8::1/dex", None),
        ] {
            let url = HttpsUrl::new(text);
            let found = url.as_ref().map(|url| (url.host(), url.port(), url.path()));
            assert_eq!(found, expected, "{text}");
        }
        let url = HttpsUrl::from_parts("2001:db8::1", 443, "/dex").unwrap();
        assert_eq!(url.as_str(), "https://[2001:db8::1]/dex");
    }

    #[test]
    fn attributes_and_filters_stay_in_their_place() {
        for good in ["uid", "DN", "sAMAccountName", "2.5.4.3", "x-y"] {
            assert!(is_attribute(good), "{good}");
        }
        for bad in ["", "u(id", "uid=*", "a b", "1", "2..5", "uid;lang-en", "u\u{0}"] {
            assert!(!is_attribute(bad), "{bad:?}");
        }
        for good in [
            "(a=b)",
            "(&(a=b)(!(c=d)))",
            r"(a=\28)",
            "(|(a>=1)(b~=c)(d<=*))",
            "(memberOf:1.2.840.113556.1.4.1941:=cn=a,dc=b)",
            "(cn;lang-en=é b)",
            // True (RFC 4526).
            "(&)",
        ] {
            assert!(is_filter(good), "{good}");
        }
        for bad in [
            "",
            "a=b",
            "(a=b",
            "(a=b))",
            "(a=b)(c=d)",
            "(a=b)x",
            r"(a=\2)",
            r"(a=\",
            ")(",
            "()",
            "(a)",
            "(=b)",
            "(!)",
            "((a=b))",
            "(!(a=b)(c=d))",
            "(& (a=b))",
            "(&(a=b)x)",
            "(a=b(c)d)",
            "(a b=c)",
            "(:=b)",
            // A rule is followed by `:=`.
            "(memberOf:1.2.840.113556.1.4.1941=cn=a,dc=b)",
            "(a:b=c)",
            "(a:>=b)",
            "(a:b:~=c)",
        ] {
            assert!(!is_filter(bad), "{bad:?}");
        }
    }
}
