//! The certificate of a provider that the agent issues, and the CA that it is issued from: the tenant's, or one of the agent's own.
//!
//! People and API servers have to trust a CA before it issues anything. So the agent publishes its next CA a year before that one issues, and
//! keeps the one before published until it expires.

mod inspect;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use render::dex::Certificate;
use sha2::{Digest as _, Sha256};

pub(crate) use self::inspect::{
    CERTIFICATES, begins, covers, each, ends, has_certificate, only_certificates, usable,
};
use self::inspect::{has_key, is_authority, is_trusted};

/// How long a CA of the agent is valid.
const AUTHORITY: Duration = Duration::from_hours(24 * 3650);
/// The agent publishes the next CA when the current one has this much time left; the next one issues when half of that is left.
const AUTHORITY_LEFT: Duration = Duration::from_hours(24 * 730);
/// How long a provider's certificate is valid, and how much of that is left when it is renewed.
pub(crate) const SERVING: Duration = Duration::from_hours(24 * 90);
pub(crate) const SERVING_LEFT: Duration = Duration::from_hours(24 * 30);
/// Certificates begin this much earlier, since clocks differ.
const BACKDATED: Duration = Duration::from_mins(5);
/// A CA begins this much earlier. One that was made while the clock was ahead has to be valid nonetheless: nobody would trust a replacement.
const AUTHORITY_BACKDATED: Duration = Duration::from_hours(24 * 365);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the tenant gave is no CA.
    #[error("{0}")]
    Given(&'static str),
    /// It cannot be made.
    #[error("a certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
}

/// A CA certificate (PEM) and its private key (PEM).
#[derive(Clone, Eq, PartialEq)]
pub struct Pair {
    /// The certificate. Of a tenant's CA those that lead to its root may follow.
    pub certificate: String,
    /// The key.
    pub key: String,
}

/// A provider's certificate, and what it was made for.
#[derive(Clone, Eq, PartialEq)]
pub struct Serving {
    /// The certificate and those between it and the root (PEM).
    pub chain: String,
    /// Its key (PEM).
    pub key: String,
    /// Tells its names and its CA from any others.
    pub made_for: String,
}

/// The certificates that the agent keeps for one provider.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Stored {
    /// The agent's CA, where the tenant gives none.
    pub authority: Option<Pair>,
    /// The one that follows it.
    pub next: Option<Pair>,
    /// Certificate of the one before (PEM).
    pub previous: Option<String>,
    /// The provider's.
    pub serving: Option<Serving>,
}

/// Names under which a provider is reached.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Names {
    /// DNS names.
    pub dns: BTreeSet<String>,
    /// IP addresses.
    pub addresses: BTreeSet<IpAddr>,
}

impl Names {
    /// All of these.
    pub fn from_hosts<'a>(hosts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut names = Self::default();
        hosts.into_iter().for_each(|host| names.add(host));
        names
    }

    /// Adds a DNS name or an IP address. Issuers may write names in lower case.
    pub fn add(&mut self, host: &str) {
        match host.parse() {
            Ok(address) => self.addresses.insert(address),
            Err(_) => self.dns.insert(host.to_ascii_lowercase()),
        };
    }

    /// The names that `one` or `other` has, too.
    #[must_use]
    pub fn of_either(&self, one: &Self, other: &Self) -> Self {
        Self {
            dns: &self.dns & &(&one.dns | &other.dns),
            addresses: &self.addresses & &(&one.addresses | &other.addresses),
        }
    }
}

/// A CA that the tenant gives.
#[derive(Clone)]
pub struct Given {
    /// `tls.crt` and `tls.key`.
    pub pair: Pair,
    /// `ca.crt`: the root to publish in place of `tls.crt`.
    pub root: Option<String>,
}

/// Renews certificates where that is due at this time. Returns what to keep, and the certificate for the pods.
///
/// # Errors
/// When a CA cannot be used.
pub fn renewed(
    mut stored: Stored,
    given: Option<&Given>,
    names: &Names,
    now: SystemTime,
) -> Result<(Stored, Certificate), Error> {
    let (authority, bundle) = match given {
        Some(given) => {
            if ends(&given.pair.certificate).is_none_or(|end| end <= now) {
                return Err(Error::Given("tls.crt must be a certificate that has not expired"));
            }
            let bundle = given.root.as_ref().unwrap_or(&given.pair.certificate);
            (given.pair.clone(), bundle.clone())
        }
        None => own(&mut stored, now)?,
    };
    let made_for = made_for(&authority, names);
    let serving = stored.serving.as_ref();
    let serving = serving.filter(|serving| serving.made_for == made_for);
    let end = serving.and_then(|serving| ends(&serving.chain));
    let end = end.filter(|end| *end > now + left(&authority.certificate, now));
    let begin = serving.and_then(|serving| begins(&serving.chain));
    if end.is_none() || begin.is_none_or(|begin| begin > now) {
        // A certificate that is not valid yet was made while the clock was ahead, or the clock is behind now. Its successor is valid by either
        // clock, as far as the CA is.
        let longest = now + AUTHORITY_BACKDATED + SERVING;
        let end = end.unwrap_or(now).clamp(now + SERVING, longest);
        let issued = issue(&authority, given.is_some(), names, made_for, (now, end))?;
        stored.serving = Some(issued);
    }
    let certificate = stored.serving.as_ref().map(|serving| Certificate {
        chain: serving.chain.clone(),
        key: serving.key.clone(),
        bundle,
    });
    let certificate = certificate.ok_or(Error::Given("there is no certificate"))?;
    if given.is_some() {
        is_trusted(&certificate, now).map_err(Error::Given)?;
    }
    Ok((stored, certificate))
}

