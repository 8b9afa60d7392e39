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
    MAX_CERTIFICATES, check_usable, has_certificate, has_names, not_after, not_before, only_certificates,
    split_certificates,
};
use self::inspect::{check_trusted, has_key, is_ca_certificate};

/// How long a CA of the agent is valid.
const CA_LIFETIME: Duration = Duration::from_hours(24 * 3650);
/// The agent publishes the next CA when the current one has this much time left; the next one issues when half of that is left.
const CA_RENEW_BEFORE: Duration = Duration::from_hours(24 * 730);
/// How long a provider's certificate is valid.
pub(crate) const CERTIFICATE_LIFETIME: Duration = Duration::from_hours(24 * 90);
/// The agent renews a provider's certificate when it has this much time left.
pub(crate) const CERTIFICATE_RENEW_BEFORE: Duration = Duration::from_hours(24 * 30);
/// How much earlier than now a certificate becomes valid, since clocks differ.
const CERTIFICATE_BACKDATE: Duration = Duration::from_mins(5);
/// How much earlier than now a CA becomes valid. One that was made while the clock was ahead has to be valid nonetheless: nobody would trust a
/// replacement.
const CA_BACKDATE: Duration = Duration::from_hours(24 * 365);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Secret that the tenant names has no usable CA.
    #[error("{0}")]
    TenantCa(&'static str),
    /// The agent cannot make a key or a certificate.
    #[error("the agent cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// A CA certificate (PEM) and its private key (PEM).
#[derive(Clone, Eq, PartialEq)]
pub struct CertificateAndKey {
    /// The certificate. In a tenant's CA those up to its root may follow.
    pub certificate: String,
    /// The private key of the certificate.
    pub key: String,
}

/// A provider's certificate, and what it was made for.
#[derive(Clone, Eq, PartialEq)]
pub struct ServingCertificate {
    /// The certificate and those between it and the root (PEM).
    pub chain: String,
    /// Private key of the certificate (PEM).
    pub key: String,
    /// Digest of the names and the CA that it was issued for.
    pub inputs_digest: String,
}

/// The CAs and the certificate that the agent keeps for one provider.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct CertificateSet {
    /// The agent's CA, where the tenant gives none.
    pub authority: Option<CertificateAndKey>,
    /// The CA that issues after `authority`.
    pub next: Option<CertificateAndKey>,
    /// Certificate of the CA that issued before `authority` (PEM).
    pub previous: Option<String>,
    /// The provider's certificate.
    pub serving: Option<ServingCertificate>,
}

/// Names under which a provider is reached.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Names {
    /// DNS names, in lower case.
    pub dns: BTreeSet<String>,
    /// IP addresses.
    pub addresses: BTreeSet<IpAddr>,
}

impl Names {
    /// The names of these hosts.
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

    /// Those of the names that `one` or `other` has, too.
    #[must_use]
    pub fn contained_in_either(&self, one: &Self, other: &Self) -> Self {
        Self {
            dns: &self.dns & &(&one.dns | &other.dns),
            addresses: &self.addresses & &(&one.addresses | &other.addresses),
        }
    }
}

/// A CA that the tenant gives in a Secret.
#[derive(Clone)]
pub struct TenantCa {
    /// The values `tls.crt` and `tls.key` of the Secret.
    pub pair: CertificateAndKey,
    /// `ca.crt`: the root to publish in place of `tls.crt`.
    pub root: Option<String>,
}

/// Renews certificates where that is due at this time. Returns what to keep, and the certificate for the pods.
///
/// # Errors
/// When a CA cannot be used.
pub fn renew(
    mut stored: CertificateSet,
    given: Option<&TenantCa>,
    names: &Names,
    now: SystemTime,
) -> Result<(CertificateSet, Certificate), Error> {
    let (authority, bundle) = match given {
        Some(given) => {
            if not_after(&given.pair.certificate).is_none_or(|end| end <= now) {
                return Err(Error::TenantCa(
                    "tls.crt must be a certificate that has not expired",
                ));
            }
            let bundle = given.root.as_ref().unwrap_or(&given.pair.certificate);
            (given.pair.clone(), bundle.clone())
        }
        None => own_ca(&mut stored, now)?,
    };
    let inputs_digest = inputs_digest(&authority, names);
    let serving = stored.serving.as_ref();
    let serving = serving.filter(|serving| serving.inputs_digest == inputs_digest);
    let end = serving.and_then(|serving| not_after(&serving.chain));
    let end = end.filter(|end| *end > now + renew_before(&authority.certificate, now));
    let begin = serving.and_then(|serving| not_before(&serving.chain));
    if end.is_none() || begin.is_none_or(|begin| begin > now) {
        // A certificate that is not valid yet was made while the clock was ahead, or the clock is behind now. Its successor is valid by either
        // clock, as far as the CA is.
        let longest = now + CA_BACKDATE + CERTIFICATE_LIFETIME;
        let end = end.unwrap_or(now).clamp(now + CERTIFICATE_LIFETIME, longest);
        let issued = issue(&authority, given.is_some(), names, inputs_digest, (now, end))?;
        stored.serving = Some(issued);
    }
    let certificate = stored.serving.as_ref().map(|serving| Certificate {
        chain: serving.chain.clone(),
        key: serving.key.clone(),
        bundle,
    });
    let certificate = certificate.ok_or(Error::TenantCa("there is no certificate"))?;
    if given.is_some() {
        check_trusted(&certificate, now).map_err(Error::TenantCa)?;
    }
    Ok((stored, certificate))
}

