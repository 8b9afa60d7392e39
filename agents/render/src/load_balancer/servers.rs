//! The `server` lines: one name per member, and short ones where there are so many that the configuration would not fit.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use sha2::{Digest as _, Sha256};

use super::member::Member;

/// Maximum length of a server's name, in bytes; names of Kubernetes objects are shorter. HAProxy reads lines of 2,048 bytes.
const MAX_NAME_BYTES: usize = 384;
/// Maximum size of the servers with full names, in bytes: a `ConfigMap` holds 1 MiB. Otherwise their names are short, and comments have the full
/// names.
const MAX_FULL_SERVERS_BYTES: usize = 700_000;
/// Minimum number of hexadecimal digits of a short name.
const MIN_SHORT_DIGITS: usize = 8;
/// Number of hexadecimal digits of a whole digest.
const DIGEST_DIGITS: usize = 64;

/// A member as HAProxy knows it.
pub(super) struct Server {
    full: String,
    short: Option<String>,
    /// IPv6 in brackets.
    pub(super) address: String,
    /// Whether it gets connections only where no other server answers.
    pub(super) is_backup: bool,
}

impl Server {
    /// Its name in every backend.
    pub(super) fn name(&self) -> &str {
        self.short.as_ref().unwrap_or(&self.full)
    }

    /// Its name where there is room for it.
    pub(super) fn full_name(&self) -> &str {
        &self.full
    }

    /// Its short and its full name, where it has both.
    pub(super) fn abbreviated(&self) -> Option<(&str, &str)> {
        Some((self.short.as_deref()?, &self.full))
    }
}

/// The servers behind so many ports.
pub(super) fn servers(members: &[&Member], ports: usize) -> Vec<Server> {
    let mut servers: Vec<Server> = members
        .iter()
        .map(|member| Server {
            full: server_name(member),
            short: None,
            address: match member.address {
                IpAddr::V4(address) => address.to_string(),
                IpAddr::V6(address) => format!("[{address}]"),
            },
            is_backup: member.is_backup,
        })
        .collect();
    let line = |server: &Server| "  server  :30000\n".len() + server.full.len() + server.address.len();
    if servers.iter().map(line).sum::<usize>() * ports > MAX_FULL_SERVERS_BYTES {
        abbreviate(&mut servers);
    }
    servers
}

/// Names by a digest, so that a member keeps its name whoever comes and goes; all as long as the most alike need.
fn abbreviate(servers: &mut [Server]) {
    let digests: Vec<String> = servers
        .iter()
        .map(|server| hex::encode(Sha256::digest(server.full.as_bytes())))
        .collect();
    let short = |digits: usize| {
        digests
            .iter()
            .map(move |digest| digest.get(..digits).unwrap_or(digest))
    };
    let digits = (MIN_SHORT_DIGITS..DIGEST_DIGITS)
        .find(|digits| short(*digits).collect::<BTreeSet<_>>().len() == servers.len())
        .unwrap_or(DIGEST_DIGITS);
    for (server, name) in servers.iter_mut().zip(short(digits)) {
        server.short = Some(name.to_owned());
    }
}

/// `NAMESPACE.NAME`: the namespace too, because two namespaces may hold hosts of one name. A namespace has no dot, so this
/// is unique.
fn server_name(
    Member {
        namespace,
        name,
        address: _,
        is_backup: _,
    }: &Member,
) -> String {
    let name = format!(
        "{}.{}",
        Escaped {
            text: namespace,
            dots: false
        },
        Escaped {
            text: name,
            dots: true
        }
    );
    if name.len() <= MAX_NAME_BYTES {
        return name;
    }
    let digest = hex::encode(Sha256::digest(name.as_bytes()));
    // Only ASCII is left, so every byte is a boundary.
    format!(
        "{}_{digest}",
        name.get(..MAX_NAME_BYTES - digest.len() - 1).unwrap_or_default()
    )
}

/// Names of Kubernetes objects pass unchanged. Whatever else there is becomes `_` and two hexadecimal digits per byte, so
/// that it stays one word and two names stay two.
struct Escaped<'a> {
    text: &'a str,
    dots: bool,
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.bytes().try_for_each(|byte| {
            if byte.is_ascii_alphanumeric() || byte == b'-' || (self.dots && byte == b'.') {
                write!(f, "{}", char::from(byte))
            } else {
                write!(f, "_{byte:02x}")
            }
        })
    }
}
