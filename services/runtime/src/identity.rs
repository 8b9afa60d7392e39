//! Who a peer is: the SPIFFE ids of one region, and the one parser for them.
//!
//! A certificate names its holder by exactly one URI subject alternative name (the rule of the X.509-SVID
//! specification), which is one of:
//!
//! ```text
//! spiffe://TRUST/region/REGION/site/SITE/agent/NAME
//! spiffe://TRUST/region/REGION/operator/NAME
//! spiffe://TRUST/region/REGION/reader/NAME
//! spiffe://TRUST/region/REGION/scheduler
//! ```

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use spiffe::SpiffeId;
pub use spiffe::{SpiffeIdError as TrustDomainError, TrustDomain};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate, X509Error};

/// The longest SPIFFE id in bytes, as the SPIFFE-ID specification sets it.
const MAX_URI_BYTES: usize = 2048;

/// The longest [`Name`] in bytes: that of a DNS name, so that any Kubernetes name fits.
const MAX_NAME_BYTES: usize = 253;

/// Why a text or a certificate names nobody in this [`Realm`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The certificate could not be read.
    #[error("the certificate is not well-formed X.509")]
    Certificate(#[source] Box<X509Error>),
    /// There are bytes after the certificate's end.
    #[error("the certificate is followed by {0} bytes that are not part of it")]
    TrailingBytes(usize),
    /// No URI name, or several.
    #[error(
        "a certificate must have exactly one URI subject alternative name, like `{example}`; this one has {found}"
    )]
    UriNames {
        /// How many there are.
        found: usize,
        /// A name that would have been accepted.
        example: String,
    },
    /// Longer than any SPIFFE id may be.
    #[error("a SPIFFE id has at most {MAX_URI_BYTES} bytes; this one has {0}")]
    TooLong(usize),
    /// Not a SPIFFE id at all.
    #[error("`{uri}` is not a SPIFFE id")]
    NotSpiffe {
        /// The text as given.
        uri: String,
        /// The rule that it breaks.
        #[source]
        source: TrustDomainError,
    },
    /// Of another trust domain.
    #[error("`{id}` belongs to trust domain `{found}`; expected `{expected}`")]
    TrustDomain {
        /// The id.
        id: SpiffeId,
        /// The id's trust domain.
        found: TrustDomain,
        /// This realm's trust domain.
        expected: TrustDomain,
    },
    /// Of another region.
    #[error("`{id}` belongs to region `{found}`; expected `{expected}`")]
    Region {
        /// The id.
        id: SpiffeId,
        /// The id's region.
        found: String,
        /// This realm's region.
        expected: Name,
    },
    /// A SPIFFE id, but none of the known forms.
    #[error(
        "`{id}` has an unknown form; expected `spiffe://{trust_domain}/region/{region}/` and then `site/SITE/agent/NAME`, `operator/NAME`, `reader/NAME` or `scheduler`"
    )]
    Form {
        /// The id.
        id: SpiffeId,
        /// This realm's trust domain.
        trust_domain: TrustDomain,
        /// This realm's region.
        region: Name,
    },
    /// A name within the id breaks the rule of [`Name`].
    #[error("`{id}` has a part that is not usable as a name")]
    Name {
        /// The id.
        id: SpiffeId,
        /// What is wrong with it.
        #[source]
        source: NameError,
    },
    /// An agent of a site that has no authority here.
    #[error("site `{site}` has no usable CA certificate in --tls-site-ca-dir, so its agents are refused")]
    NoAuthority {
        /// The site.
        site: Name,
    },
    /// Certified by a CA between that may be a site's.
    #[error(
        "with --tls-site-ca-dir the certificate of `{id}` must be issued by a CA certificate of --tls-client-ca itself: CA certificates that a client shows are not used"
    )]
    NotDirect {
        /// The id.
        id: String,
    },
    /// A certificate that is too long to be read.
    #[error("the certificate has {bytes} bytes: one of at most 8 KiB is read")]
    LongCertificate {
        /// How long it is.
        bytes: usize,
    },
    /// With more CA certificates than are verified.
    #[error(
        "`{id}` shows {found} CA certificates of {bytes} bytes: at most 4 of 32 KiB in all are verified; leave out those that its chain does not need"
    )]
    LongChain {
        /// The id.
        id: String,
        /// How many there are.
        found: usize,
        /// And how long they are.
        bytes: usize,
    },
    /// The certificate or its holder was revoked.
    #[error("`{id}`, or its certificate, is denied by --tls-deny")]
    Denied {
        /// The id.
        id: String,
    },
    /// A good id, but not the one that was asked for.
    #[error("the peer is `{found}`; expected `{expected}`")]
    Unexpected {
        /// Who it is.
        found: String,
        /// Who it should have been.
        expected: String,
    },
}

