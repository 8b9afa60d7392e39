//! Servers that are added and removed while HAProxy runs, checked so that a name is one word in every command.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use render::load_balancer::server_list::{Backend, Server as Rendered, ServerList};

use crate::wanted::hex;

/// Why servers cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// They are not of their form.
    #[error("it is not JSON of the expected schema")]
    Form(#[source] serde_json::Error),
    /// A value would be more than one word of a command.
    #[error("{field}: {value:?} is not a word of letters, digits and {allowed}")]
    Word {
        /// Where it is.
        field: String,
        /// What it is.
        value: String,
        /// Characters that are allowed besides letters and digits.
        allowed: &'static str,
    },
    /// No address.
    #[error("servers[{server}].address: {value:?} is not an IP address, IPv6 in brackets")]
    Address {
        /// The server.
        server: String,
        /// What is there.
        value: String,
    },
    /// Port 0.
    #[error("backends[{backend}].port: 0 is not a port")]
    Port {
        /// The server.
        backend: String,
    },
    /// Two of one name.
    #[error("{field}: {value:?} occurs twice")]
    Twice {
        /// Path of the field.
        field: &'static str,
        /// The name.
        value: String,
    },
}

/// One word of a command, of the characters that HAProxy allows in names.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Word(Arc<str>);

impl Word {
    const ALLOWED: &str = "- _ . :";

    /// Takes a name; `None` when it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_word(text, b"-_.:").then(|| Self(text.into()))
    }

    fn parse_field(text: &str, field: impl FnOnce() -> String) -> Result<Self, Error> {
        Self::parse(text).ok_or_else(|| Error::Word {
            field: field(),
            value: text.to_owned(),
            allowed: Self::ALLOWED,
        })
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_word(text: &str, also: &[u8]) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || also.contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

/// A server in a backend. Displays as commands name it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Server {
    /// Name of the backend.
    pub backend: Word,
    /// Its name.
    pub name: Word,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, name } = self;
        write!(f, "{backend}/{name}")
    }
}

/// The servers of a configuration that differs from others in nothing else where the shape is the same.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Members {
    shape: String,
    keywords: String,
    backends: BTreeMap<Word, u16>,
    servers: BTreeMap<Word, IpAddr>,
}

impl Members {
    /// Reads `membership.json`.
    ///
    /// # Errors
    /// What in it is wrong, and where.
    pub fn parse(json: &[u8]) -> Result<Self, Error> {
        let read: ServerList = serde_json::from_slice(json).map_err(Error::Form)?;
        let shape = (&read.frame, &read.keywords, &read.backends);
        // What was read is written again, so that it does not matter how it was laid out.
        let shape = serde_json::to_vec(&shape).map_err(Error::Form)?;
        let ServerList {
            frame: _,
            keywords,
            backends,
            servers,
        } = read;
        for word in keywords.split(' ') {
            if !is_word(word, b"-_.:,/@%+=") {
                return Err(Error::Word {
                    field: "keywords".to_owned(),
                    value: word.to_owned(),
                    allowed: "- _ . : , / @ % + =",
                });
            }
        }
        Ok(Self {
            shape: hex(&shape),
            keywords,
            backends: unique("backends", backends.iter().map(backend))?,
            servers: unique("servers", servers.iter().map(server))?,
        })
    }

    /// Identifies what configurations have besides their servers.
    #[must_use]
    pub fn shape(&self) -> &str {
        &self.shape
    }

    /// What follows each server's address.
    #[must_use]
    pub fn keywords(&self) -> &str {
        &self.keywords
    }

    /// Whether servers are checked, and used only while they answer.
    #[must_use]
    pub fn are_checked(&self) -> bool {
        self.keywords.split(' ').any(|word| word == "check")
    }

    /// Every server of every backend.
    pub fn servers(&self) -> impl Iterator<Item = (Server, SocketAddr)> {
        self.backends.iter().flat_map(|(backend, port)| {
            self.servers.iter().map(|(name, address)| {
                let server = Server {
                    backend: backend.clone(),
                    name: name.clone(),
                };
                (server, SocketAddr::new(*address, *port))
            })
        })
    }

    /// Where a server is.
    #[must_use]
    pub fn address(&self, Server { backend, name }: &Server) -> Option<SocketAddr> {
        Some(SocketAddr::new(
            *self.servers.get(name)?,
            *self.backends.get(backend)?,
        ))
    }

    /// Whether a server is one that this program adds and removes, and is not desired. Backends that are not named here are HAProxy's own:
    /// versions before 2.4 show one.
    #[must_use]
    pub fn is_unwanted(&self, server: &Server) -> bool {
        self.backends.contains_key(&server.backend) && !self.servers.contains_key(&server.name)
    }

    /// Whether there is such a member.
    #[must_use]
    pub fn has(&self, name: &Word, address: Option<IpAddr>) -> bool {
        address.is_some() && self.servers.get(name).copied() == address
    }
}

fn backend(Backend { name, port }: &Backend) -> Result<(Word, u16), Error> {
    let word = Word::parse_field(name, || "backends[].name".to_owned())?;
    if *port == 0 {
        return Err(Error::Port {
            backend: name.clone(),
        });
    }
    Ok((word, *port))
}

fn server(Rendered { name, address }: &Rendered) -> Result<(Word, IpAddr), Error> {
    let word = Word::parse_field(name, || "servers[].name".to_owned())?;
    let bare = address
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .filter(|bare| bare.contains(':'))
        .unwrap_or(address);
    let bracketed = bare.len() != address.len();
    let refused = || Error::Address {
        server: name.clone(),
        value: address.clone(),
    };
    let parsed: IpAddr = bare.parse().map_err(|_| refused())?;
    if parsed.is_ipv6() != bracketed {
        return Err(refused());
    }
    Ok((word, parsed))
}

fn unique<V>(
    field: &'static str,
    pairs: impl Iterator<Item = Result<(Word, V), Error>>,
) -> Result<BTreeMap<Word, V>, Error> {
    let mut all = BTreeMap::new();
    for pair in pairs {
        let (name, value) = pair?;
        if all.contains_key(&name) {
            return Err(Error::Twice {
                field,
                value: name.to_string(),
            });
        }
        all.insert(name, value);
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