/// As [`renew`] for these names, or for the first of the `fallbacks` that the CA does not refuse.
///
/// # Errors
/// When a CA cannot be used; for all names.
pub fn renew_for_any(
    stored: &CertificateSet,
    given: Option<&TenantCa>,
    names: &Names,
    fallbacks: &[Names],
    now: SystemTime,
) -> Result<(CertificateSet, Certificate), Error> {
    let first = renew(stored.clone(), given, names, now);
    first.or_else(|refused| {
        let mut others = fallbacks.iter();
        let made = others.find_map(|names| renew(stored.clone(), given, names, now).ok());
        made.ok_or(refused)
    })
}

/// How much time a provider's certificate has left when the agent renews it: less where its CA expires soon.
fn renew_before(authority: &str, now: SystemTime) -> Duration {
    let of_authority = not_after(authority).and_then(|end| end.duration_since(now).ok());
    CERTIFICATE_RENEW_BEFORE.min(of_authority.unwrap_or_default() / 3)
}

/// The agent's own CA that issues now, and the certificates of all own CAs to publish.
fn own_ca(stored: &mut CertificateSet, now: SystemTime) -> Result<(CertificateAndKey, String), Error> {
    let ends_within = |pair: &CertificateAndKey, left: Duration| {
        not_after(&pair.certificate).is_none_or(|end| end <= now + left)
    };
    let ends_soon = |stored: &CertificateSet, left: Duration| {
        let authority = stored.authority.as_ref();
        authority.is_some_and(|authority| ends_within(authority, left))
    };
    if ends_soon(stored, CA_RENEW_BEFORE) && stored.next.is_none() {
        stored.next = Some(new_ca(now)?);
    }
    // The next CA issues once it was published for long enough, also after a time in which the agent did not run, unless the current CA expires
    // before.
    let is_known =
        |next: &CertificateAndKey| ends_within(next, CA_LIFETIME.saturating_sub(CA_RENEW_BEFORE / 2));
    let is_due = ends_soon(stored, CA_RENEW_BEFORE / 2)
        && (stored.next.as_ref().is_some_and(is_known) || ends_soon(stored, CERTIFICATE_LIFETIME));
    if is_due && let Some(next) = stored.next.take() {
        stored.previous = stored.authority.replace(next).map(|before| before.certificate);
    }
    if stored
        .previous
        .as_ref()
        .is_some_and(|previous| not_after(previous).is_none_or(|end| end <= now))
    {
        stored.previous = None;
    }
    let current = match &stored.authority {
        Some(authority) => authority.clone(),
        None => stored.authority.insert(new_ca(now)?).clone(),
    };
    let next = stored.next.as_ref().map(|next| &next.certificate);
    let bundle = std::iter::once(&current.certificate)
        .chain(next)
        .chain(&stored.previous);
    let bundle = bundle.cloned().collect();
    Ok((current, bundle))
}

/// A new CA, which issues no other CAs.
fn new_ca(now: SystemTime) -> Result<CertificateAndKey, Error> {
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
    params.not_before = (now - CA_BACKDATE).into();
    params.not_after = (now + CA_LIFETIME).into();
    let certificate = params.self_signed(&key)?;
    Ok(CertificateAndKey {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

fn issue(
    authority: &CertificateAndKey,
    is_given: bool,
    names: &Names,
    inputs_digest: String,
    (now, end): (SystemTime, SystemTime),
) -> Result<ServingCertificate, Error> {
    let refused = |error: rcgen::Error| {
        if is_given {
            Error::TenantCa("tls.crt and tls.key must be a CA certificate and its private key in PKCS#8")
        } else {
            Error::Make(error)
        }
    };
    let key = KeyPair::from_pem(&authority.key).map_err(refused)?;
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, &key).map_err(refused)?;
    if !is_ca_certificate(&authority.certificate) || !has_key(&authority.certificate, &key) {
        return Err(Error::TenantCa(
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
    let end_of_authority = not_after(&authority.certificate).unwrap_or(now);
    params.not_before = (now - CERTIFICATE_BACKDATE).into();
    params.not_after = end.min(end_of_authority).into();
    let certificate = params.signed_by(&own, &issuer)?.pem();
    let chain = if is_given {
        format!("{certificate}{}", authority.certificate)
    } else {
        certificate
    };
    Ok(ServingCertificate {
        chain,
        key: own.serialize_pem(),
        inputs_digest,
    })
}

fn inputs_digest(authority: &CertificateAndKey, names: &Names) -> String {
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