/// Why a text is not a [`Name`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` must have 1 to {MAX_NAME_BYTES} characters out of A-Z, a-z, 0-9, `.`, `-` and `_`, and not be `.` or `..`"
)]
pub struct NameError {
    name: String,
}

/// One name within an identity: of a region, a site, an agent, a person.
///
/// 1 to 253 characters out of `A-Z a-z 0-9 . - _`, not `.` or `..` (a path segment of a SPIFFE id).
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        let good = (1..=MAX_NAME_BYTES).contains(&name.len())
            && name.bytes().all(allowed)
            && !matches!(name, "." | "..");
        if good {
            Ok(Self(name.into()))
        } else {
            Err(NameError {
                name: name.chars().take(MAX_NAME_BYTES + 1).collect(),
            })
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Who speaks. Only [`Realm::caller`] and [`Realm::caller_of`] turn bytes from outside into one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Caller {
    /// An actuator agent; it acts for its own site only.
    Agent {
        /// The site that it runs in.
        site: Name,
        /// Which agent, such as `cluster` or `load-balancer`.
        name: Name,
    },
    /// A person or program that may change things.
    Operator {
        /// Name of the person or robot.
        name: Name,
    },
    /// A person or program that may look.
    Reader {
        /// Name of the person or robot.
        name: Name,
    },
    /// The region's scheduler.
    Scheduler,
}

impl Caller {
    /// The site that the caller is bound to; only agents are.
    #[must_use]
    pub fn site(&self) -> Option<&Name> {
        match self {
            Self::Agent { site, name: _ } => Some(site),
            Self::Operator { name: _ } | Self::Reader { name: _ } | Self::Scheduler => None,
        }
    }
}

impl fmt::Display for Caller {
    /// The path of the id below its region: `site/s1/agent/cluster`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent { site, name } => write!(f, "site/{site}/agent/{name}"),
            Self::Operator { name } => write!(f, "operator/{name}"),
            Self::Reader { name } => write!(f, "reader/{name}"),
            Self::Scheduler => f.write_str("scheduler"),
        }
    }
}

/// The trust domain and region whose identities a process accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Realm {
    trust_domain: TrustDomain,
    region: Name,
}

/// Command-line form of a [`Realm`].
#[derive(Debug, Clone, clap::Args)]
pub struct RealmArgs {
    /// SPIFFE trust domain in the identity (SAN URI) of every certificate
    #[arg(long, env = "SIP_TRUST_DOMAIN", value_name = "DOMAIN")]
    pub trust_domain: TrustDomain,
    /// Region in the identity of every certificate
    #[arg(long, env = "SIP_REGION", value_name = "NAME")]
    pub region: Name,
}

impl RealmArgs {
    /// The realm that the arguments name.
    #[must_use]
    pub fn realm(&self) -> Realm {
        let Self { trust_domain, region } = self;
        Realm::new(trust_domain.clone(), region.clone())
    }
}