/// The same for these names, or for the first of the `fallbacks` that the CA does not refuse.
///
/// # Errors
/// When a CA cannot be used; for all names.
pub fn renewed_for_any(
    stored: &Stored,
    given: Option<&Given>,
    names: &Names,
    fallbacks: &[Names],
    now: SystemTime,
) -> Result<(Stored, Certificate), Error> {
    let first = renewed(stored.clone(), given, names, now);
    first.or_else(|refused| {
        let mut others = fallbacks.iter();
        let made = others.find_map(|names| renewed(stored.clone(), given, names, now).ok());
        made.ok_or(refused)
    })
}

/// How much time a provider's certificate has left when it is renewed: less where its CA ends soon.
fn left(authority: &str, now: SystemTime) -> Duration {
    let of_authority = ends(authority).and_then(|end| end.duration_since(now).ok());
    SERVING_LEFT.min(of_authority.unwrap_or_default() / 3)
}

/// The agent's own CA that issues now, and the certificates of all own CAs to publish.
fn own(stored: &mut Stored, now: SystemTime) -> Result<(Pair, String), Error> {
    let ends_within =
        |pair: &Pair, left: Duration| ends(&pair.certificate).is_none_or(|end| end <= now + left);
    let ends_soon = |stored: &Stored, left: Duration| {
        let authority = stored.authority.as_ref();
        authority.is_some_and(|authority| ends_within(authority, left))
    };
    if ends_soon(stored, AUTHORITY_LEFT) && stored.next.is_none() {
        stored.next = Some(authority(now)?);
    }
    // The next CA issues once it was published for long enough, also after a time in which the agent did not run, unless the current CA expires
    // before.
    let is_known = |next: &Pair| ends_within(next, AUTHORITY.saturating_sub(AUTHORITY_LEFT / 2));
    let is_due = ends_soon(stored, AUTHORITY_LEFT / 2)
        && (stored.next.as_ref().is_some_and(is_known) || ends_soon(stored, SERVING));
    if is_due && let Some(next) = stored.next.take() {
        stored.previous = stored.authority.replace(next).map(|before| before.certificate);
    }
    if stored
        .previous
        .as_ref()
        .is_some_and(|previous| ends(previous).is_none_or(|end| end <= now))
    {
        stored.previous = None;
    }
    let current = match &stored.authority {
        Some(authority) => authority.clone(),
        None => stored.authority.insert(authority(now)?).clone(),
    };
    let next = stored.next.as_ref().map(|next| &next.certificate);
    let bundle = std::iter::once(&current.certificate)
        .chain(next)
        .chain(&stored.previous);
    let bundle = bundle.cloned().collect();
    Ok((current, bundle))
}

/// A new CA, which issues no other CAs.
fn authority(now: SystemTime) -> Result<Pair, Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name = rcgen::DistinguishedName::new();
    // The name is unique to the key, so that clients that trust several CAs find the right one.
    let id = hex::encode(Sha256::digest(key.public_key_raw()));
    let id = id.get(..16).unwrap_or_default();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("identity provider CA {id}"));
    params.not_before = (now - AUTHORITY_BACKDATED).into();
    params.not_after = (now + AUTHORITY).into();
    let certificate = params.self_signed(&key)?;
    Ok(Pair {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

fn issue(
    authority: &Pair,
    is_given: bool,
    names: &Names,
    made_for: String,
    (now, end): (SystemTime, SystemTime),
) -> Result<Serving, Error> {
    let refused = |error: rcgen::Error| {
        if is_given {
            Error::Given("tls.crt and tls.key must be a CA certificate and its private key in PKCS#8")
        } else {
            Error::Make(error)
        }
    };
    let key = KeyPair::from_pem(&authority.key).map_err(refused)?;
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, &key).map_err(refused)?;
    if !is_authority(&authority.certificate) || !has_key(&authority.certificate, &key) {
        return Err(Error::Given(
            "tls.key must be the private key of the first certificate of tls.crt, which must be a CA",
        ));
    }
    let own = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "identity provider");
    for name in &names.dns {
        params
            .subject_alt_names
            .push(SanType::DnsName(name.as_str().try_into()?));
    }
    let addresses = names.addresses.iter();
    params
        .subject_alt_names
        .extend(addresses.map(|address| SanType::IpAddress(*address)));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let end_of_authority = ends(&authority.certificate).unwrap_or(now);
    params.not_before = (now - BACKDATED).into();
    params.not_after = end.min(end_of_authority).into();
    let certificate = params.signed_by(&own, &issuer)?.pem();
    let chain = if is_given {
        format!("{certificate}{}", authority.certificate)
    } else {
        certificate
    };
    Ok(Serving {
        chain,
        key: own.serialize_pem(),
        made_for,
    })
}

fn made_for(authority: &Pair, names: &Names) -> String {
    let mut hash = Sha256::new();
    hash.update(authority.certificate.trim());
    for name in &names.dns {
        hash.update(format!("\ndns {name}"));
    }
    for address in &names.addresses {
        hash.update(format!("\nip {address}"));
    }
    hex::encode(hash.finalize())
}