impl Realm {
    /// A realm of these two; both are already parsed.
    #[must_use]
    pub fn new(trust_domain: TrustDomain, region: Name) -> Self {
        Self { trust_domain, region }
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &Name {
        &self.region
    }

    /// The trust domain.
    #[must_use]
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    /// The SPIFFE id of `caller` in this realm: what its certificate must say.
    #[must_use]
    pub fn uri(&self, caller: &Caller) -> String {
        let Self { trust_domain, region } = self;
        format!("spiffe://{trust_domain}/region/{region}/{caller}")
    }

    /// Who `uri` names.
    ///
    /// # Errors
    /// Any [`Error`] except those about certificates.
    pub fn caller(&self, uri: &str) -> Result<Caller, Error> {
        if uri.len() > MAX_URI_BYTES {
            return Err(Error::TooLong(uri.len()));
        }
        let id = SpiffeId::new(uri).map_err(|source| Error::NotSpiffe {
            uri: uri.to_owned(),
            source,
        })?;
        if *id.trust_domain() != self.trust_domain {
            let found = id.trust_domain().clone();
            return Err(Error::TrustDomain {
                id,
                found,
                expected: self.trust_domain.clone(),
            });
        }
        let path: Vec<String> = id.path().split('/').skip(1).map(ToOwned::to_owned).collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let ["region", region, ref rest @ ..] = path[..] else {
            return Err(self.unknown_form(id));
        };
        if region != self.region.as_str() {
            return Err(Error::Region {
                id,
                found: region.to_owned(),
                expected: self.region.clone(),
            });
        }
        let name = |part: &str| part.parse::<Name>();
        let caller = match rest {
            ["site", site, "agent", agent] => name(site).and_then(|site| {
                Ok(Caller::Agent {
                    site,
                    name: name(agent)?,
                })
            }),
            ["operator", operator] => name(operator).map(|name| Caller::Operator { name }),
            ["reader", reader] => name(reader).map(|name| Caller::Reader { name }),
            ["scheduler"] => Ok(Caller::Scheduler),
            [..] => return Err(self.unknown_form(id)),
        };
        caller.map_err(|source| Error::Name { id, source })
    }

    /// Who holds `certificate`. This reads the name; the chain must have been verified already.
    ///
    /// # Errors
    /// Any [`Error`] except [`Error::Unexpected`].
    pub fn caller_of(&self, certificate: &CertificateDer<'_>) -> Result<Caller, Error> {
        let parsed = parse(certificate)?;
        let names = parsed
            .subject_alternative_name()
            .map_err(|source| Error::Certificate(Box::new(source)))?
            .map(|extension| extension.value.general_names.as_slice())
            .unwrap_or_default();
        let mut uris = names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        });
        match (uris.next(), uris.count()) {
            (Some(uri), 0) => self.caller(uri),
            (first, more) => Err(Error::UriNames {
                found: usize::from(first.is_some()) + more,
                example: self.uri(&Caller::Scheduler),
            }),
        }
    }

    /// That `certificate` is held by `expected` and nobody else.
    ///
    /// # Errors
    /// As [`Realm::caller_of`], and [`Error::Unexpected`].
    pub fn expect(&self, expected: &Caller, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let found = self.caller_of(certificate)?;
        if found == *expected {
            Ok(())
        } else {
            Err(Error::Unexpected {
                found: self.uri(&found),
                expected: self.uri(expected),
            })
        }
    }

    fn unknown_form(&self, id: SpiffeId) -> Error {
        Error::Form {
            id,
            trust_domain: self.trust_domain.clone(),
            region: self.region.clone(),
        }
    }
}

/// The certificate's fields, with nothing after them.
pub(crate) fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    let (rest, parsed) = X509Certificate::from_der(certificate.as_ref()).map_err(|source| {
        Error::Certificate(Box::new(match source {
            x509_parser::nom::Err::Error(source) | x509_parser::nom::Err::Failure(source) => source,
            x509_parser::nom::Err::Incomplete(_) => X509Error::InvalidCertificate,
        }))
    })?;
    if rest.is_empty() {
        Ok(parsed)
    } else {
        Err(Error::TrailingBytes(rest.len()))
    }
}

#[cfg(test)]
mod tests;
